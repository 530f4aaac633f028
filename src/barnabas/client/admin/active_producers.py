"""The producers that a partition's leader remembers, over an `AdminConnection` (KIP-664).

In Kafka: `Admin.describeProducers`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.topics import describe_topics, no_leader
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.cluster.each_broker import raise_first
from barnabas.client.errors import ClientError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)

__all__ = ["ActiveProducer", "describe_producers", "describe_producers_of", "leader_of", "producers_in_part"]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent or transactional producer.

    ``transaction_start_offset`` is None outside a transaction. ``coordinator_epoch`` is that of the
    last marker, -1 before the first one.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None
    coordinator_epoch: int = -1


def describe_producers(connection: AdminConnection, topic_partition: TopicPartition) -> list[ActiveProducer]:
    """The producers of a partition; raises `UnknownTopicError` and others."""
    leader = leader_of(connection, topic_partition)
    return describe_producers_of(connection, leader, [topic_partition])[topic_partition]


def leader_of(connection: AdminConnection, topic_partition: TopicPartition) -> int:
    """The broker that leads a partition; raises `UnknownTopicError`, or LEADER_NOT_AVAILABLE."""
    (topic,) = describe_topics(connection, [topic_partition.topic])
    for partition in topic.partitions:
        if partition.partition == topic_partition.partition:
            if partition.leader is None:
                raise no_leader(topic_partition, partition.replicas)
            return partition.leader
    raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {topic_partition} does not exist")


def describe_producers_of(
    connection: AdminConnection, broker_id: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """The producers of partitions that one broker has a replica of; raises the first error."""
    return raise_first(producers_in_part(connection, broker_id, partitions))


def producers_in_part(
    connection: AdminConnection, broker_id: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
    """The same, with the refusal in place of what may not be read."""
    topics: dict[str, TopicRequest] = {}
    for name, index in partitions:
        topics.setdefault(name, TopicRequest(name=name)).partition_indexes.append(index)
    request = DescribeProducersRequest(topics=list(topics.values()))
    response = connection.send(request, DescribeProducersResponse, broker_id)
    return {
        TopicPartition(topic.name, partition.partition_index): _producers(topic.name, partition)
        for topic in response.topics
        for partition in topic.partitions
    }


def _producers(topic: str, found: PartitionResponse) -> list[ActiveProducer] | ClientError:
    if found.error_code:
        return refusal(found.error_code, found.error_message, about=f"partition {topic}-{found.partition_index}")
    return [
        ActiveProducer(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
            state.coordinator_epoch,
        )
        for state in found.active_producers
    ]
