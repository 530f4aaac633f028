"""The sound batches of a segment, with what no CRC covers put right on the way. Used by recovery.

Where a batch does not fit its neighbours, `barnabas.log.segment.mending` says what it must have
been; the file is written there, and an error line names it. Where that is not certain, the batches
end. Kafka: no counterpart.
"""

import logging
from collections.abc import Iterator

from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.segment.batches import scan_valid
from barnabas.log.segment.mending import BatchPlace, following, is_doubtful, mended, mended_epoch
from barnabas.log.segment.segment import Segment
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES, BatchHeader, read_header

__all__ = ["sound_batches", "write_mended"]

logger = logging.getLogger(__name__)


def sound_batches(
    segment: Segment, position: int, place: BatchPlace, epochs: LeaderEpochs, *, is_entry: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches from a position on.

    Raises `OSError`, `CorruptDataError` (see `scan_valid`). ``place`` is that of the first one;
    with ``is_entry`` an index entry points to it, and where the batch before it ended is not known.
    ``epochs`` may grow meanwhile.
    """
    file, end = segment.file, segment.size
    while position < end:
        for at, found in scan_valid(file, position, end, place.next_offset, place.max_offset):
            header = found
            if not is_entry and is_doubtful(file, at, end, found, place):
                header = mended(file, at, end, place) or found
            header = _with_epoch(segment, at, header, epochs, place)
            if header != found:
                write_mended(segment, at, found, header)
            is_entry = False
            position = at + header.size_bytes
            place = place._replace(next_offset=header.last_offset + 1)
            yield at, header
            if header.base_offset != found.base_offset:
                break  # the scan goes on from where the batch seemed to end
        else:
            if position >= end or is_entry or not _mend_at(segment, position, place):
                return


def _with_epoch(segment: Segment, at: int, header: BatchHeader, epochs: LeaderEpochs, place: BatchPlace) -> BatchHeader:
    known = epochs.epoch_for(header.base_offset)
    if header.leader_epoch == known:
        return header
    position = at + header.size_bytes
    behind = following(segment.file, position, segment.size, place)
    second = None
    if behind is not None and position < segment.size:
        second = following(segment.file, position + behind.size_bytes, segment.size, place)
    epoch = mended_epoch(header.leader_epoch, known, behind, second, may_be_stale=place.may_be_stale)
    return header if epoch is None else header._replace(leader_epoch=epoch)


def _mend_at(segment: Segment, position: int, place: BatchPlace) -> bool:
    """Put right a batch that is not valid as it stands. Returns whether that was possible."""
    header = mended(segment.file, position, segment.size, place)
    if header is None:
        return False
    found = read_header(segment.file.read_at(position, HEADER_BYTES))
    if found == header:
        return False
    write_mended(segment, position, found, header)
    return True


def write_mended(segment: Segment, position: int, found: BatchHeader, header: BatchHeader) -> None:
    """Write a header again, synced. Raises `OSError`."""
    fields = (
        ("base offset", found.base_offset, header.base_offset),
        ("length", found.length, header.length),
        ("leader epoch", found.leader_epoch, header.leader_epoch),
        ("magic", found.magic, header.magic),
    )
    changes = ", ".join(f"{name} {is_now} in place of {was}" for name, is_now, was in fields if is_now != was)
    logger.error(
        "%s is damaged at byte %d, in the header of the batch with offsets %d to %d: %s. "
        "The batch's checksum and its neighbours show what was there, and it is written again",
        segment.path,
        position,
        header.base_offset,
        header.last_offset,
        changes,
    )
    segment.file.write_at(position, HEADER.pack(*header))
    segment.file.sync()
