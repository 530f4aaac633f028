"""Cutting a log: at its end when a leader has other records, at its start when records are too many or too old.

Whole segments go from the start, one after another, while each is given up by the log start offset (DeleteRecords), by
``retention.bytes`` (what would remain is still enough) or by ``retention.ms`` (its largest timestamp), whichever comes
first; never one with records at or past the high watermark. When all go, a new empty segment is begun first.
"""

from barnabas.base.files import Files
from barnabas.log.log_state import LogState
from barnabas.log.names import DELETED, INDEX, TIME_INDEX
from barnabas.log.producer_replay import load_producers
from barnabas.log.segment.segment import Segment

__all__ = ["apply", "discard", "remove_files", "set_aside", "truncate_fully", "truncate_to"]


def apply(log: LogState, now_ms: int) -> int:
    """Delete what retention gives up; returns the number of segments. Raises `OSError`."""
    count = _count_deletable(log, now_ms)
    if not count:
        return 0
    segments = log.segments
    if count == len(segments):
        if segments[-1].size:
            log.roll(now_ms)
            segments = log.segments
        else:
            count -= 1
            if not count:
                return 0
    going, staying = segments[:count], segments[count:]
    log.raise_start(staying[0].base_offset)
    log.replace_segments(staying)
    log.remove_later(set_aside(log, going), now_ms)
    return len(going)


def _count_deletable(log: LogState, now_ms: int) -> int:
    config = log.config
    segments = log.segments
    surplus = log.size_bytes - config.retention_bytes if config.cleanup_delete and config.retention_bytes >= 0 else -1
    by_time = config.cleanup_delete and config.retention_ms >= 0
    count = 0
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        end = log.log_end_offset if is_last else segments[at + 1].base_offset
        if log.high_watermark < end or (is_last and not segment.size):
            break
        if (not is_last and end <= log.log_start_offset) or (surplus >= segment.size and surplus > 0):
            surplus -= segment.size
        elif not (by_time and now_ms - segment.last_write_ms() > config.retention_ms):
            break
        else:
            surplus -= segment.size
        count += 1
    return count


def set_aside(log: LogState, segments: list[Segment], *, keep_snapshot: int = -1) -> list[str]:
    """Rename the files of segments, and their producer snapshots, to .deleted; returns the new paths.

    A snapshot at ``keep_snapshot`` stays. Raises `OSError`.
    """
    files = log.files
    renamed = []
    for segment in segments:
        segment.forget()
        paths = [segment.path, segment.file_path(INDEX), segment.file_path(TIME_INDEX), segment.transactions.path]
        if segment.base_offset in log.snapshots and segment.base_offset != keep_snapshot:
            log.snapshots.remove(segment.base_offset)
            paths.append(log.snapshot_path(segment.base_offset))
        for path in paths:
            try:
                files.rename(path, path + DELETED)
            except FileNotFoundError:
                continue  # indexes and snapshots need not exist
            renamed.append(path + DELETED)
    return renamed


def discard(log: LogState, segments: list[Segment]) -> None:
    """Remove the files of segments at once."""
    remove_files(log.files, set_aside(log, segments))


def remove_files(files: Files, paths: list[str]) -> None:
    """Remove files; those that are gone are fine."""
    for path in paths:
        try:
            files.remove(path)
        except FileNotFoundError:
            continue


def truncate_to(log: LogState, offset: int) -> bool:
    """Drop the records from ``offset`` on. Raises `OSError`."""
    if offset >= log.log_end_offset:
        log.cut_bounds(log.log_end_offset)
        return False
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset)
        return True
    at = log.segment_index(offset)
    # Newest first: a crash in between leaves a log without gaps.
    for segment in reversed(log.segments[at + 1 :]):
        discard(log, [segment])
    log.replace_segments(log.segments[: at + 1])
    segment = log.active
    located = segment.locate(offset)
    end = offset
    if located is not None:
        # A batch is cut off as a whole; what is asked for lies at its start, or inside a batch of the leader's too.
        end = min(offset, located.base_offset)
        segment.truncate(located.position, located.base_offset)
    log.cut_bounds(end)
    load_producers(log.files, log.directory, log.producers, log.snapshots, log.segments, log.log_start_offset, end)
    log.producers.high_watermark_moved(log.high_watermark)
    log.update_stable()
    return True


def truncate_fully(log: LogState, offset: int) -> None:
    """Drop all records; the log begins and ends at ``offset``. Raises `OSError`."""
    now_ms = log.active.created_ms
    for segment in reversed(log.segments):
        discard(log, [segment])
    for snapshot in log.snapshots:
        remove_files(log.files, [log.snapshot_path(snapshot)])
    log.snapshots.clear()
    segment = Segment(log.files, log.handles, log.directory, offset, 0, created_ms=now_ms)
    segment.file.truncate(0)
    log.replace_segments([segment])
    log.log_end_offset = log.log_start_offset = offset
    log.cut_bounds(offset)
    log.epochs.clear()
    log.write_epochs()
    log.producers.reset(offset)
    log.update_high_watermark(offset)
    log.update_stable()
