"""Offsets of partitions over an `AdminConnection`: found by time, and deleted before.

In Kafka: `Admin.listOffsets`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.topics import no_leader
from barnabas.client.cluster.admin_connection import ROUTING_ERRORS, AdminConnection
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import ClientError, ConnectError, RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.kafka.messages.metadata import MetadataResponse
from barnabas.wire.kafka.offset_specs import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "FoundOffset",
    "ask_leaders",
    "bounds_in_part",
    "delete_records",
    "list_offsets",
    "offsets_in_part",
    "offsets_of_leader",
]

_NO_REPLICA = -1
_MOST_PARTITIONS = 20_000
"""In one request: our brokers take 100,000 elements in all, and other clients wait while
one request is answered."""
_SECOND_LOOK_S = 0.5


class FoundOffset(NamedTuple):
    """An offset and its record's timestamp; both -1 where no record is as young as asked."""

    offset: int
    timestamp_ms: int


def list_offsets(
    connection: AdminConnection, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, FoundOffset | RefusedError]:
    """For each partition the first offset at or after a time in ms, or one of the constants.

    All leaders are asked at once. Raises `ConnectError` for a leader that does not answer.
    Partitions whose leader moves are asked again; what stays wrong is a `RefusedError` in
    place of the offset.
    """
    ask = partial(_ask_offsets, wanted=wanted, read_committed=read_committed)
    found: dict[TopicPartition, FoundOffset | RefusedError] = {}
    for topic_partition, outcome in ask_leaders(connection, wanted, ask).items():
        if isinstance(outcome, ClientError) and not isinstance(outcome, RefusedError):
            raise outcome
        found[topic_partition] = outcome
    return found


def offsets_in_part(
    connection: AdminConnection,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    is_last: bool = False,
    known: MetadataResponse | None = None,
) -> dict[TopicPartition, FoundOffset | ClientError]:
    """The same for a reader that does not wait: leaders are asked again for a moment
    only, as after an election.

    What cannot be had is a `ClientError` in place of the offset: of a partition without a leader,
    or of a leader that does not answer. ``is_last`` as for `ask_each`. ``known`` is metadata that
    has just come, and need not be asked for.
    """
    ask = partial(_ask_offsets, wanted=wanted, read_committed=read_committed)
    return ask_leaders(connection, wanted, ask, in_part=True, is_last=is_last, known=known)


def bounds_in_part(
    connection: AdminConnection, partitions: Iterable[TopicPartition], *, is_last: bool = False
) -> dict[TopicPartition, tuple[int, int] | ClientError]:
    """The first offset and the end of each partition, for such a reader."""

    def ask(asking: AdminConnection, leader: int, some: list[TopicPartition]) -> Iterator[_Outcome[tuple[int, int]]]:
        firsts, ends = (
            dict(_ask_offsets(asking, leader, some, wanted=dict.fromkeys(some, spec), read_committed=False))
            for spec in (EARLIEST, LATEST)
        )
        for topic_partition, first in firsts.items():
            end = ends[topic_partition]
            if isinstance(first, ClientError):
                yield topic_partition, first
            else:
                yield topic_partition, end if isinstance(end, ClientError) else (first.offset, end.offset)

    return ask_leaders(connection, partitions, ask, in_part=True, is_last=is_last)


def offsets_of_leader(
    connection: AdminConnection, leader: int, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FoundOffset | ClientError]:
    """The same of partitions that one broker leads, as the caller knows; they are not asked again
    if another one leads them by now."""
    return dict(_ask_offsets(connection, leader, list(wanted), wanted=wanted, read_committed=False))


def _ask_offsets(
    connection: AdminConnection,
    leader: int,
    partitions: list[TopicPartition],
    *,
    wanted: Mapping[TopicPartition, int],
    read_committed: bool,
) -> "Iterator[_Outcome[FoundOffset]]":
    """What a leader answers for its partitions; each request names as many as it may."""
    for start in range(0, len(partitions), _MOST_PARTITIONS):
        some = {each: wanted[each] for each in partitions[start : start + _MOST_PARTITIONS]}
        response = connection.send(_request(some, read_committed=read_committed), ListOffsetsResponse, leader)
        for topic in response.topics:
            for item in topic.partitions:
                yield (
                    TopicPartition(topic.name, item.partition_index),
                    refusal(item.error_code, about=f"topic {topic.name}")
                    if item.error_code
                    else FoundOffset(item.offset, item.timestamp),
                )


