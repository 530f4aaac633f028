"""How much of a log can be compacted, and whether it is due. `LogCleaner` chooses the dirtiest.

Kafka: LogCleanerManager.grabFilthiestCompactedLog, cleanableOffsets.

The first dirty offset is where the last compaction ended, at least the log start offset; it is kept
by log dir in the checkpoint ``cleaner-offset-checkpoint``. A log may be compacted up to the last
stable offset, the active segment, or the first segment with records younger than
``min.compaction.lag.ms``. A log is due when dirty bytes make up more than
``min.cleanable.dirty.ratio`` of the bytes looked at, or when its oldest dirty segment began longer
ago than ``max.compaction.lag.ms``; of the logs that are due the dirtiest comes first.
"""

from typing import NamedTuple

from barnabas.log.partition_log import PartitionLog

__all__ = ["Cleanable", "cleanable"]


class Cleanable(NamedTuple):
    """A log and its share that could be compacted now."""

    log: PartitionLog
    first_dirty_offset: int
    upto_offset: int
    """The base offset of the first segment that stays as it is."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Dirty bytes among all that were looked at."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether to compact now."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio)


def first_dirty_offset(log: PartitionLog) -> int:
    """Where the last compaction ended, or the log's start when that is not inside the log."""
    cleaned_to = log.bounds.cleaned_offset
    if cleaned_to is None or not log.log_start_offset <= cleaned_to <= log.log_end_offset:
        return log.log_start_offset
    return cleaned_to


def cleanable(log: PartitionLog, now_ms: int) -> Cleanable:
    """The part of a log that could be compacted.

    Raises `OSError` when a closed segment cannot be read."""
    first_dirty = first_dirty_offset(log)
    segments = log.segments
    first_index = log.segments.index_of(first_dirty)
    last_index = len(segments) - 1
    dirty = segments[first_index:last_index]
    if log.last_stable_offset < segments[last_index].base_offset:
        last_index = log.segments.index_of(log.last_stable_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for at in range(first_index, last_index):
            if segments[at].max_timestamp.timestamp_ms > now_ms - lag_ms:
                last_index = at
                break
    cleanable_segments = segments[first_index:last_index]
    return Cleanable(
        log,
        first_dirty,
        segments[last_index].base_offset,
        sum(segment.size for segment in segments[:last_index] if segment.base_offset < first_dirty),
        sum(segment.size for segment in cleanable_segments),
        _is_overdue(log, [segment.first_timestamp_ms() for segment in dirty], now_ms),
    )


def _is_overdue(log: PartitionLog, first_timestamps_ms: list[int], now_ms: int) -> bool:
    known = [timestamp_ms for timestamp_ms in first_timestamps_ms if timestamp_ms > 0]
    return min(known, default=now_ms) < now_ms - log.config.max_compaction_lag_ms
