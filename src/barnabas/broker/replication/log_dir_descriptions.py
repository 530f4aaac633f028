"""Describes the log dirs of a broker (Kafka's `ReplicaManager.describeLogDirs`, KIP-113)."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.log.dirs.log_dirs import LogDirs

__all__ = ["LogDirDescription", "ReplicaDescription", "describe_log_dirs"]

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica in a log dir."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """How far the log's end is behind the high watermark; a future log's behind the end of the
    current one. -1 where that is not known."""
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log dir with its replicas, or offline."""

    path: str
    is_offline: bool
    replicas: list[ReplicaDescription] = field(default_factory=list)
    total_bytes: int = _UNKNOWN
    usable_bytes: int = _UNKNOWN


def describe_log_dirs(
    replicas: ReplicaManager, log_dirs: LogDirs, files: Files, wanted: AbstractSet[TopicPartition] | None
) -> Task[list[LogDirDescription]]:
    """All log dirs with the wanted replicas, or with all (None).

    One whose disk cannot be asked goes offline."""
    found = []
    for described in (yield from log_dirs.describe()):
        is_offline = described.error is not None
        total_bytes = usable_bytes = _UNKNOWN
        if not is_offline:
            try:
                total_bytes, usable_bytes = files.disk_space(described.path)
            except OSError as error:
                log_dirs.disk_failed(described.path, error, f"asking for the space in {described.path}")
                is_offline = True
        if is_offline:
            found.append(LogDirDescription(described.path, is_offline=True))
            continue
        entries = []
        for topic_partition, size_bytes, is_future in described.partitions:
            yield None
            if wanted is None or topic_partition in wanted:
                lag = _lag(replicas, log_dirs, topic_partition, is_future=is_future)
                entries.append(ReplicaDescription(topic_partition, size_bytes, lag, is_future))
        found.append(LogDirDescription(described.path, False, entries, total_bytes, usable_bytes))
    return found


def _lag(replicas: ReplicaManager, log_dirs: LogDirs, topic_partition: TopicPartition, *, is_future: bool) -> int:
    partition, future = replicas.get(topic_partition), log_dirs.moves.future(topic_partition)
    if partition is None or partition.offline:
        return _UNKNOWN
    if is_future:
        return _UNKNOWN if future is None else partition.log.log_end_offset - future.log_end_offset
    return max(partition.log.high_watermark - partition.log.log_end_offset, 0)
