"""Loading a partition's folder, and making it whole again after a crash. Kafka: LogLoader, LogManager.loadLog.

After a clean stop the files are taken as they are, if the active segment ends with a whole batch. Otherwise all below
the recovery point is on stable storage and is trusted; every batch past it is checked (CRC, rising offsets, leader epochs
that do not go back), and the log ends before the first that fails: the longest valid prefix. If that one is damaged, not
torn, records are lost, and what is cut off is kept aside. What no CRC covers is put right where the neighbours show what it
was (`barnabas.log.sound_batches`). State derived from the log is made again from it: indexes, producer state, leader epochs.
A checkpoint that contradicts the log never costs records of it. So the time of a start is bounded by the unflushed bytes,
not by the log.

Also undone or completed here: deletions (``.deleted``), compactions before (``.cleaned``) and after (``.swap``) their
point of no return, index files without a log. `barnabas.log.lost_data` decides whether the log has lost records.
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
from barnabas.log.lost_data import LostData, find_lost_data, merge_lost_data, read_lost_data, write_lost_data
from barnabas.log.missing_records import Inspection, lost_by, remove_from_log
from barnabas.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    UNFINISHED,
    base_offset_of,
    file_name,
)
from barnabas.log.producer_replay import load_producers, rebuild_transaction_indexes
from barnabas.log.producer_snapshots import ProducerSnapshots
from barnabas.log.producer_state import ProducerState
from barnabas.log.segment.damage import damaged_upto
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.mending import BatchPlace
from barnabas.log.segment.offset_index import MAX_RELATIVE
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.set_aside import keep_bytes
from barnabas.log.settings import LogConfig
from barnabas.log.sound_batches import sound_batches
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, read_header

__all__ = ["Checkpointed", "LoadedLog", "LogOptions", "create_log", "load_log", "make_log_files"]

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


class Checkpointed(NamedTuple):
    """The offsets of a log in the checkpoints of its log dir, 0 where they have no entry."""

    was_clean: bool
    """Whether the last stop was clean."""
    recovery_point: int
    log_start_offset: int
    start_offsets_path: str
    """The checkpoint that says so."""
    high_watermark: int
    producer_expiration_ms: int
    cleaner_offset: int | None = None
    """Where the last compaction ended; None when there was none."""
    has_kept_pages: bool = False
    """Whether the machine has run on since the last stop, so that the files hold all that was written."""

    @property
    def may_lack_writes(self) -> bool:
        """Whether power may have been lost: then a small file and its copy may differ with no other broker here."""
        return not self.was_clean and not self.has_kept_pages


class LoadedLog(NamedTuple):
    """A log that was loaded from its partition's folder."""

    components: LogComponents
    topic_id: Uuid
    lost_data: LostData | None


