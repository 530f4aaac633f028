"""What does not apply to a cluster of one broker, such as a developer's.

Each record has one copy there, and no command can change that. So rules about copies are not
applicable, and the report says so; they do not count as findings.

In Kafka: `offsets.topic.replication.factor=1` in the ``server.properties`` that it ships.
"""

from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.finding import NotApplicableError

__all__ = ["brokers_with_replicas", "require_brokers"]


def require_brokers(brokers: BrokersPart, least: int) -> None:
    """Raise `NotApplicableError` for a cluster with fewer registered brokers."""
    count = len(brokers.views)
    if count < least:
        raise NotApplicableError(
            "the cluster has one broker, so each record has one copy"
            if count == 1
            else f"the cluster has {count} brokers"
        )


def brokers_with_replicas(topics: TopicsPart) -> set[int]:
    """The brokers that should keep replicas, those that are away among them."""
    return {replica for _, part in topics.partitions() for replica in part.replicas}
