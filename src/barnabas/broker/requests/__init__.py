"""The path of a request from its frame to its handler and back, and the purgatory of
requests that wait.

In Kafka: `RequestChannel`, `KafkaRequestHandler` and `DelayedOperationPurgatory`.
"""
