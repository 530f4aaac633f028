"""Loading a partition's folder, and making it whole again after a crash.

After a clean stop the files are taken as they are. Otherwise all below the recovery point is on stable storage and is
trusted; every batch past it is checked (CRC, rising offsets), and the log ends before the first that fails: the longest
valid prefix. What hangs on the log is made again from it: indexes, producer state, leader epochs. So the time of a
start is bounded by the unflushed bytes, not by the log.

Also undone or completed here: deletions (``.deleted``), compactions before (``.cleaned``) and after (``.swap``) their
point of no return, index files without a log.
"""

import logging
from collections.abc import Callable

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_epochs, read_topic_id, write_epochs
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.lost_data import LostData, find_lost_data, read_lost_data, write_lost_data
from barnabas.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    base_offset_of,
    file_name,
)
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producer_replay import load_producers, rebuild_transaction_indexes
from barnabas.log.producer_state import ProducerState
from barnabas.log.segment.batches import scan_valid
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.settings import LogConfig

__all__ = ["load_log"]

logger = logging.getLogger(__name__)
_SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


def load_log(
    files: Files,
    handles: OpenFiles,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    was_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    producer_expiration_ms: int,
    rng: Random,
    on_failure: Callable[[str], None],
) -> PartitionLog:
    """The log in a folder. Offsets are those of the log dir's checkpoints, 0 where they have none.

    Raises `OSError`, and `CorruptDataError` for what must not be cut off: batches of old formats.
    """
    names = _finish_interrupted(files, handles, directory, files.list(directory), now_ms)
    segments = _open_segments(files, handles, directory, names, now_ms)
    snapshots = sorted(
        offset for name in names if name.endswith(SNAPSHOT) and (offset := base_offset_of(name)) is not None
    )
    epochs, epochs_changed = _load_epochs(files, directory)
    if segments:
        segments[-1].is_active = True
    if not was_clean:
        epochs_changed |= _recover(files, segments, epochs, recovery_point, config)
    elif segments:
        epochs_changed |= _recover_damaged_end(files, segments, epochs, config)
    end_offset = segments[-1].next_offset() if segments else log_start_offset
    lost_data = _note_lost_data(files, directory, find_lost_data(end_offset, recovery_point, high_watermark))
    if segments and end_offset < log_start_offset:
        logger.warning("%s ends at %d, below its log start offset %d", directory, end_offset, log_start_offset)
        for segment in segments:
            _remove_segment(files, segment)
        segments.clear()
        epochs.clear()
        epochs_changed = True
        end_offset = log_start_offset
    if not segments:
        segments.append(Segment(files, handles, directory, end_offset, 0, created_ms=now_ms))
        segments[0].is_active = True
        files.open(segments[0].path, create=True).close()
    start_offset = max(log_start_offset, segments[0].base_offset)
    epochs_changed |= _fit_epochs(epochs, segments, start_offset, end_offset)
    if epochs_changed:
        write_epochs(files, f"{directory}/{LEADER_EPOCHS}", epochs.entries, sync=False)
    rebuild_transaction_indexes(files, directory, snapshots, segments, names)
    producers = ProducerState()
    has_replayed = load_producers(files, directory, producers, snapshots, segments, start_offset, end_offset)
    producers.remove_expired(now_ms, producer_expiration_ms)
    producers.high_watermark_moved(high_watermark)
    _remove_stray_snapshots(files, directory, snapshots, segments)
    log = PartitionLog(
        files,
        handles,
        directory,
        topic_partition,
        _load_topic_id(files, directory),
        config,
        segments=segments,
        epochs=epochs,
        producers=producers,
        snapshots=snapshots,
        log_start_offset=start_offset,
        log_end_offset=end_offset,
        high_watermark=high_watermark,
        recovery_point=end_offset if was_clean else min(recovery_point, end_offset),
        now_ms=now_ms,
        rng=rng,
        on_failure=on_failure,
    )
    log.lost_data = lost_data
    if epochs_changed:
        log.unsynced.add(LEADER_EPOCHS)
    if has_replayed:
        log.take_snapshot()
    return log


