"""The proxy's clients of the cluster and of the schema registry.

Kafka has `KafkaProducer`, `KafkaConsumer` and `KafkaAdminClient`; Confluent's are in
KafkaConsumerManager.
"""
