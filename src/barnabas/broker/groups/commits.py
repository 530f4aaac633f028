"""Prepares an OffsetCommit: its answers, records and their bytes, in slices; that of a usual one at once (`PlainCommit`).

Preparation reads only the request and the metadata, so other requests may run between its slices. What depends on the
group is decided in one step afterwards (`GroupCoordinator.commit_offsets`).

In Kafka: the first half of `GroupMetadataManager.storeOffsets`.
"""

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, Protocol

from barnabas.base.ids import TopicPartition
from barnabas.base.numbers import LARGEST_INT64
from barnabas.base.slices import Sliced
from barnabas.base.tuples import new_tuple
from barnabas.broker.groups.offsets import NO_EXPIRATION, CommittedOffset
from barnabas.broker.groups.records import add_offset_records, encode_plain_offsets
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["Commit", "CommitSender", "OffsetCommit", "PartitionsOf", "PlainCommit", "Sender", "prepare_commit"]

PartitionsOf = Callable[[str], Container[int]]
"""The partitions of a topic in the cluster's metadata; none for a topic that does not exist."""

_PARTITIONS_A_STEP = 256


class Sender(Protocol):
    """Who commits: an `OffsetCommitRequest`, or the part of it that says so."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id_or_member_epoch(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class CommitSender(NamedTuple):
    """See `Sender`."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None


class Commit(Protocol):
    """What the coordinator decides on."""

    @property
    def request(self) -> Sender: ...
    @property
    def response(self) -> object: ...
    @property
    def partitions(self) -> Sequence[TopicPartition]: ...
    @property
    def values(self) -> Sequence[CommittedOffset]:
        """What is written, as columns, if the group allows it."""
        ...

    @property
    def encoded(self) -> bytes | bytearray:
        """The same as records of a batch."""
        ...

    def refuse(self, error: ErrorCode) -> None:
        """Answer for all partitions that exist with an error."""
        ...

    def fail(self, error: ErrorCode) -> None:
        """Answer for all that should have been written with an error."""
        ...


class PlainCommit:
    """A commit for partitions that all exist, of offsets without metadata and expiry. It is its own response."""

    __slots__ = ("encoded", "error", "partitions", "request", "values")

    def __init__(self, request: Sender) -> None:
        self.request = request
        self.error = ErrorCode.NONE
        """The answer for each partition."""
        self.partitions: list[TopicPartition] = []
        self.values: list[CommittedOffset] = []
        self.encoded = b""

    @property
    def response(self) -> "PlainCommit":
        return self

    def add(
        self,
        topic: str,
        partitions: Sequence[int],
        offsets: Sequence[int],
        leader_epochs: Sequence[int],
        wall_ms: int,
    ) -> None:
        """Add offsets of a topic; see `encode_plain_offsets` for how many."""
        first = len(self.partitions)
        self.partitions += [new_tuple(TopicPartition, (topic, index)) for index in partitions]
        self.values += [
            new_tuple(CommittedOffset, (offset, epoch, "", wall_ms, NO_EXPIRATION))
            for offset, epoch in zip(offsets, leader_epochs, strict=True)
        ]
        self.encoded += b"".join(
            encode_plain_offsets(self.request.group_id, topic, partitions, offsets, leader_epochs, wall_ms, first)
        )

    def refuse(self, error: ErrorCode) -> None:
        self.error = error

    fail = refuse


class OffsetCommit:
    """An OffsetCommit request with all that follows from the request and the metadata alone."""

    __slots__ = ("accepted", "encoded", "known", "partitions", "request", "response", "values")

    def __init__(self, request: OffsetCommitRequest) -> None:
        self.request = request
        self.response = OffsetCommitResponse(topics=[])
        self.known: list[OffsetCommitResponsePartition] = []
        """The answers for partitions that exist."""
        self.accepted: list[OffsetCommitResponsePartition] = []
        """The answers for what is written if the group allows it."""
        self.partitions: list[TopicPartition] = []
        self.values: list[CommittedOffset] = []
        self.encoded = bytearray()

    def refuse(self, error: ErrorCode) -> None:
        for answer in self.known:
            answer.error_code = error

    def fail(self, error: ErrorCode) -> None:
        for answer in self.accepted:
            answer.error_code = error


def prepare_commit(
    request: OffsetCommitRequest, partitions_of: PartitionsOf, max_metadata_bytes: int, wall_ms: int
) -> Sliced[OffsetCommit]:
    """The answers and records of the partitions that exist, in the order of the request."""
    commit = OffsetCommit(request)
    kept_ms = request.retention_time_ms  # a client's number: the sum must fit the record's 64 bits
    expire_ms = NO_EXPIRATION if kept_ms == -1 else min(wall_ms + kept_ms, LARGEST_INT64)
    for topic in request.topics:
        yield None  # it may be named without partitions
        answers: list[OffsetCommitResponsePartition] = []
        commit.response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
        partitions = topic.partitions
        existing = partitions_of(topic.name)
        for first in range(0, len(partitions), _PARTITIONS_A_STEP):
            some = partitions[first : first + _PARTITIONS_A_STEP]
            answers += _prepare(commit, topic.name, some, existing, max_metadata_bytes, wall_ms, expire_ms)
            yield None
    return commit


def _prepare(
    commit: OffsetCommit,
    topic: str,
    partitions: list[OffsetCommitRequestPartition],
    existing: Container[int],
    max_metadata_bytes: int,
    wall_ms: int,
    expire_ms: int,
) -> list[OffsetCommitResponsePartition]:
    """Add what a commit of these partitions writes; returns the answers."""
    group_id = commit.request.group_id
    answers = []
    partitions_written, values = commit.partitions, commit.values
    first = len(values)
    for partition in partitions:
        index = partition.partition_index
        answer = OffsetCommitResponsePartition(partition_index=index)
        answers.append(answer)
        if index not in existing:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        commit.known.append(answer)
        metadata = partition.committed_metadata or ""
        if len(metadata) > max_metadata_bytes:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        commit.accepted.append(answer)
        value = new_tuple(
            CommittedOffset,
            (partition.committed_offset, partition.committed_leader_epoch, metadata, wall_ms, expire_ms),
        )
        partitions_written.append(new_tuple(TopicPartition, (topic, index)))
        values.append(value)
    add_offset_records(commit.encoded, group_id, topic, partitions_written[first:], values[first:], first)
    return answers