# ---- what was interrupted


def _finish_interrupted(files: Files, handles: OpenFiles, directory: str, names: list[str], now_ms: int) -> list[str]:
    """Remove what was deleted, undo or complete what was compacted; returns the names that are there now."""
    odd = [name for name in names if name.endswith((DELETED, CLEANED, SWAP, ".tmp"))]
    if not odd:
        return names
    cleaned = [offset for name in odd if name.endswith(CLEANED) and (offset := base_offset_of(name)) is not None]
    # A compaction is past its point of no return when its last .cleaned became .swap.
    undone = min(cleaned, default=1 << 63)
    swaps = []
    for name in odd:
        if name.endswith(SWAP) and (base_offset_of(name) or 0) < undone:
            swaps.append(name)
        else:
            files.remove(f"{directory}/{name}")
    for name in swaps:
        if name.endswith(LOG + SWAP):
            _remove_compacted(files, handles, directory, name, now_ms)
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    return files.list(directory)


def _remove_compacted(files: Files, handles: OpenFiles, directory: str, swap: str, now_ms: int) -> None:
    """Remove the segments that a swapped one stands for: those that begin in its range of offsets."""
    base_offset = base_offset_of(swap)
    assert base_offset is not None
    path = f"{directory}/{swap}"
    segment = Segment(files, handles, directory, base_offset, files.size(path), created_ms=now_ms)
    segment.path = path
    end = base_offset + 1
    for _, header in segment.headers(0):
        end = header.last_offset + 1
    segment.forget()
    for name in files.list(directory):
        offset = base_offset_of(name)
        if offset is not None and base_offset <= offset < end and name.endswith(_SEGMENT_SUFFIXES):
            files.remove(f"{directory}/{name}")


# ---- segments


def _open_segments(files: Files, handles: OpenFiles, directory: str, names: list[str], now_ms: int) -> list[Segment]:
    bases = sorted(offset for name in names if name.endswith(LOG) and (offset := base_offset_of(name)) is not None)
    known = set(bases)
    for name in names:
        if name.endswith((INDEX, TIME_INDEX, TXN_INDEX)) and base_offset_of(name) not in known:
            logger.warning("%s/%s is an index without a log and is removed", directory, name)
            files.remove(f"{directory}/{name}")
    segments = []
    for base_offset in bases:
        size = files.size(f"{directory}/{file_name(base_offset, LOG)}")
        segments.append(Segment(files, handles, directory, base_offset, size, created_ms=now_ms))
    return segments


def _remove_segment(files: Files, segment: Segment) -> None:
    segment.forget()
    for suffix in _SEGMENT_SUFFIXES:
        path = segment.file_path(suffix)
        if files.exists(path):
            files.remove(path)


def _recover(
    files: Files, segments: list[Segment], epochs: LeaderEpochs, recovery_point: int, config: LogConfig
) -> bool:
    """Check the batches past the recovery point and cut the log where one fails. Whether epochs were found.

    After a loss of power a segment can also end early with a whole batch, while a later segment's file is there: the
    batches between were never synced. Where compaction leaves no gaps, the log ends before such a gap.
    """
    first = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = at
    found = False
    next_offset = segments[first].base_offset if segments else 0
    for at in range(first, len(segments)):
        segment = segments[at]
        segment.is_active = True  # its time index need not be complete
        end, next_offset, has_epochs = _recover_segment(
            segment, epochs, recovery_point, max(next_offset, segment.base_offset), config.index_interval_bytes
        )
        found |= has_epochs
        size = segment.size
        if end < size:
            logger.warning(
                "%s: %d bytes after offset %d are no valid batches and are cut off",
                segment.path,
                segment.size - end,
                next_offset,
            )
            segment.truncate(end, next_offset)
        is_followed = at + 1 < len(segments)
        has_gap = (
            is_followed
            and not config.cleanup_compact
            and segments[at + 1].base_offset > max(next_offset, recovery_point)
        )
        if end < size or has_gap:
            for later in reversed(segments[at + 1 :]):
                logger.warning("%s lies past the end of the valid log and is removed", later.path)
                _remove_segment(files, later)
            del segments[at + 1 :]
            break
        if is_followed:
            segment.finish_indexes()
            segment.is_active = False
    return found


