"""From a frame to a handler and back, and the purgatory of requests that wait.

In Kafka: `RequestChannel`, `KafkaRequestHandler` and `DelayedOperationPurgatory`.
"""
