"""Loading a partition's folder, and making it whole again after a crash.

Kafka: LogLoader, LogManager.loadLog.

After a clean stop the files are taken as they are, if the active segment ends with a whole batch.
In the order of `load_log`:

- What was interrupted is undone or completed (`barnabas.log.unfinished`), and index files
  without a log are removed.
- The segments are compared with each other: is one out of place, or missing
  (`barnabas.log.missing_records`)?
- The log's end is looked for where it was not stopped cleanly (`barnabas.log.tail_recovery`).
- `barnabas.log.lost_data` decides whether the log has lost records.
- State derived from the log is made again from it: indexes, producer state, leader epochs. A
  checkpoint that contradicts the log never costs records of it.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.log.arrangement import Hole
from barnabas.log.bounds import Bounds
from barnabas.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    Checkpointed,
    read_topic_id,
    write_epochs,
    write_topic_id,
)
from barnabas.log.components import LogComponents
from barnabas.log.deletions import Deletions
from barnabas.log.durability import Durability
from barnabas.log.epoch_confirmation import StoredEpochs, epochs_of_batches
from barnabas.log.holes import ACCEPTED_HOLES, DENSE, Holes, OffsetSpan, covers, make_dense, read_accepted
from barnabas.log.leader_epochs import LeaderEpochCache, LeaderEpochs
from barnabas.log.lost_data import LostData, find_lost_data, keep_lost_data, merge_lost_data
from barnabas.log.missing_records import Inspection, lost_by, remove_from_log
from barnabas.log.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    base_offset_of,
    file_name,
)
from barnabas.log.producer_replay import load_producers, rebuild_transaction_indexes
from barnabas.log.producer_snapshots import ProducerSnapshots
from barnabas.log.producer_state import ProducerState
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.settings import LogConfig
from barnabas.log.tail_recovery import recover_log
from barnabas.log.unfinished import finish_interrupted, remove_deleted

__all__ = ["LoadedLog", "LogOptions", "create_log", "load_log", "make_log_files"]

logger = logging.getLogger(__name__)


class LogOptions(NamedTuple):
    """Where a log is, and what it works with."""

    open_files: OpenFiles
    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    now_ms: int
    rng: Random
    on_failure: Callable[[str], None]
    """Called with the reason when the disk fails."""


class LoadedLog(NamedTuple):
    """A log that was loaded from its partition's folder."""

    components: LogComponents
    topic_id: Uuid
    lost_data: LostData | None


def make_log_files(files: Files, directory: str, topic_id: Uuid) -> None:
    """The folder and the files of a new, empty log; in any thread. Raises `OSError`.

    Nothing is synced: until the first flush a loss of power may take the folder, and with it no
    record that was promised to be on disk.
    """
    files.make_dirs(directory)
    if topic_id != ZERO_UUID:
        write_topic_id(files, f"{directory}/{PARTITION_METADATA}", topic_id, sync=False)
    files.open(f"{directory}/{file_name(0, LOG)}", create=True).close()
    make_dense(files, directory)


def create_log(options: LogOptions, topic_id: Uuid) -> LoadedLog:
    """A new, empty log, whose files are there."""
    folder = Folder(options.open_files.files, options.directory)
    segment = Segment(folder, options.open_files, 0, 0, created_ms=options.now_ms)
    bounds = Bounds(0, 0, 0)
    durability = Durability(folder, 0, options.now_ms)
    durability.file_written(PARTITION_METADATA)  # and with it the new folder itself
    snapshots = ProducerSnapshots(folder, durability)
    components = LogComponents(
        folder,
        Segments(folder, options.open_files, [segment], options.rng),
        bounds,
        durability,
        LeaderEpochCache(folder, durability, LeaderEpochs()),
        ProducerState(),
        snapshots,
        Deletions(folder, snapshots),
        _make_holes(folder, bounds, (), is_sparse=options.config.cleanup_compact, is_marked=True),
    )
    return LoadedLog(components, topic_id, None)


