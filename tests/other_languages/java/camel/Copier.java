// Apache Camel: a route copies a topic, and commits an offset when the record is written.
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.kafka.KafkaConstants;
import org.apache.camel.component.kafka.consumer.KafkaManualCommit;
import org.apache.camel.main.Main;

public class Copier {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], name = args[1], source = args[2], target = args[3];
        Main main = new Main();
        main.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                from("kafka:" + source + "?brokers=" + bootstrap + "&groupId=" + name + "&autoOffsetReset=earliest"
                        + "&autoCommitEnable=false&allowManualCommit=true&breakOnFirstError=true&maxPollRecords=20"
                        + "&sessionTimeoutMs=6000&heartbeatIntervalMs=1000")
                    .to("kafka:" + target + "?brokers=" + bootstrap)
                    .process(exchange -> exchange.getMessage()
                        .getHeader(KafkaConstants.MANUAL_COMMIT, KafkaManualCommit.class).commit());
            }
        });
        main.run();
    }
}
