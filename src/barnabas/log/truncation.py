"""Cutting a log at its end, when a leader has other records.

Kafka: UnifiedLog.truncateTo, truncateFullyAndStartAt."""

import logging

from barnabas.log.components import LogComponents
from barnabas.log.producer_replay import load_producers
from barnabas.log.segment.segments import Segments
from barnabas.log.set_aside import set_aside

__all__ = ["end_after_truncation", "reload_producers", "set_aside_from", "truncate_fully", "truncate_to"]

logger = logging.getLogger(__name__)


def end_after_truncation(segments: Segments, log_end_offset: int, offset: int) -> int:
    """Where `truncate_to` lets the log end: a batch is cut off as a whole. Raises `OSError`."""
    if offset >= log_end_offset:
        return log_end_offset
    if offset < segments.start_offset:
        return offset
    located = segments[segments.index_of(offset)].locate(offset)
    return offset if located is None else min(offset, located.base_offset)


def truncate_to(components: LogComponents, offset: int) -> bool:
    """Drop the records from ``offset`` on. Returns whether there were any. Raises `OSError`."""
    segments, bounds = components.segments, components.bounds
    if offset >= bounds.log_end_offset:
        _cut(components, bounds.log_end_offset)
        if components.snapshots.is_outdated:
            reload_producers(components)  # an earlier truncation had no file descriptor for this
        return False
    if offset < segments.start_offset:
        truncate_fully(components, offset)
        return True
    at = segments.index_of(offset)
    # Newest first: a crash in between leaves a log without gaps.
    while len(segments) > at + 1:
        components.deletions.remove_now(segments.active)
        segments.drop_last()
    located = segments.active.locate(offset)
    end = offset
    if located is not None:
        # A batch is cut off as a whole; what is asked for lies at its start, or inside a
        # batch of the leader's too.
        end = min(offset, located.base_offset)
        segments.active.truncate(located.position, located.base_offset)
    components.snapshots.outdate()
    _cut(components, end)
    reload_producers(components)
    return True


def set_aside_from(components: LogComponents, offset: int) -> bool:
    """Like `truncate_to`, at an offset where a segment begins or below the first.

    The files from there on keep their bytes under other names. Raises `OSError`.
    """
    segments, folder = components.segments, components.folder
    if offset >= components.bounds.log_end_offset:
        return False
    # Newest first: a crash in between leaves a log without gaps behind the offset.
    for segment in reversed(segments[:]):
        if segment.base_offset >= offset and segment.size:
            segment.forget()
            logger.error("%s is set aside as %s", segment.path, set_aside(folder.files, segment.path))
    if offset <= segments.start_offset:
        truncate_fully(components, offset)
        return True
    while segments.active.base_offset >= offset:
        components.deletions.remove_now(segments.active)
        segments.drop_last()
    components.snapshots.outdate()
    _cut(components, offset)
    reload_producers(components)
    return True


def reload_producers(components: LogComponents) -> None:
    """Bring the producer state to the end of a truncated log. Raises `OSError`."""
    bounds = components.bounds
    load_producers(
        components.folder, components.producers, components.snapshots, components.segments, bounds.log_end_offset
    )
    components.snapshots.up_to_date()
    components.producers.high_watermark_moved(bounds.high_watermark)
    components.update_stable()


def truncate_fully(components: LogComponents, offset: int) -> None:
    """Drop all records; the log begins and ends at ``offset``. Raises `OSError`."""
    for segment in reversed(components.segments[:]):
        components.deletions.remove_now(segment)
    for snapshot in components.snapshots.offsets():
        components.snapshots.remove(snapshot)
    components.segments.restart(offset)
    components.bounds.restart(offset)
    components.durability.cut(offset)
    components.epochs.clear()
    components.producers.reset()
    components.snapshots.loaded(offset)
    components.snapshots.up_to_date()
    components.update_stable()


def _cut(components: LogComponents, offset: int) -> None:
    components.bounds.cut(offset)
    components.durability.cut(offset)
    components.epochs.truncate_from_end(offset)
    components.update_stable()
