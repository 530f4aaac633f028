// Flink in one process: copies a topic with DeliveryGuarantee.EXACTLY_ONCE, a transaction for each checkpoint.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copier {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], name = args[1], source = args[2], target = args[3];
        Path directory = Path.of(args[4]);
        Files.createDirectories(directory);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "500 ms");
        configuration.setString("execution.checkpointing.dir", directory.toUri().toString());
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "100");
        configuration.setString("restart-strategy.fixed-delay.delay", "1 s");
        // The last checkpoint that an earlier run has finished.
        try (var files = Files.walk(directory)) {
            files.filter(file -> file.endsWith("_metadata"))
                    .map(Path::getParent)
                    .max(Comparator.comparingLong(folder -> folder.toFile().lastModified()))
                    .ifPresent(last -> configuration.setString("execution.state-recovery.path", last.toUri().toString()));
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        KafkaSource<String> numbers = KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(source)
                .setGroupId(name)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("isolation.level", "read_committed")
                .setProperty("partition.discovery.interval.ms", "-1")
                .build();
        KafkaSink<String> copies = KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                        .setTopic(target)
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(name)
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(System.getProperty("naming")))
                .setProperty("transaction.timeout.ms", "60000")
                .build();
        environment.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers").uid("numbers").sinkTo(copies).uid("copies");
        environment.execute(name);
    }
}