def make_log_files(files: Files, directory: str, topic_id: Uuid) -> None:
    """The folder and the files of a new, empty log; in any thread. Raises `OSError`.

    Nothing is synced: until the first flush a loss of power may take the folder, and with it no record that was
    promised to be on disk.
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
    """The log in a folder. Raises `OSError`, and `CorruptDataError` for what must not be cut off: batches of old formats."""
    folder = Folder(options.open_files.files, options.directory)
    all_names = folder.files.list(folder.directory)
    names = _finish_interrupted(folder, options, all_names)
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
    end_offset, epochs_changed = _recover(inspection, found, epochs, checkpointed, options.config)
    start_offset = _believed_start(options, found, end_offset, checkpointed)
    end_lost = find_lost_data(end_offset, checkpointed.recovery_point, checkpointed.high_watermark)
    if end_lost is not None and (checkpointed.was_clean or inspection.has_strays):
        end_lost = end_lost._replace(is_damage=True)
    lost_data = _note_lost_data(folder, merge_lost_data(end_lost, lost_by(inspection.holes, accepted, end_offset)))
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
    recovery_point = end_offset if checkpointed.was_clean else min(checkpointed.recovery_point, end_offset)
    durability = Durability(folder, recovery_point, options.now_ms)
    if epochs_changed:
        write_epochs(folder.files, folder.path(LEADER_EPOCHS), epochs.entries, sync=False)
        durability.file_written(LEADER_EPOCHS)
    _remove_deleted(folder, all_names)
    snapshots = ProducerSnapshots(folder, durability, _offsets_of(names, SNAPSHOT))
    rebuild_transaction_indexes(folder, snapshots, found, names)
    segments = Segments(folder, options.open_files, found, options.rng)
    bounds = Bounds(start_offset, end_offset, checkpointed.high_watermark)
    bounds.set_cleaned(checkpointed.cleaner_offset)
    producers = _load_producers(folder, snapshots, segments, bounds, options.now_ms, checkpointed)
    components = LogComponents(
        folder,
        segments,
        bounds,
        durability,
        LeaderEpochCache(folder, durability, epochs),
        producers,
        snapshots,
        Deletions(folder, snapshots),
        _make_holes(folder, bounds, accepted, is_sparse=not inspection.is_dense, is_marked=DENSE in names),
    )
    return LoadedLog(components, _load_topic_id(folder), lost_data)


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
    """From now on the log may have holes. A disk that fails here has the marker still, and is offline soon."""
    with contextlib.suppress(OSError):
        folder.files.remove(folder.path(DENSE))


def _remove_deleted(folder: Folder, names: Iterable[str]) -> None:
    """Remove what was deleted before this start. It explains where the log begins until the leader epochs say so."""
    for name in names:
        if name.endswith(DELETED):
            folder.files.remove(folder.path(name))


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
    log_range = (bounds.log_start_offset, bounds.log_end_offset)
    has_replayed = load_producers(folder, producers, snapshots, segments, log_range)
    producers.remove_expired(now_ms, checkpointed.producer_expiration_ms)
    producers.high_watermark_moved(checkpointed.high_watermark)
    _remove_stray_snapshots(snapshots, segments)
    if has_replayed:
        snapshots.take(producers, bounds.log_end_offset)
    return producers


def _believed_start(options: LogOptions, segments: list[Segment], end_offset: int, checkpointed: Checkpointed) -> int:
    """The checkpointed log start offset, unless it cannot be: then the log begins with its first segment.

    A log starts at or below its high watermark. A start behind the log's end is possible only if the log has lost its
    end: then the other checkpoints are behind the start.
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
    """The log start offset by its first segment; before it where records are missing there that must not be read over."""
    for hole in holes:
        if hole.end == base_offset and not covers(accepted, hole.start, hole.end):
            return hole.start
    return base_offset


def _offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(offset for name in names if name.endswith(suffix) and (offset := base_offset_of(name)) is not None)


def _note_lost_data(folder: Folder, found: LostData | None) -> LostData | None:
    """What this start or an earlier one found, kept for the next."""
    known = read_lost_data(folder.files, folder.directory)
    if found is None:
        return known
    logger.error("%s has lost records: %s", folder.directory, found.reason)
    merged = merge_lost_data(known, found)
    if merged is not None and merged != known:
        write_lost_data(folder.files, folder.directory, merged)
    return merged


# ---- what was interrupted


def _finish_interrupted(folder: Folder, options: LogOptions, names: list[str]) -> list[str]:
    """Undo or complete what was compacted; returns the names that are there then. What was deleted stays for `_remove_deleted`."""
    files, directory = folder.files, folder.directory
    odd = [name for name in names if name.endswith((*UNFINISHED, ".tmp"))]
    if not odd:
        return names
    cleaned = [offset for name in odd if name.endswith(CLEANED) and (offset := base_offset_of(name)) is not None]
    # A compaction is past its point of no return when its last .cleaned became .swap.
    undone = min(cleaned, default=1 << 63)
    swaps = []
    for name in odd:
        if name.endswith(SWAP) and (base_offset_of(name) or 0) < undone:
            swaps.append(name)
        elif not name.endswith(DELETED):
            files.remove(f"{directory}/{name}")
    for name in swaps:
        if name.endswith(LOG + SWAP):
            _remove_compacted(folder, options, name)
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    return files.list(directory)


