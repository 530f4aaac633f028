"""Moves of replicas over an `AdminConnection` (KIP-455): list what is under way,
start it, cancel it.

In Kafka: `Admin.alterPartitionReassignments`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError, refusal
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

__all__ = ["Reassignment", "alter_reassignments", "list_reassignments"]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition whose replicas are being moved.

    ``replicas`` are all of now, with those being added and removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def list_reassignments(
    connection: AdminConnection, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The partitions, of all or of these, that are being moved; raises `KafkaError`."""
    request = ListPartitionReassignmentsRequest(timeout_ms=connection.request_timeout_ms)
    if partitions is not None:
        topics: dict[str, ListPartitionReassignmentsTopics] = {}
        for name, partition in partitions:
            entry = topics.setdefault(name, ListPartitionReassignmentsTopics(name=name))
            entry.partition_indexes.append(partition)
        request.topics = list(topics.values())
    response = connection.send_to_controller(
        request, ListPartitionReassignmentsResponse, lambda answer: [answer.error_code]
    )
    if response.error_code:
        raise refusal(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, item.partition_index): Reassignment(
            item.replicas, item.adding_replicas, item.removing_replicas
        )
        for topic in response.topics
        for item in topic.partitions
    }


def alter_reassignments(
    connection: AdminConnection, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, RefusedError]:
    """Start moving partitions to these replicas, or with None cancel their move.

    Returns those refused, with why. Raises `KafkaError` for what concerns the request as a whole.
    """
    topics: dict[str, ReassignableTopic] = {}
    for (name, partition), replicas in wanted.items():
        entry = topics.setdefault(name, ReassignableTopic(name=name))
        entry.partitions.append(
            ReassignablePartition(partition_index=partition, replicas=None if replicas is None else list(replicas))
        )
    response = connection.send_to_controller(
        AlterPartitionReassignmentsRequest(timeout_ms=connection.request_timeout_ms, topics=list(topics.values())),
        AlterPartitionReassignmentsResponse,
        lambda answer: [answer.error_code],
    )
    if response.error_code:
        raise refusal(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, item.partition_index): refusal(item.error_code, item.error_message)
        for topic in response.responses
        for item in topic.partitions
        if item.error_code
    }