def delete_records(
    connection: AdminConnection, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | ClientError]:
    """Let each partition begin at its offset, or with -1 at its high watermark (KIP-107).

    Returns the low watermark of each partition, with which all its live replicas now begin, or a
    `RefusedError`. With a deadline it may also be a `ConnectError`, for a leader that does not
    answer: the records may be deleted or not.
    """
    from barnabas.wire.kafka.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    def ask(asking: AdminConnection, leader: int, partitions: list[TopicPartition]) -> Iterator[_Outcome[int]]:
        topics: dict[str, DeleteRecordsTopic] = {}
        for topic_partition in partitions:
            entry = topics.setdefault(topic_partition.topic, DeleteRecordsTopic(name=topic_partition.topic))
            entry.partitions.append(
                DeleteRecordsPartition(partition_index=topic_partition.partition, offset=wanted[topic_partition])
            )
        request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=connection.request_timeout_ms)
        response = asking.send(request, DeleteRecordsResponse, leader)
        for topic in response.topics:
            for item in topic.partitions:
                yield (
                    TopicPartition(topic.name, item.partition_index),
                    refusal(item.error_code, about=f"topic {topic.name}") if item.error_code else item.low_watermark,
                )

    return ask_leaders(connection, wanted, ask, changes=True)


Answer = TypeVar("Answer")
_Outcome = tuple[TopicPartition, Answer | ClientError]


def ask_leaders(
    connection: AdminConnection,
    wanted: Iterable[TopicPartition],
    ask: Callable[[AdminConnection, int, list[TopicPartition]], Iterator[_Outcome[Answer]]],
    *,
    changes: bool = False,
    in_part: bool = False,
    is_last: bool = False,
    known: MetadataResponse | None = None,
) -> dict[TopicPartition, Answer | ClientError]:
    """What ``ask(connection, leader, partitions)`` yields, for all leaders; where a
    leader is moving, asked again.

    With a deadline a leader that does not answer is an outcome, and asked once. With ``in_part``
    every leader's error is an outcome, and what may pass is waited for only a moment. ``known`` is
    the metadata of the first round.
    """
    asked = list(wanted)
    found: dict[TopicPartition, Answer | ClientError] = {}
    left = dict.fromkeys(asked)
    metadata_at_hand = [known] if known is not None else []

    def attempt() -> MetadataResponse:
        """One round over all leaders of what is left."""
        topics = sorted({topic_partition.topic for topic_partition in left})
        metadata = metadata_at_hand.pop() if metadata_at_hand else connection.metadata(topics)
        leaders, homeless = _by_leader(metadata, left)
        found.update(homeless)
        outcomes = ask_each(
            connection, leaders, lambda asking, leader: list(ask(asking, leader, leaders[leader])), is_last=is_last
        )
        for leader, answers in outcomes.items():
            if isinstance(answers, ClientError):
                is_outcome = in_part or (connection.deadline is not None and isinstance(answers, ConnectError))
                if not is_outcome:
                    raise answers
                answers = [(partition, answers) for partition in leaders[leader]]
            for topic_partition, answer in answers:
                found[topic_partition] = answer
                if not (isinstance(answer, RefusedError) and answer.code in ROUTING_ERRORS):
                    left.pop(topic_partition, None)
        for topic_partition in left:
            error = found.get(topic_partition)
            if isinstance(error, RefusedError) and error.code in ROUTING_ERRORS:
                raise error
        return metadata

    try:
        connection.retry(attempt, lambda _: (), changes=changes, second_look_s=_SECOND_LOOK_S if in_part else None)
    except KafkaError as error:
        if error.code not in ROUTING_ERRORS:
            raise
    return {topic_partition: found[topic_partition] for topic_partition in asked}


def _request(wanted: Mapping[TopicPartition, int], *, read_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), timestamp in wanted.items():
        entry = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        entry.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=_NO_REPLICA, isolation_level=int(read_committed), topics=list(topics.values()), timeout_ms=30_000
    )


def _by_leader(
    metadata: MetadataResponse, wanted: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, RefusedError]]:
    """The partitions by their leaders, and the errors of those that have none or are not there."""
    known = {
        TopicPartition(topic.name or "", item.partition_index): item
        for topic in metadata.topics
        for item in topic.partitions
    }
    refused = {topic.name: topic.error_code for topic in metadata.topics if topic.error_code}
    groups: dict[int, list[TopicPartition]] = {}
    homeless: dict[TopicPartition, RefusedError] = {}
    for topic_partition in wanted:
        item = known.get(topic_partition)
        if item is None and refused.get(topic_partition.topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            homeless[topic_partition] = refusal(refused[topic_partition.topic], about=f"topic {topic_partition.topic}")
        elif item is None:
            homeless[topic_partition] = refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {topic_partition} does not exist"
            )
        elif item.leader_id < 0:
            homeless[topic_partition] = no_leader(topic_partition, item.replica_nodes)
        else:
            groups.setdefault(item.leader_id, []).append(topic_partition)
    return groups, homeless
