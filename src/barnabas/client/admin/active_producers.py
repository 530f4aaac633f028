"""The producers that a partition's leader remembers, over an `AdminConnection` (KIP-664).

In Kafka: `Admin.describeProducers`.
"""

from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)

__all__ = ["ActiveProducer", "describe_producers"]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent or transactional producer; ``transaction_start_offset`` is None outside a transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


def describe_producers(connection: AdminConnection, topic_partition: TopicPartition) -> list[ActiveProducer]:
    """The producers of a partition; raises `UnknownTopicError` and others."""
    (topic,) = describe_topics(connection, [topic_partition.topic])
    leader = next((item.leader for item in topic.partitions if item.partition == topic_partition.partition), None)
    if leader is None:
        raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic_partition} has no leader")
    wanted = TopicRequest(name=topic_partition.topic, partition_indexes=[topic_partition.partition])
    response = connection.send(DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse, leader)
    found = response.topics[0].partitions[0]
    if found.error_code:
        raise refusal(found.error_code, found.error_message)
    return [
        ActiveProducer(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
        )
        for state in found.active_producers
    ]
