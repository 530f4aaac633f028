"""The request that makes a topic of a simulated cluster.

In Kafka: `NewTopic` and `CreateTopicsRequest`.
"""

from collections.abc import Mapping

from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

__all__ = ["topic_creation"]

_TIMEOUT_MS = 2000


def topic_creation(name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> CreateTopicsRequest:
    """One topic, whose brokers the controller chooses."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
