"""Deleting the oldest segments of a log. Kafka: UnifiedLog.deleteOldSegments.

Whole segments go from the start, one after another, while each is given up by the log start offset
(DeleteRecords), by ``retention.bytes`` (what would remain is still enough) or by ``retention.ms``
(its largest timestamp), whichever comes first; never one with records at or past the high
watermark. When all go, a new empty segment is begun first.
"""

from barnabas.log.components import LogComponents, raise_start, roll
from barnabas.log.settings import LogConfig

__all__ = ["apply_retention"]


def apply_retention(components: LogComponents, config: LogConfig, now_ms: int, most: int | None = None) -> int:
    """Delete expired segments, with ``most`` at most that many, the oldest first.

    Returns their number. Raises `OSError`.
    """
    segments = components.segments
    count = _count_deletable(components, config, now_ms, len(segments) if most is None else most)
    if not count:
        return 0
    if count == len(segments):
        if segments.active.size:
            roll(components, config, components.bounds.log_end_offset, now_ms)
        else:
            count -= 1
            if not count:
                return 0
    raise_start(components, segments[count].base_offset)
    components.deletions.rename(segments.drop_first(count), now_ms + config.file_delete_delay_ms)
    return count


def _count_deletable(components: LogComponents, config: LogConfig, now_ms: int, most: int) -> int:
    segments, bounds = components.segments, components.bounds
    by_size = config.cleanup_delete and config.retention_bytes >= 0
    by_time = config.cleanup_delete and config.retention_ms >= 0
    surplus = segments.size_bytes - config.retention_bytes if by_size else -1
    count = 0
    for at, segment in enumerate(segments[:most]):
        is_last = at + 1 == len(segments)
        end = segments.end_of(at, bounds.log_end_offset)
        if bounds.high_watermark < end or (is_last and not segment.size):
            break
        if (not is_last and end <= bounds.log_start_offset) or (surplus >= segment.size and surplus > 0):
            surplus -= segment.size
        elif not (by_time and now_ms - segment.last_write_ms() > config.retention_ms):
            break
        else:
            surplus -= segment.size
        count += 1
    return count
