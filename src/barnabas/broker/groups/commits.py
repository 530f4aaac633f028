"""What an OffsetCommit or a TxnOffsetCommit asks for, who may ask for it, and its records.

An `OffsetCommit` says what is to be done, whichever reader read it from the request's bytes
(`barnabas.broker.apis.offset_commit`). Its preparation reads only the request and the metadata, so
other requests may run between its slices. What depends on the group is decided in one step
afterwards (`GroupCoordinator.commit_offsets`).

In Kafka: `GroupCoordinator.validateOffsetCommit`, and the first half of
`GroupMetadataManager.storeOffsets`.
"""

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.numbers import LARGEST_INT64
from barnabas.base.tasks import Task
from barnabas.base.tuples import new_tuple
from barnabas.broker.groups.group import Group, GroupState
from barnabas.broker.groups.offsets import NO_EXPIRATION, CommittedOffset
from barnabas.broker.groups.records import MOST_PLAIN_OFFSETS, add_offset_records, encode_plain_offsets
from barnabas.log.producer_state import VerificationGuard
from barnabas.wire.kafka.errors import ErrorCode

__all__ = [
    "CommitSender",
    "CommitTransaction",
    "OffsetCommit",
    "PartitionsOf",
    "TopicOffsets",
    "check_sender",
    "check_transactional_sender",
    "commit_error",
]

PartitionsOf = Callable[[str], Container[int]]
"""The partitions of a topic in the cluster's metadata; none for a topic that does not exist."""

_PARTITIONS_A_STEP = 256
_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
_OF_TOPICS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Errors that no error of the group replaces."""


class CommitSender(NamedTuple):
    """Who commits."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None


class CommitTransaction(NamedTuple):
    """The transaction in which offsets are committed."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None
    """The verification of its first batch in the partition of the group."""


def commit_error(error: ErrorCode) -> ErrorCode:
    """The error of a commit whose append, or verification, ended with one
    (`maybeConvertOffsetCommitError`)."""
    return _ERRORS.get(error, error)


def check_sender(group: Group | None, sender: CommitSender) -> ErrorCode:
    """Whether the sender may commit: a member of the generation, or any client while
    the group is empty."""
    generation_id = sender.generation_id_or_member_epoch
    if group is None:
        # Without group management any client may commit; an unknown generation is an old one.
        return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not sender.member_id and sender.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check_generation(group, sender)
    if not error and group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the generation but has no assignment in it; it commits
        # again after SyncGroup.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def check_transactional_sender(group: Group | None, sender: CommitSender) -> ErrorCode:
    """Whether the sender may commit in its transaction (KIP-447).

    One that says it is a member must be one of the generation, whatever state the group is in. One
    that says nothing, as clients before version 3 do, is fenced by its transactional id alone.
    """
    generation_id = sender.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.NONE if generation_id < 0 else ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and (
        group.state is GroupState.EMPTY or (not sender.member_id and sender.group_instance_id is None)
    ):
        return ErrorCode.NONE
    return _check_generation(group, sender)


def _check_generation(group: Group, sender: CommitSender) -> ErrorCode:
    error = group.check_member(sender.member_id, sender.group_instance_id)
    if not error and sender.generation_id_or_member_epoch != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


class TopicOffsets(NamedTuple):
    """The offsets of a topic's partitions, as columns."""

    name: str
    """Empty for a topic id that is not known."""
    topic_id: Uuid
    partitions: Sequence[int]
    offsets: Sequence[int]
    leader_epochs: Sequence[int]
    metadata: Sequence[str] | None
    """None if no offset has any."""