def _remove_compacted(folder: Folder, options: LogOptions, swap: str) -> None:
    """Remove the segments that a swapped one stands for: those that begin in its range of offsets."""
    base_offset = base_offset_of(swap)
    assert base_offset is not None
    files = folder.files
    size = files.size(folder.path(swap))
    segment = Segment(folder, options.open_files, base_offset, size, created_ms=options.now_ms, name_suffix=SWAP)
    end = base_offset + 1
    for _, header in segment.headers(0):
        end = header.last_offset + 1
    segment.forget()
    for name in files.list(folder.directory):
        offset = base_offset_of(name)
        if offset is not None and base_offset <= offset < end and name.endswith(SEGMENT_SUFFIXES):
            files.remove(folder.path(name))


# ---- segments


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


def _recover(
    inspection: Inspection, segments: list[Segment], epochs: LeaderEpochs, checkpointed: Checkpointed, config: LogConfig
) -> tuple[int, bool]:
    """Set aside what is out of place, and let the log end with a whole and valid batch. Returns where it ends, and whether
    leader epochs were found.
    """
    inspection.remove_strays()
    _mend_closed(inspection, segments, epochs, checkpointed)
    if not segments:
        return checkpointed.log_start_offset, False
    last, known_end = inspection.extents[-1], checkpointed.recovery_point
    is_last_batch_wrong = not inspection.is_dense and last.before_last <= known_end < last.next_offset and known_end > 0
    if checkpointed.was_clean and last.is_whole and not is_last_batch_wrong:
        return last.next_offset, False
    recovered = _recover_segments(inspection, segments, epochs, checkpointed, config)
    inspection.look_again(has_gaps=recovered.has_gaps)
    return recovered.next_offset, recovered.has_new_epochs


class _Recovered(NamedTuple):
    """Batches that were checked, up to the end of a segment or of the log."""

    position: int
    next_offset: int
    has_new_epochs: bool = False
    has_gaps: bool = False
    """Whether there are offsets without a record between two sound batches of one file, as compaction leaves them."""


def _recover_segments(
    inspection: Inspection, segments: list[Segment], epochs: LeaderEpochs, checkpointed: Checkpointed, config: LogConfig
) -> _Recovered:
    """Let the log end with a whole and valid batch.

    After a loss of power a segment can end early, while a later segment's file is there: the batches between were never
    synced. A log that never was compacted ends before such a gap. Where the machine has run on, the gap is a loss in the
    middle of the log, and what lies behind it is kept.
    """
    folder, is_dense = inspection.folder, inspection.is_dense
    recovery_point = checkpointed.recovery_point
    may_cut_segments = not checkpointed.has_kept_pages
    if checkpointed.was_clean:
        active = segments[-1]
        logger.warning("%s does not end with a whole batch where the last, clean stop left it", active.path)
        recovery_point, may_cut_segments = active.base_offset, True
    first = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = at
    has_new_epochs = has_gaps = False
    next_offset = segments[first].base_offset
    for at in range(first, len(segments)):
        segment = segments[at]
        segment.activate()  # its time index need not be complete
        later = segments[at + 1 :]
        place = _place(segment, next_offset, later, checkpointed, is_dense=is_dense)
        recovered = _recover_segment(segment, epochs, recovery_point, place, config.index_interval_bytes)
        end, next_offset, has_epochs, has_gaps_inside = recovered
        has_new_epochs |= has_epochs
        has_gaps |= has_gaps_inside
        has_gap = bool(later) and is_dense and later[0].base_offset > max(next_offset, recovery_point)
        if (end < segment.size or has_gap) and (may_cut_segments or not later):
            damage = _note_lost_data(folder, _damage(segment, later, end, next_offset))
            _cut(folder, segment, later, recovered, keeps_bytes=damage is not None)
            del segments[at + 1 :]
            break
        if later:
            segment.finish_indexes()
            segment.deactivate()
    return _Recovered(0, next_offset, has_new_epochs, has_gaps)


def _mend_closed(
    inspection: Inspection, segments: list[Segment], epochs: LeaderEpochs, checkpointed: Checkpointed
) -> None:
    """Put right what no CRC covers in closed segments that recovery does not look at and that do not end as they should."""
    has_mended = False
    for at, extent in enumerate(inspection.extents[:-1]):
        if extent.is_whole or not (
            checkpointed.was_clean or segments[at + 1].base_offset <= checkpointed.recovery_point
        ):
            continue
        segment = segments[at]
        place = _place(segment, 0, segments[at + 1 :], checkpointed, is_dense=inspection.is_dense)
        for _ in sound_batches(segment, 0, place, epochs, is_entry=False):
            has_mended = True
    if has_mended:
        inspection.look_again(has_gaps=False)


