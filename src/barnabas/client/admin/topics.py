"""Topics over an `AdminConnection`: list, describe, create, delete, add partitions.

Errors are `KafkaError`.

In Kafka: `Admin.createTopics`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.metadata import MetadataResponse

__all__ = [
    "EligibleLeaders",
    "PartitionDescription",
    "TopicDescription",
    "create_partitions",
    "create_topic",
    "delete_topics",
    "describe_topics",
    "described_topics",
    "eligible_leaders",
    "no_leader",
]

_DELETE_STATES_FROM = 6  # the version of DeleteTopics from which topics may be named by id


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition's replicas, the preferred leader first.

    ``leader`` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions, by number."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[PartitionDescription]


class EligibleLeaders(NamedTuple):
    """Replicas outside of the ISR that may lead without loss, and those that could
    last (KIP-966)."""

    elr: list[int]
    last_known_elr: list[int]


def describe_topics(connection: AdminConnection, names: Iterable[str] | None = None) -> list[TopicDescription]:
    """All topics, or those named, by name.

    Raises UNKNOWN_TOPIC_OR_PARTITION for one that is not there."""
    metadata = connection.metadata(names)
    for topic in metadata.topics:
        name = topic.name or ""
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise refusal(topic.error_code, f"topic {name} does not exist{_hint(connection, name)}")
            raise refusal(topic.error_code, about=f"topic {name}")
    return described_topics(metadata)


def described_topics(metadata: MetadataResponse) -> list[TopicDescription]:
    """The topics in an answer to Metadata, by name; those with an error have what is known of
    them."""
    found = []
    for topic in metadata.topics:
        name = topic.name or ""
        partitions = [
            PartitionDescription(
                item.partition_index,
                item.leader_id if item.leader_id >= 0 else None,
                item.leader_epoch,
                item.replica_nodes,
                item.isr_nodes,
                item.offline_replicas,
            )
            for item in sorted(topic.partitions, key=lambda item: item.partition_index)
        ]
        found.append(TopicDescription(name, Uuid(bytes(topic.topic_id)), topic.is_internal, partitions))
    return sorted(found, key=lambda topic: topic.name)


def no_leader(topic_partition: TopicPartition, replicas: Sequence[int]) -> RefusedError:
    """The error of a partition that has no leader.

    It names the brokers of which one must come back."""
    brokers = f"broker{'' if len(replicas) == 1 else 's'} {', '.join(map(str, replicas)) or 'unknown'}"
    return refusal(
        ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic_partition} has no leader (its replicas: {brokers})"
    )


def _hint(connection: AdminConnection, name: str) -> str:
    try:
        return did_you_mean(name, [topic.name or "" for topic in connection.metadata().topics])
    except ClientError:
        return ""


def create_topic(
    connection: AdminConnection,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignment: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Make a topic, or only see whether it could be made; -1 takes the cluster's default,
    ``assignment`` lists each partition's replicas instead."""
    from barnabas.wire.kafka.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(assignment)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=connection.request_timeout_ms, validate_only=validate_only)
    response = connection.send_to_controller(
        request, CreateTopicsResponse, lambda answer: [result.error_code for result in answer.topics]
    )
    for result in response.topics:
        if result.error_code:
            raise refusal(result.error_code, result.error_message, about=f"topic {result.name}")


def delete_topics(connection: AdminConnection, names: Sequence[str]) -> None:
    """Delete topics; raises the first refusal after all were tried."""
    from barnabas.wire.kafka.messages.delete_topics import (
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )

    request = DeleteTopicsRequest(timeout_ms=connection.request_timeout_ms)
    if connection.negotiated(DeleteTopicsRequest) >= _DELETE_STATES_FROM:
        request.topics = [DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = list(names)
    response = connection.send_to_controller(
        request, DeleteTopicsResponse, lambda answer: [result.error_code for result in answer.responses]
    )
    for result in response.responses:
        if result.error_code:
            raise refusal(
                result.error_code, result.error_message or f"{result.name}: {ErrorCode.of(result.error_code).message}"
            )


def create_partitions(
    connection: AdminConnection,
    counts: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> None:
    """Raise topics to these numbers of partitions.

    ``assignments`` lists the new partitions' replicas."""
    from barnabas.wire.kafka.messages.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    def new_replicas(name: str) -> list[CreatePartitionsAssignment] | None:
        if assignments is None:
            return None
        return [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments[name]]

    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=new_replicas(name))
            for name, count in counts.items()
        ],
        timeout_ms=connection.request_timeout_ms,
    )
    response = connection.send_to_controller(
        request, CreatePartitionsResponse, lambda answer: [result.error_code for result in answer.results]
    )
    for result in response.results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message, about=f"topic {result.name}")


def eligible_leaders(
    connection: AdminConnection, names: Sequence[str], limit: int = 2000
) -> dict[TopicPartition, EligibleLeaders]:
    """The eligible leaders of partitions outside of their ISR.

    Empty where brokers do not keep them (ZooKeeper mode). ``limit`` is how many partitions
    one response holds at most.
    """
    from barnabas.wire.kafka.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestCursor,
        DescribeTopicPartitionsResponse,
        TopicRequest,
    )

    found: dict[TopicPartition, EligibleLeaders] = {}
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in sorted(names)], response_partition_limit=limit
    )
    while names:
        try:
            response = connection.send(request, DescribeTopicPartitionsResponse)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return {}
            raise
        for topic in response.topics:
            for item in topic.partitions:
                found[TopicPartition(topic.name or "", item.partition_index)] = EligibleLeaders(
                    item.eligible_leader_replicas or [], item.last_known_elr or []
                )
        cursor = response.next_cursor
        if cursor is None:
            break
        # The answer was cut: the next begins at its cursor and names the topics from there on.
        request.cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=cursor.topic_name, partition_index=cursor.partition_index
        )
        request.topics = [topic for topic in request.topics if topic.name >= cursor.topic_name]
    return found
