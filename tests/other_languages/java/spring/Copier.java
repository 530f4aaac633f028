// Spring for Apache Kafka: a listener copies a topic, each batch in a transaction of a KafkaTransactionManager.
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;

public class Copier {
    static String bootstrap, name, target;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        name = args[1];
        target = args[3];
        System.setProperty("source", args[2]);
        try (var context = new AnnotationConfigApplicationContext(Beans.class)) {
            new CountDownLatch(1).await();
        }
    }

    public static class Listener {
        private final KafkaTemplate<String, String> template;

        Listener(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @Transactional
        @KafkaListener(id = "copier", topics = "${source}", idIsGroup = false)
        public void copy(List<String> values) {
            for (String value : values) {
                template.send(target, 0, null, value);
            }
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableKafka
    @EnableTransactionManagement(proxyTargetClass = true)
    public static class Beans {
        @Bean
        ProducerFactory<String, String> producers() {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("key.serializer", StringSerializer.class);
            settings.put("value.serializer", StringSerializer.class);
            var factory = new DefaultKafkaProducerFactory<String, String>(settings);
            factory.setTransactionIdPrefix(name + "-");
            return factory;
        }

        @Bean
        KafkaTransactionManager<String, String> transactionManager(ProducerFactory<String, String> producers) {
            return new KafkaTransactionManager<>(producers);
        }

        @Bean
        KafkaTemplate<String, String> template(ProducerFactory<String, String> producers) {
            return new KafkaTemplate<>(producers);
        }

        @Bean
        ConsumerFactory<String, String> consumers() {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", name);
            settings.put("key.deserializer", StringDeserializer.class);
            settings.put("value.deserializer", StringDeserializer.class);
            settings.put("isolation.level", "read_committed");
            settings.put("auto.offset.reset", "earliest");
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 1000);
            settings.put("max.poll.records", 20);
            return new DefaultKafkaConsumerFactory<>(settings);
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
                ConsumerFactory<String, String> consumers, KafkaTransactionManager<String, String> transactionManager) {
            var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
            factory.setConsumerFactory(consumers);
            factory.setBatchListener(true);
            factory.getContainerProperties().setKafkaAwareTransactionManager(transactionManager);
            return factory;
        }

        @Bean
        Listener listener(KafkaTemplate<String, String> template) {
            return new Listener(template);
        }
    }
}