def _recover_damaged_end(files: Files, segments: list[Segment], epochs: LeaderEpochs, config: LogConfig) -> bool:
    """After a clean stop: check the active segment wholly, unless it ends with a whole batch. Whether epochs were found."""
    active = segments[-1]
    if active.ends_whole():
        return False
    logger.warning("%s does not end with a whole batch, although the last stop was clean", active.path)
    return _recover(files, segments, epochs, active.base_offset, config)


def _note_lost_data(files: Files, directory: str, found: LostData | None) -> LostData | None:
    """What this start or an earlier one found, kept for the next."""
    known = read_lost_data(files, directory)
    if found is None:
        return known
    logger.error("%s has lost records: %s", directory, found.reason)
    if known is None or known.expected_offset < found.expected_offset:
        write_lost_data(files, directory, found)
        return found
    return known


def _recover_segment(
    segment: Segment, epochs: LeaderEpochs, recovery_point: int, next_offset: int, index_interval_bytes: int
) -> tuple[int, int, bool]:
    """Check and index a segment's batches; returns where they end, the offset there, and whether epochs were found."""
    position, offset = 0, segment.base_offset
    if recovery_point > segment.base_offset and segment.size:
        relative, position = segment.index.floor(recovery_point - segment.base_offset)
        if position:
            offset = segment.base_offset + relative
            next_offset = segment.base_offset
    segment.restart_indexes_at(position, offset + 1 if position else offset)
    end, found = position, False
    if segment.size:
        for at, header in scan_valid(segment.file, position, segment.size, next_offset, segment.max_offset):
            segment.index_batch(at, header, index_interval_bytes)
            if header.leader_epoch > epochs.latest_epoch:
                found |= epochs.assign(header.leader_epoch, header.base_offset)
            end, next_offset = at + header.size_bytes, header.last_offset + 1
    return end, next_offset, found


# ---- what hangs on the log


def _load_epochs(files: Files, directory: str) -> tuple[LeaderEpochs, bool]:
    try:
        return LeaderEpochs(read_epochs(files, f"{directory}/{LEADER_EPOCHS}")), False
    except CorruptDataError as error:
        logger.warning("%s; the leader epochs are read from the log again", error)
        return LeaderEpochs(), True


def _fit_epochs(epochs: LeaderEpochs, segments: list[Segment], start_offset: int, end_offset: int) -> bool:
    """Cut the epochs to the log's range; read them from the batches when there are none. Whether they changed."""
    changed = epochs.truncate_from_end(end_offset)
    changed |= epochs.truncate_from_start(start_offset)
    if not epochs.entries and start_offset < end_offset:
        for segment in segments:
            for _, header in segment.headers(0):
                if header.leader_epoch > epochs.latest_epoch:
                    changed |= epochs.assign(header.leader_epoch, header.base_offset)
        changed |= epochs.truncate_from_start(start_offset)
    return changed


def _load_topic_id(files: Files, directory: str) -> Uuid:
    try:
        return read_topic_id(files, f"{directory}/{PARTITION_METADATA}") or ZERO_UUID
    except CorruptDataError as error:
        logger.warning("%s; the topic's id will be learned from the controller", error)
        return ZERO_UUID


def _remove_stray_snapshots(files: Files, directory: str, snapshots: list[int], segments: list[Segment]) -> None:
    """Of the snapshots that belong to no segment only the newest is of use."""
    bases = {segment.base_offset for segment in segments}
    newest = max(snapshots, default=-1)
    for offset in list(snapshots):
        if offset != newest and offset not in bases:
            snapshots.remove(offset)
            files.remove(f"{directory}/{file_name(offset, SNAPSHOT)}")