def load_log(options: LogOptions, checkpointed: Checkpointed) -> LoadedLog:
    """The log in a folder.

    Raises `OSError`, and `CorruptDataError` for what must not be cut off: batches of
    old formats."""
    folder = Folder(options.open_files.files, options.directory)
    all_names = folder.files.list(folder.directory)
    names = finish_interrupted(folder, options.open_files, all_names, options.now_ms)
    found = _open_segments(folder, options, names)
    accepted = read_accepted(folder.files, folder.directory) if ACCEPTED_HOLES in names else []
    stored = StoredEpochs(folder)
    epochs = stored.epochs if stored.is_believed else LeaderEpochs()
    inspection = Inspection(
        folder,
        found,
        stored.log_start(checkpointed.log_start_offset, all_names),
        is_dense=DENSE in names
        and (stored.is_ours or checkpointed.may_lack_writes)
        and not _is_compacted(options, checkpointed),
    )
    end_offset, epochs_changed = recover_log(inspection, found, epochs, checkpointed, options.config)
    start_offset = _believed_start(options, found, end_offset, checkpointed)
    lost_data = _find_losses(inspection, accepted, end_offset, checkpointed)
    if found and end_offset < start_offset:
        logger.warning("%s ends at %d, below its log start offset %d", options.directory, end_offset, start_offset)
        _remove_all(folder, found)
        epochs, epochs_changed = LeaderEpochs(), True
        end_offset = start_offset
    if not found:
        found.append(Segment(folder, options.open_files, end_offset, 0, created_ms=options.now_ms))
        folder.files.open(found[0].path, create=True).close()
    start_offset = max(start_offset, _start_of(inspection.holes, accepted, found[0].base_offset))
    if not stored.is_believed:
        epochs, epochs_changed = stored.confirm(epochs, found, start_offset, end_offset)
    epochs_changed |= _fit_epochs(epochs, found, start_offset, end_offset)
    bounds = Bounds(start_offset, end_offset, checkpointed.high_watermark)
    bounds.set_cleaned(checkpointed.cleaner_offset)
    recovery_point = end_offset if checkpointed.was_clean else min(checkpointed.recovery_point, end_offset)
    durability = Durability(folder, recovery_point, options.now_ms)
    if epochs_changed:
        write_epochs(folder.files, folder.path(LEADER_EPOCHS), epochs.entries, sync=False)
        durability.file_written(LEADER_EPOCHS)
    remove_deleted(folder, all_names)
    holes = _make_holes(folder, bounds, accepted, is_sparse=not inspection.is_dense, is_marked=DENSE in names)
    components = _derive(options, checkpointed, folder, names, found, bounds, durability, epochs, holes)
    return LoadedLog(components, _load_topic_id(folder), lost_data)


def _find_losses(
    inspection: Inspection, accepted: Sequence[OffsetSpan], end_offset: int, checkpointed: Checkpointed
) -> LostData | None:
    """What the log has lost at its end and before it, now or earlier."""
    folder = inspection.folder
    at_end = find_lost_data(end_offset, checkpointed.recovery_point, checkpointed.high_watermark)
    if at_end is not None and (checkpointed.was_clean or inspection.has_strays):
        at_end = at_end._replace(is_damage=True)
    found = merge_lost_data(at_end, lost_by(inspection.holes, accepted, end_offset))
    return keep_lost_data(folder.files, folder.directory, found)


def _derive(
    options: LogOptions,
    checkpointed: Checkpointed,
    folder: Folder,
    names: list[str],
    found: list[Segment],
    bounds: Bounds,
    durability: Durability,
    epochs: LeaderEpochs,
    holes: Holes,
) -> LogComponents:
    """The components of a log whose segments are whole: transaction indexes and
    producer state follow from them."""
    snapshots = ProducerSnapshots(folder, durability, _offsets_of(names, SNAPSHOT))
    rebuild_transaction_indexes(folder, snapshots, found, names)
    segments = Segments(folder, options.open_files, found, options.rng)
    producers = _load_producers(folder, snapshots, segments, bounds, options.now_ms, checkpointed)
    return LogComponents(
        folder,
        segments,
        bounds,
        durability,
        LeaderEpochCache(folder, durability, epochs),
        producers,
        snapshots,
        Deletions(folder, snapshots),
        holes,
    )


def _open_segments(folder: Folder, options: LogOptions, names: list[str]) -> list[Segment]:
    bases = _offsets_of(names, LOG)
    known = set(bases)
    for name in names:
        if name.endswith((INDEX, TIME_INDEX, TXN_INDEX)) and base_offset_of(name) not in known:
            logger.warning("%s is an index without a log and is removed", folder.path(name))
            folder.files.remove(folder.path(name))
    segments = []
    for base_offset in bases:
        size = folder.files.size(folder.path(file_name(base_offset, LOG)))
        segments.append(Segment(folder, options.open_files, base_offset, size, created_ms=options.now_ms))
    if segments:
        segments[-1].activate()
    return segments


