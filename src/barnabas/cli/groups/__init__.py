"""The tools for consumer groups.

In Kafka: `ConsumerGroupCommand`.
"""
