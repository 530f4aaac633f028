// Vert.x: copies a topic, and commits an offset when the record is written.
import io.vertx.core.Vertx;
import io.vertx.kafka.client.common.TopicPartition;
import io.vertx.kafka.client.consumer.KafkaConsumer;
import io.vertx.kafka.client.consumer.KafkaConsumerRecord;
import io.vertx.kafka.client.consumer.OffsetAndMetadata;
import io.vertx.kafka.client.producer.KafkaProducer;
import io.vertx.kafka.client.producer.KafkaProducerRecord;
import java.util.HashMap;
import java.util.Map;

public class Copier {
    private static final String STRING = "org.apache.kafka.common.serialization.String";

    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final String target;

    Copier(String bootstrap, String name, String target) {
        Vertx vertx = Vertx.vertx();
        Map<String, String> reading = new HashMap<>();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", name);
        reading.put("key.deserializer", STRING + "Deserializer");
        reading.put("value.deserializer", STRING + "Deserializer");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("session.timeout.ms", "6000");
        reading.put("heartbeat.interval.ms", "1000");
        Map<String, String> writing = new HashMap<>();
        writing.put("bootstrap.servers", bootstrap);
        writing.put("key.serializer", STRING + "Serializer");
        writing.put("value.serializer", STRING + "Serializer");
        writing.put("acks", "all");
        consumer = KafkaConsumer.create(vertx, reading);
        producer = KafkaProducer.create(vertx, writing);
        this.target = target;
    }

    void start(String source) {
        consumer.handler(this::copy);
        consumer.subscribe(source).onFailure(Copier::end);
    }

    // One record at a time: the next one is read when the offset of this one is committed.
    private void copy(KafkaConsumerRecord<String, String> read) {
        consumer.pause();
        producer.send(KafkaProducerRecord.create(target, read.key(), read.value()))
            .onFailure(Copier::end)
            .onSuccess(written -> commit(read));
    }

    private void commit(KafkaConsumerRecord<String, String> read) {
        var partition = new TopicPartition(read.topic(), read.partition());
        consumer.commit(Map.of(partition, new OffsetAndMetadata(read.offset() + 1, "")))
            .onFailure(Throwable::printStackTrace) // where the coordinator moves; the next commit covers this one
            .onComplete(done -> consumer.resume());
    }

    private static void end(Throwable failure) {
        failure.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    public static void main(String[] args) {
        new Copier(args[0], args[1], args[3]).start(args[2]);
    }
}
