"""The topics that coordinators keep their state in, and which partition of them is
responsible for a key.

In Kafka: `Topic.GROUP_METADATA_TOPIC_NAME` and `TRANSACTION_STATE_TOPIC_NAME`,
`GroupMetadataManager.partitionFor` and `TransactionStateManager.partitionFor`.
"""

from functools import lru_cache

__all__ = ["INTERNAL_TOPICS", "OFFSETS_TOPIC", "TRANSACTIONS_TOPIC", "partition_of"]

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
