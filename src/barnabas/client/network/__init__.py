"""A connection to one broker: its socket, its requests in turn, and whether an
answer is one to the question.

In Kafka: `NetworkClient`, `Selector`; the package `org.apache.kafka.common.network`.
"""
