import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints what Apache's MirrorClient and RemoteClusterUtils find in a target: BOOTSTRAP SOURCE-ALIAS GROUP [POLICY]. */
public class MirrorProbe {
    public static void main(String[] args) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", args[0]);
        if (args.length > 3) {
            properties.put("replication.policy.class", args[3]);
        }
        try (MirrorClient client = new MirrorClient(properties)) {
            System.out.println("upstream " + client.upstreamClusters());
            System.out.println("hops " + client.replicationHops(args[1]));
            System.out.println("heartbeats " + client.heartbeatTopics());
            System.out.println("checkpoints " + client.checkpointTopics());
            System.out.println("remote " + client.remoteTopics(args[1]));
        }
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(properties, args[1], args[2], Duration.ofSeconds(30));
        Map<String, Long> offsets = new TreeMap<>();
        found.forEach((partition, offset) -> offsets.put(partition.toString(), offset.offset()));
        System.out.println("offsets " + offsets);
        Properties reading = new Properties();
        reading.putAll(properties);
        reading.put("key.deserializer", ByteArrayDeserializer.class.getName());
        reading.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading)) {
            for (String topic : List.of("heartbeats", args[1] + ".heartbeats")) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(30));
                for (ConsumerRecord<byte[], byte[]> each : records) {
                    Heartbeat beat = Heartbeat.deserializeRecord(each);
                    System.out.println("beat " + topic + " " + beat.sourceClusterAlias() + " " + beat.targetClusterAlias()
                        + " " + (System.currentTimeMillis() - beat.timestamp() < 600_000));
                    break;
                }
            }
        }
    }
}
