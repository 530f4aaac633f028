"""Properties of clients under the names of three generations, sorted and translated for librdkafka.

In Kafka: `ProducerConfig`, `ConsumerConfig`, `AdminClientConfig`.
"""
