"""Cutting a log at its end, when a leader has other records. Kafka: UnifiedLog.truncateTo, truncateFullyAndStartAt."""

from barnabas.log.parts import LogParts
from barnabas.log.producer_replay import load_producers
from barnabas.log.segment.segments import Segments

__all__ = ["end_after_truncation", "truncate_fully", "truncate_to"]


def end_after_truncation(segments: Segments, log_end_offset: int, offset: int) -> int:
    """Where `truncate_to` lets the log end: a batch is cut off as a whole. Raises `OSError`."""
    if offset >= log_end_offset:
        return log_end_offset
    if offset < segments.start_offset:
        return offset
    located = segments[segments.index_of(offset)].locate(offset)
    return offset if located is None else min(offset, located.base_offset)


def truncate_to(parts: LogParts, offset: int) -> bool:
    """Drop the records from ``offset`` on. Returns whether there were any. Raises `OSError`."""
    segments, bounds = parts.segments, parts.bounds
    if offset >= bounds.log_end_offset:
        _cut(parts, bounds.log_end_offset)
        if parts.snapshots.is_outdated:
            _load_producers(parts)  # an earlier truncation found no file descriptor for it
        return False
    if offset < segments.start_offset:
        truncate_fully(parts, offset)
        return True
    at = segments.index_of(offset)
    # Newest first: a crash in between leaves a log without gaps.
    while len(segments) > at + 1:
        parts.deletions.remove_now(segments.active)
        segments.drop_last()
    located = segments.active.locate(offset)
    end = offset
    if located is not None:
        # A batch is cut off as a whole; what is asked for lies at its start, or inside a batch of the leader's too.
        end = min(offset, located.base_offset)
        segments.active.truncate(located.position, located.base_offset)
    parts.snapshots.outdate()
    _cut(parts, end)
    _load_producers(parts)
    return True


def _load_producers(parts: LogParts) -> None:
    bounds = parts.bounds
    log_range = (bounds.log_start_offset, bounds.log_end_offset)
    load_producers(parts.folder, parts.producers, parts.snapshots, parts.segments, log_range)
    parts.snapshots.up_to_date()
    parts.producers.high_watermark_moved(bounds.high_watermark)
    parts.update_stable()


def truncate_fully(parts: LogParts, offset: int) -> None:
    """Drop all records; the log begins and ends at ``offset``. Raises `OSError`."""
    for segment in reversed(parts.segments[:]):
        parts.deletions.remove_now(segment)
    for snapshot in parts.snapshots.offsets():
        parts.snapshots.remove(snapshot)
    parts.segments.restart(offset)
    parts.bounds.restart(offset)
    parts.durability.cut(offset)
    parts.epochs.clear()
    parts.producers.reset()
    parts.snapshots.loaded(offset)
    parts.snapshots.up_to_date()
    parts.update_stable()


def _cut(parts: LogParts, offset: int) -> None:
    parts.bounds.cut(offset)
    parts.durability.cut(offset)
    parts.epochs.truncate_from_end(offset)
    parts.update_stable()