def _is_compacted(options: LogOptions, checkpointed: Checkpointed) -> bool:
    """Whether the log is compacted, or was by this broker."""
    return options.config.cleanup_compact or checkpointed.cleaner_offset is not None


def _make_holes(
    folder: Folder, bounds: Bounds, accepted: Iterable[OffsetSpan], *, is_sparse: bool, is_marked: bool
) -> Holes:
    """``is_marked`` says that the folder has the marker of a dense log."""
    if is_sparse and is_marked:
        _forget_dense(folder)
    return Holes(bounds, is_sparse=is_sparse, accepted=accepted, forget_dense=partial(_forget_dense, folder))


def _forget_dense(folder: Folder) -> None:
    """From now on the log may have holes.

    A disk that fails here has the marker still, and is offline soon."""
    with contextlib.suppress(OSError):
        folder.files.remove(folder.path(DENSE))


def _remove_all(folder: Folder, segments: list[Segment]) -> None:
    for segment in segments:
        if segment.size:
            remove_from_log(folder, segment)
        segment.remove_files()
    segments.clear()


def _load_producers(
    folder: Folder,
    snapshots: ProducerSnapshots,
    segments: Segments,
    bounds: Bounds,
    now_ms: int,
    checkpointed: Checkpointed,
) -> ProducerState:
    producers = ProducerState()
    believed_offset = None if checkpointed.was_clean else checkpointed.recovery_point
    has_replayed = load_producers(folder, producers, snapshots, segments, bounds.log_end_offset, believed_offset)
    producers.remove_expired(now_ms, checkpointed.producer_expiration_ms)
    producers.high_watermark_moved(checkpointed.high_watermark)
    _remove_stray_snapshots(snapshots, segments)
    if has_replayed:
        snapshots.take(producers, bounds.log_end_offset)
    return producers


def _believed_start(options: LogOptions, segments: list[Segment], end_offset: int, checkpointed: Checkpointed) -> int:
    """The checkpointed log start offset, unless it cannot be: then the log begins
    with its first segment.

    A log starts at or below its high watermark. A start behind the log's end is possible only if
    the log has lost its end: then the other checkpoints are behind the start.
    """
    start_offset = checkpointed.log_start_offset
    known_end = max(end_offset, checkpointed.recovery_point, checkpointed.high_watermark)
    if not segments or start_offset <= known_end or end_offset <= segments[0].base_offset:
        return start_offset  # also where there are no records that it could cost
    base_offset = segments[0].base_offset
    logger.error(
        "%s says that %s begins at offset %d, which is behind its end %d: the file is damaged. "
        "The log begins at offset %d. Deleted records may be there again: use DeleteRecords once more",
        checkpointed.start_offsets_path,
        options.topic_partition,
        start_offset,
        end_offset,
        base_offset,
    )
    return base_offset


def _start_of(holes: Sequence[Hole], accepted: Sequence[OffsetSpan], base_offset: int) -> int:
    """The log start offset by its first segment.

    Before it where records are missing there that must not be read over."""
    for hole in holes:
        if hole.end == base_offset and not covers(accepted, hole.start, hole.end):
            return hole.start
    return base_offset


def _offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(offset for name in names if name.endswith(suffix) and (offset := base_offset_of(name)) is not None)


def _fit_epochs(epochs: LeaderEpochs, segments: list[Segment], start_offset: int, end_offset: int) -> bool:
    """Cut the epochs to the log's range; read them from the batches when there are none.

    Whether they changed."""
    changed = epochs.truncate_from_end(end_offset)
    changed |= epochs.truncate_from_start(start_offset)
    if not epochs.entries and start_offset < end_offset:
        for epoch, offset in epochs_of_batches(segments).entries:
            changed |= epochs.assign(epoch, offset)
        changed |= epochs.truncate_from_start(start_offset)
    return changed


def _load_topic_id(folder: Folder) -> Uuid:
    try:
        return read_topic_id(folder.files, folder.path(PARTITION_METADATA)) or ZERO_UUID
    except CorruptDataError as error:
        logger.warning("%s; the topic's id will be learned from the controller", error)
        return ZERO_UUID


def _remove_stray_snapshots(snapshots: ProducerSnapshots, segments: Iterable[Segment]) -> None:
    """Remove the snapshots that belong to no segment, except the newest."""
    bases = {segment.base_offset for segment in segments}
    for offset in snapshots.offsets()[1:]:
        if offset not in bases:
            snapshots.remove(offset)
