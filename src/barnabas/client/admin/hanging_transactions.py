"""Transactions that no coordinator will end: open in a partition, and not known, or not
there, to their coordinator.

They come from clients and brokers older than the verification of KIP-890, and from lost records of
``__transaction_state``. Consumers at read_committed wait for them until somebody aborts them.

In Kafka: `TransactionsCommand.FindHangingTransactionsCommand`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.active_producers import ActiveProducer, describe_producers_of
from barnabas.client.admin.topics import describe_topics, no_leader
from barnabas.client.admin.transactions import describe_transaction, list_transactions
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["HangingTransaction", "find_hanging", "partitions_to_be_marked"]

_AT_ONCE = 500


class HangingTransaction(NamedTuple):
    """An open transaction in one partition."""

    topic_partition: TopicPartition
    producer: ActiveProducer


def find_hanging(
    connection: AdminConnection,
    *,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    older_than_ms: int,
) -> list[HangingTransaction]:
    """Those whose last record is older than ``older_than_ms``, of all topics or one.

    ``broker_id`` searches the replicas of one broker, else the leaders are asked.
    """
    asked = _partitions(connection, topic, partition, broker_id)
    candidates = [
        HangingTransaction(topic_partition, producer)
        for asked_broker, partitions in sorted(asked.items())
        for some in _some(partitions)
        for topic_partition, producers in describe_producers_of(connection, asked_broker, some).items()
        for producer in producers
        if producer.transaction_start_offset is not None and producer.last_timestamp_ms < older_than_ms
    ]
    expected = partitions_to_be_marked(connection, {each.producer.producer_id for each in candidates})
    return sorted(
        (each for each in candidates if each.topic_partition not in expected.get(each.producer.producer_id, ())),
        key=lambda each: (each.topic_partition, each.producer.transaction_start_offset),
    )


def _some(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    return (partitions[first : first + _AT_ONCE] for first in range(0, len(partitions), _AT_ONCE))


def _partitions(
    connection: AdminConnection, topic: str | None, partition: int | None, broker_id: int | None
) -> dict[int, list[TopicPartition]]:
    """Which partitions to ask which broker for."""
    asked: dict[int, list[TopicPartition]] = defaultdict(list)
    is_found = partition is None
    for each in describe_topics(connection, None if topic is None else [topic]):
        for described in each.partitions:
            if partition not in (None, described.partition):
                continue
            is_found = True
            topic_partition = TopicPartition(each.name, described.partition)
            if broker_id is not None:
                if broker_id in described.replicas:
                    asked[broker_id].append(topic_partition)
            elif described.leader is None:
                raise no_leader(topic_partition, described.replicas)
            else:
                asked[described.leader].append(topic_partition)
    if not is_found:
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {topic}-{partition} does not exist")
    return asked


def partitions_to_be_marked(connection: AdminConnection, producer_ids: Iterable[int]) -> dict[int, set[TopicPartition]]:
    """The partitions in which the coordinators will still write markers, by producer id."""
    wanted = sorted(producer_ids)
    if not wanted:
        return {}
    expected: dict[int, set[TopicPartition]] = {}
    for listing in list_transactions(connection, producer_ids=wanted):
        try:
            found = describe_transaction(connection, listing.transactional_id)
        except RefusedError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # it expired meanwhile
        expected.setdefault(listing.producer_id, set()).update(found.partitions)
    return expected
