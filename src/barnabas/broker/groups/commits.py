"""Prepares an OffsetCommit: its answers, records and their bytes, in slices.

Preparation reads only the request and the metadata, so other requests may run between its slices. What depends on the
group is decided in one step afterwards (`GroupCoordinator.commit_offsets`).

In Kafka: the first half of `GroupMetadataManager.storeOffsets`.
"""

from collections.abc import Callable, Container

from barnabas.base.ids import TopicPartition
from barnabas.base.slices import Sliced
from barnabas.base.tuples import new_tuple
from barnabas.broker.groups.offsets import CommittedOffset
from barnabas.broker.groups.records import OffsetRecord, add_offset_records
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["OffsetCommit", "PartitionsOf", "prepare_commit"]

PartitionsOf = Callable[[str], Container[int]]
"""The partitions of a topic in the cluster's metadata; none for a topic that does not exist."""

_PARTITIONS_A_STEP = 256


class OffsetCommit:
    """An OffsetCommit request with all that follows from the request and the metadata alone."""

    __slots__ = ("accepted", "encoded", "known", "partitions", "records", "request", "response", "values")

    def __init__(self, request: OffsetCommitRequest) -> None:
        self.request = request
        self.response = OffsetCommitResponse(topics=[])
        self.known: list[OffsetCommitResponsePartition] = []
        """The answers for partitions that exist."""
        self.accepted: list[OffsetCommitResponsePartition] = []
        """The answers for what is written if the group allows it."""
        self.records: list[OffsetRecord] = []
        self.partitions: list[TopicPartition] = []
        self.values: list[CommittedOffset] = []
        """The records as columns."""
        self.encoded = bytearray()
        """The records as a batch has them."""


def prepare_commit(
    request: OffsetCommitRequest, partitions_of: PartitionsOf, max_metadata_bytes: int, wall_ms: int
) -> Sliced[OffsetCommit]:
    """The answers and records of the partitions that exist, in the order of the request."""
    commit = OffsetCommit(request)
    expire_ms = -1 if request.retention_time_ms == -1 else wall_ms + request.retention_time_ms
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
    records, partitions_written, values = commit.records, commit.partitions, commit.values
    first = len(records)
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
        key = new_tuple(TopicPartition, (topic, index))
        partitions_written.append(key)
        values.append(value)
        records.append(new_tuple(OffsetRecord, (group_id, key, value)))
    add_offset_records(commit.encoded, group_id, topic, records[first:], first)
    return answers
