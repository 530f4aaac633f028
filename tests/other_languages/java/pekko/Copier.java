// Pekko Connectors: a stream copies a topic in transactions.
import com.typesafe.config.ConfigFactory;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.kafka.ConsumerSettings;
import org.apache.pekko.kafka.ProducerMessage;
import org.apache.pekko.kafka.ProducerSettings;
import org.apache.pekko.kafka.Subscriptions;
import org.apache.pekko.kafka.javadsl.Consumer;
import org.apache.pekko.kafka.javadsl.Transactional;

public class Copier {
    public static void main(String[] args) {
        String bootstrap = args[0], name = args[1], source = args[2], target = args[3];
        ActorSystem system = ActorSystem.create("copier",
            ConfigFactory.parseString("pekko.kafka.producer.eos-commit-interval = 300ms").withFallback(ConfigFactory.load()));
        var reading = ConsumerSettings.create(system, new StringDeserializer(), new StringDeserializer())
            .withBootstrapServers(bootstrap)
            .withGroupId(name)
            .withProperty("auto.offset.reset", "earliest")
            .withProperty("session.timeout.ms", "6000")
            .withProperty("heartbeat.interval.ms", "1000")
            .withProperty("max.poll.records", "20");
        var writing = ProducerSettings.create(system, new StringSerializer(), new StringSerializer())
            .withBootstrapServers(bootstrap);
        CompletionStage<?> ended = Transactional.source(reading, Subscriptions.topics(source))
            .map(read -> ProducerMessage.single(
                new ProducerRecord<String, String>(target, 0, null, read.record().value()), read.partitionOffset()))
            .toMat(Transactional.sink(writing, name), Consumer::createDrainingControl)
            .run(system)
            .streamCompletion();
        ended.whenComplete((done, failure) -> {
            if (failure != null) {
                failure.printStackTrace();
            }
            Runtime.getRuntime().halt(1);
        });
    }
}
