"""Finds where a log ends that was not stopped cleanly, and cuts it there.

Kafka: LogLoader.recoverLog, recoverSegment.

All below the recovery point is on stable storage and is trusted. Every batch past it is
checked (CRC, rising offsets, leader epochs that do not go back), and the log ends before the
first that fails: the longest valid prefix. If that one is damaged, not torn, records are
lost, and what is cut off is kept aside. What no CRC covers is put right where the neighbours
show what it was (`barnabas.log.sound_batches`). So the time of a start is bounded by the
unflushed bytes, not by the log.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.log.checkpoints import Checkpointed
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.lost_data import LostData, keep_lost_data
from barnabas.log.missing_records import Inspection, remove_from_log
from barnabas.log.segment.damage import damaged_upto
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.mending import BatchPlace
from barnabas.log.segment.offset_index import MAX_RELATIVE
from barnabas.log.segment.segment import Segment
from barnabas.log.set_aside import keep_bytes
from barnabas.log.settings import LogConfig
from barnabas.log.sound_batches import sound_batches
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, read_header

__all__ = ["recover_log"]

logger = logging.getLogger(__name__)


def recover_log(
    inspection: Inspection, segments: list[Segment], epochs: LeaderEpochs, checkpointed: Checkpointed, config: LogConfig
) -> tuple[int, bool]:
    """Set aside what is out of place, and let the log end with a whole and valid batch.

    Returns where it ends, and whether leader epochs were found.
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
    """Whether there are offsets without a record between two sound batches of one file,
    as compaction leaves them."""


def _recover_segments(
    inspection: Inspection, segments: list[Segment], epochs: LeaderEpochs, checkpointed: Checkpointed, config: LogConfig
) -> _Recovered:
    """Let the log end with a whole and valid batch.

    After a loss of power a segment can end early, while a later segment's file is there: the
    batches between were never synced. A log that never was compacted ends before such a gap.
    Where the machine has run on, the gap is a loss in the middle of the log, and what lies
    behind it is kept.
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
            damage = keep_lost_data(folder.files, folder.directory, _damage(segment, later, end, next_offset))
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
    """Put right what no CRC covers in closed segments that recovery does not look at and that
    do not end as they should."""
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
    """What it costs to let the log end in a segment.

    None for what a crash leaves of the last append."""
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
            # Epochs never go back in a log. So this batch was cut off before the newer epoch began
            # here, and the disk has brought it back.
            break
        segment.index_batch(at, header, index_interval_bytes)
        has_gaps |= header.base_offset > next_offset > segment.base_offset
        position, next_offset = at + header.size_bytes, header.last_offset + 1
    if recovery_point and next_offset == segment.base_offset < recovery_point:
        # The batch that the index points to is not sound, so the index does not say
        # which offset comes before it.
        return _recover_segment(segment, epochs, 0, place, index_interval_bytes)
    return _Recovered(position, next_offset, found, has_gaps)