def _place(
    segment: Segment, next_offset: int, later: Sequence[Segment], checkpointed: Checkpointed, *, is_dense: bool
) -> BatchPlace:
    """What is known of the first batch of a segment."""
    return BatchPlace(
        max(next_offset, segment.base_offset),
        segment.base_offset + MAX_RELATIVE,
        is_dense,
        checkpointed.recovery_point if checkpointed.was_clean else None,
        _first_header(later),
        checkpointed.may_lack_writes,
    )


def _first_header(segments: Sequence[Segment]) -> BatchHeader | None:
    for segment in segments:
        if segment.size >= HEADER_BYTES:
            return read_header(segment.file.read_at(0, HEADER_BYTES))
    return None


def _damage(segment: Segment, later: list[Segment], end: int, next_offset: int) -> LostData | None:
    """What it costs to let the log end in a segment; None for what a crash leaves of the last append."""
    lost_upto = None
    if end < segment.size:
        lost_upto = damaged_upto(segment.file, end, segment.size, next_offset, segment.base_offset + MAX_RELATIVE)
    if later:
        # A segment is closed after a whole batch, so even what looks torn was more once.
        later[-1].activate()  # its indexes need not be complete
        lost_upto = max(lost_upto or 0, later[-1].end().next_offset)
    if lost_upto is None:
        return None
    return LostData(f"{segment.path} is damaged at byte {end}", next_offset, lost_upto)


def _cut(folder: Folder, segment: Segment, later: list[Segment], recovered: _Recovered, *, keeps_bytes: bool) -> None:
    """Let the log end in a segment. Bytes that were more than a torn append are kept aside."""
    end = recovered.position
    if end < segment.size:
        logger.warning(
            "%d bytes from byte %d of %s on, %s, are not valid batches and are cut off",
            segment.size - end,
            end,
            segment.path,
            f"after offset {recovered.next_offset - 1}" if recovered.next_offset else "at the log's beginning",
        )
        if keeps_bytes:
            logger.warning("%s keeps them", keep_bytes(folder.files, segment.path, end, segment.size))
        segment.truncate(end, recovered.next_offset)
    for each in reversed(later):
        kept = remove_from_log(folder, each)
        logger.warning("%s lies past the end of the valid log and is set aside as %s", each.path, kept)


def _recover_segment(
    segment: Segment, epochs: LeaderEpochs, recovery_point: int, place: BatchPlace, index_interval_bytes: int
) -> _Recovered:
    """Check and index a segment's batches."""
    position, offset = 0, segment.base_offset
    if recovery_point > segment.base_offset and segment.size:
        relative, position = segment.index.floor(recovery_point - segment.base_offset)
        if position:
            offset = segment.base_offset + relative
            place = place._replace(next_offset=segment.base_offset)
    segment.restart_indexes_at(position, offset + 1 if position else offset)
    next_offset, found, has_gaps = place.next_offset, False, False
    for at, header in sound_batches(segment, position, place, epochs, is_entry=position > 0) if segment.size else ():
        if header.leader_epoch > epochs.latest_epoch:
            found |= epochs.assign(header.leader_epoch, header.base_offset)
        elif 0 <= header.leader_epoch < epochs.epoch_for(header.base_offset):
            # Epochs never go back in a log. So this batch was cut off before the newer epoch began here, and the disk
            # has brought it back.
            break
        segment.index_batch(at, header, index_interval_bytes)
        has_gaps |= header.base_offset > next_offset > segment.base_offset
        position, next_offset = at + header.size_bytes, header.last_offset + 1
    if recovery_point and next_offset == segment.base_offset < recovery_point:
        # The batch that the index points to is not sound, so the index does not say which offset comes before it.
        return _recover_segment(segment, epochs, 0, place, index_interval_bytes)
    return _Recovered(position, next_offset, found, has_gaps)


# ---- state derived from the log


def _fit_epochs(epochs: LeaderEpochs, segments: list[Segment], start_offset: int, end_offset: int) -> bool:
    """Cut the epochs to the log's range; read them from the batches when there are none. Whether they changed."""
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
