"""The topic that keeps groups and their offsets. Kafka: Topic.GROUP_METADATA_TOPIC_NAME.

A group's partition of it must be the same on all brokers, so its number of partitions never
changes. A broker reads it from the znode before it serves groups: the first metadata that it
receives may contain only some of the partitions.
"""

from barnabas.broker.cluster.steps import Read, Steps, Znode
from barnabas.broker.cluster.znodes import decode_topic, topic_path
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC

__all__ = ["count_offsets_partitions"]


def count_offsets_partitions() -> Steps[int]:
    """How many partitions the topic has (`KafkaZkClient.getTopicPartitionCount`).

    0 when there is none yet."""
    znodes: list[Znode | None] = yield Read([topic_path(OFFSETS_TOPIC)])
    znode = znodes[0]
    return 0 if znode is None else len(decode_topic(OFFSETS_TOPIC, znode.data).partitions)
