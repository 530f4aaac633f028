"""Log dirs, and moves of replicas.

In Kafka: `DescribeLogDirsResult`, `ListPartitionReassignmentsResult`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.log_dirs import LogDirContents
from barnabas.client.admin.reassignments import Reassignment
from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["EarlierStoragePart", "LogDirsPart", "ReassignmentsPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirsPart(EvidencePart):
    """The log dirs of each broker that answered, by its id."""

    dirs: Mapping[int, tuple[LogDirContents, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsPart(EvidencePart):
    """The partitions whose replicas are being moved."""

    moves: Mapping[TopicPartition, Reassignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierStoragePart(EvidencePart):
    """The first of two readings, ``before_ms`` before the one that the other parts hold."""

    before_ms: int
    dirs: Mapping[int, tuple[LogDirContents, ...]]
    moves: Mapping[TopicPartition, Reassignment]
