"""Static and dynamic configuration of brokers and topics (Kafka's `KafkaConfig` and `DynamicBrokerConfig`)."""
