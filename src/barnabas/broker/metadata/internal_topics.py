"""The topics that coordinators keep their state in, and which partition of them is
responsible for a key.

In Kafka: `Topic.GROUP_METADATA_TOPIC_NAME` and `TRANSACTION_STATE_TOPIC_NAME`,
`GroupMetadataManager.partitionFor` and `TransactionStateManager.partitionFor`.

A key's partition must be the same on all brokers, so the number of partitions never changes. A
broker reads it from the znode before it coordinates: the first metadata that it receives may
contain only some of the partitions.
"""

from functools import lru_cache

from barnabas.broker.cluster.steps import Read, Steps, Znode
from barnabas.broker.cluster.znodes import decode_topic, topic_path

__all__ = ["INTERNAL_TOPICS", "OFFSETS_TOPIC", "TRANSACTIONS_TOPIC", "count_stored_partitions", "partition_of"]

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


@lru_cache(maxsize=4096)
def partition_of(key: str, partitions: int) -> int:
    """The partition with the records of a group id or a transactional id: Java's
    hash of its UTF-16 units."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def count_stored_partitions(topic: str) -> Steps[int]:
    """How many partitions a topic has (`KafkaZkClient.getTopicPartitionCount`).

    0 when there is none yet."""
    znodes: list[Znode | None] = yield Read([topic_path(topic)])
    znode = znodes[0]
    return 0 if znode is None else len(decode_topic(topic, znode.data).partitions)
