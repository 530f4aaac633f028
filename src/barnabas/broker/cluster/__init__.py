"""What brokers share: the znodes (Kafka's `KafkaZkClient`) and the connections
between them (`NetworkClient`)."""
