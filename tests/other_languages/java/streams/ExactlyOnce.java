// Kafka Streams with exactly_once_v2: copies a topic, and counts its records by key in a store with a changelog.
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

public class ExactlyOnce {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], name = args[1], source = args[2], copies = args[3], counts = args[4], directory = args[5];
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put("auto.offset.reset", "earliest");
        // After a kill its successor waits for the end of the session: 45 s if nothing is said.
        properties.put("session.timeout.ms", 6000);
        properties.put("heartbeat.interval.ms", 1000);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(source);
        records.to(copies);
        records.groupByKey().count().toStream().mapValues(String::valueOf).to(counts, Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.exit(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            ended.countDown();
        }));
        streams.start();
        System.out.println("started");
        ended.await();
    }
}
