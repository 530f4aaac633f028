"""Puts right what a batch's CRC does not cover: base offset, length, leader epoch and magic.

Kafka: no counterpart.

A leader writes these fields last, so a producer's CRC cannot cover them
(`barnabas.wire.kafka.records.batch_header`), and one changed bit makes a sound batch look like
damage. What they must have been follows from the batch's neighbours:

    magic           2: nothing else is written
    length          the one with which the CRC is right: up to the next valid batch,
                    or to the end of the file
    base offset     where the batch before ended, if the batch behind continues from there. In
                    a compacted log, the one value with one bit changed that fits between the
                    neighbours
    leader epoch    that of the batch before, if the batch behind has the same or a later one,
                    below the one that was read. Where the batch before is not known, that of
                    the two behind

A field is written again only if a neighbour confirms the new value. The batch's records are
as sound as its CRC says.
"""

from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.files import File
from barnabas.log.segment.damage import valid_batch_behind
from barnabas.wire.kafka.records.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)

__all__ = ["BatchPlace", "following", "is_doubtful", "mended", "mended_epoch"]

_LARGEST_BATCH_BYTES = 128 << 20


class BatchPlace(NamedTuple):
    """What is known of the place of a batch in its log."""

    next_offset: int
    """After the batch before."""
    max_offset: int
    """The largest of the segment."""
    is_dense: bool
    """Whether the log never was compacted."""
    known_end_offset: int | None = None
    """The offset after the segment's last batch, if it is known: at a start where a clean
    stop left the log's end (that of the active segment), at a read where the next segment
    begins or the log ends."""
    next_segment: BatchHeader | None = None
    """The first batch of the next segment, if there is one."""
    may_be_stale: bool = True
    """Whether a loss of power may have brought back batches that the log had cut off."""


def following(file: File, position: int, end: int, place: BatchPlace) -> BatchHeader | None:
    """The header of the batch at a position, or of the next segment's first one.

    None where there seems to be none."""
    if position == end:
        return place.next_segment
    if end - position < HEADER_BYTES:
        return None
    header = read_header(file.read_at(position, HEADER_BYTES))
    return header if header.magic == MAGIC and header.size_bytes >= HEADER_BYTES else None


def is_doubtful(file: File, position: int, end: int, header: BatchHeader, place: BatchPlace) -> bool:
    """Whether the base offset of a batch, which does not go back, may be wrong all the same."""
    if place.is_dense:
        return header.base_offset != place.next_offset
    behind = following(file, position + header.size_bytes, end, place)
    if behind is None and position + header.size_bytes == end:
        return place.known_end_offset not in (None, header.last_offset + 1)
    return behind is not None and behind.base_offset <= header.last_offset


def mended(file: File, position: int, end: int, place: BatchPlace) -> BatchHeader | None:
    """The header of the batch at a position as it must have been; None if that is not certain.

    Raises `OSError`."""
    if end - position < HEADER_BYTES:
        return None
    found = read_header(file.read_at(position, HEADER_BYTES))
    size = _sound_size(file, position, end, found, place)
    if size is None or found.last_offset_delta < 0:
        return None
    behind = following(file, position + size, end, place)
    base_offset = _base_offset(found, behind, place)
    if base_offset is None:
        return None
    return found._replace(base_offset=base_offset, length=size - LOG_OVERHEAD_BYTES, magic=MAGIC)


def _sound_size(file: File, position: int, end: int, found: BatchHeader, place: BatchPlace) -> int | None:
    """The size with which the CRC is right."""
    if HEADER_BYTES <= found.size_bytes <= end - position and _is_sound(file, position, found.size_bytes, found.crc):
        return found.size_bytes
    behind = valid_batch_behind(file, position, end, place.next_offset, place.max_offset)
    size = (end if behind is None else behind) - position
    if HEADER_BYTES <= size <= _LARGEST_BATCH_BYTES and _is_sound(file, position, size, found.crc):
        return size
    return None


def _is_sound(file: File, position: int, size: int, crc: int) -> bool:
    return bool(crc32c(file.read_at(position + CRC_START, size - CRC_START)) == crc)


def _base_offset(found: BatchHeader, behind: BatchHeader | None, place: BatchPlace) -> int | None:
    delta, next_offset = found.last_offset_delta, place.next_offset
    is_possible = next_offset <= found.base_offset and found.last_offset <= place.max_offset
    if is_possible and (
        found.base_offset == next_offset
        or (behind is not None and behind.base_offset == found.last_offset + 1)
        or (behind is None and found.last_offset + 1 == place.known_end_offset)
    ):
        return found.base_offset  # a gap before it may be one that compaction left
    if place.is_dense:
        if behind is None:  # a gap that compaction left looks the same, but for one changed bit
            return next_offset if (found.base_offset ^ next_offset).bit_count() == 1 else None
        is_confirmed = behind.base_offset == next_offset + delta + 1
        return next_offset if is_confirmed else None
    if behind is None and place.known_end_offset is not None and place.known_end_offset - delta - 1 >= next_offset:
        return place.known_end_offset - delta - 1
    if is_possible and (behind is None or behind.base_offset > found.last_offset):
        return found.base_offset
    highest = (place.max_offset if behind is None else behind.base_offset - 1) - delta
    fitting = [base for bit in range(63) if next_offset <= (base := found.base_offset ^ (1 << bit)) <= highest]
    return fitting[0] if len(fitting) == 1 else None


def mended_epoch(
    found: int, known: int, behind: BatchHeader | None, second: BatchHeader | None = None, *, may_be_stale: bool = True
) -> int | None:
    """The leader epoch of a batch as it must have been.

    None if that is not certain, or if nothing is wrong with it. ``known`` is the epoch of the
    batches before (negative: unknown); ``behind`` and ``second`` are the next two batches.
    """
    if found == known:
        return None
    if behind is None:
        return known if known >= 0 and found < known and not may_be_stale else None
    epoch = behind.leader_epoch
    if known < 0:
        is_confirmed = second is not None and epoch <= second.leader_epoch < found
        return epoch if 0 <= epoch < found and is_confirmed else None
    if found < known:
        return known if epoch >= known else None
    return known if known <= epoch < found else None