class OffsetCommit:
    """An OffsetCommit request, what it writes, and its outcome."""

    __slots__ = (
        "codes",
        "denied",
        "encoded",
        "partitions",
        "retention_ms",
        "sender",
        "topics",
        "transaction",
        "values",
    )

    def __init__(self, sender: CommitSender, topics: Sequence[TopicOffsets], retention_ms: int = -1) -> None:
        """``retention_ms`` is -1 for the broker's own."""
        self.sender = sender
        self.topics = topics
        self.retention_ms = retention_ms
        self.denied: Container[str] = ()
        """The names of the topics whose offsets the sender may not commit."""
        self.codes: list[ErrorCode] = []
        """The error of each partition of each topic."""
        self.partitions: list[TopicPartition] = []
        self.values: list[CommittedOffset] = []
        """What is written, as columns, if the group allows it."""
        self.encoded = bytearray()
        """The same as records of a batch."""
        self.transaction: CommitTransaction | None = None
        """The transaction that commits the offsets, once it is verified; None without one."""

    def refuse(self, error: ErrorCode) -> None:
        """Answer for all partitions that exist and may be committed with an error."""
        self.codes = [code if code in _OF_TOPICS else error for code in self.codes]

    def deny(self) -> None:
        """The sender may not commit for its group."""
        count = sum(len(topic.partitions) for topic in self.topics)
        self.codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * count

    def fail(self, error: ErrorCode) -> None:
        """Answer for all that should have been written with an error."""
        self.codes = [code or error for code in self.codes]

    def prepare(self, partitions_of: PartitionsOf, max_metadata_bytes: int, wall_ms: int) -> Task[None]:
        """Find out what is written, in the order of the request: what may be committed, exists and
        has no more metadata than it may."""
        kept_ms = self.retention_ms  # a client's number: the sum must fit the record's 64 bits
        expire_ms = NO_EXPIRATION if kept_ms == -1 else min(wall_ms + kept_ms, LARGEST_INT64)
        for topic in self.topics:
            yield None  # it may be named without partitions
            count = len(topic.partitions)
            if topic.name in self.denied:
                self.codes += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * count
                continue
            existing = partitions_of(topic.name)
            if (
                topic.metadata is None
                and expire_ms == NO_EXPIRATION
                and len(self.values) + count <= MOST_PLAIN_OFFSETS
                and all(map(existing.__contains__, topic.partitions))
            ):
                self._add_plain(topic, wall_ms)
                continue
            for first in range(0, count, _PARTITIONS_A_STEP):
                self._add(
                    topic,
                    range(first, min(first + _PARTITIONS_A_STEP, count)),
                    existing,
                    max_metadata_bytes,
                    wall_ms,
                    expire_ms,
                )
                yield None

    def _add_plain(self, topic: TopicOffsets, wall_ms: int) -> None:
        """Add what a commit of partitions writes that all exist, without metadata and
        expiry: as `_add`, by columns."""
        name, _, partitions, offsets, leader_epochs, _ = topic
        first = len(self.values)
        self.codes += [ErrorCode.NONE] * len(partitions)
        self.partitions += [new_tuple(TopicPartition, (name, index)) for index in partitions]
        self.values += [
            new_tuple(CommittedOffset, (offset, epoch, "", wall_ms, NO_EXPIRATION))
            for offset, epoch in zip(offsets, leader_epochs, strict=True)
        ]
        self.encoded += b"".join(
            encode_plain_offsets(self.sender.group_id, name, partitions, offsets, leader_epochs, wall_ms, first)
        )

    def _add(
        self,
        topic: TopicOffsets,
        numbers: range,
        existing: Container[int],
        max_metadata_bytes: int,
        wall_ms: int,
        expire_ms: int,
    ) -> None:
        """Add what a commit of some of a topic's partitions writes."""
        name, topic_id, partitions, offsets, leader_epochs, metadata = topic
        first = len(self.values)
        for number in numbers:
            index, text = partitions[number], "" if metadata is None else metadata[number]
            if index not in existing:
                is_unnamed = not name and topic_id != ZERO_UUID
                self.codes.append(ErrorCode.UNKNOWN_TOPIC_ID if is_unnamed else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif len(text) > max_metadata_bytes:
                self.codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                self.codes.append(ErrorCode.NONE)
                self.partitions.append(new_tuple(TopicPartition, (name, index)))
                self.values.append(
                    new_tuple(CommittedOffset, (offsets[number], leader_epochs[number], text, wall_ms, expire_ms))
                )
        add_offset_records(
            self.encoded, self.sender.group_id, name, self.partitions[first:], self.values[first:], first
        )
