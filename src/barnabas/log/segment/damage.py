"""Whether the bytes after the last valid batch of a segment are torn, or damaged.

Kafka: no counterpart.

A batch is appended with one write. A crash in the middle of it leaves a beginning of the
batch, and after a loss of power there may be zeros where its end should be. Such a batch is
*torn*: it was not acknowledged, and nothing follows it. Anything else is *damage* to bytes
that may have been acknowledged:

    fewer bytes than a header, or nothing but zeros         torn
    the header names more bytes than there are              torn, unless a valid
                                                            batch follows somewhere
    zeros from a sector of the batch on, to the file's end  torn
    the batch is whole, and its checksum is wrong           damaged
    the batch is whole, and its offsets go back             damaged
    bytes that are no header                                damaged

Recovery cuts the log before either. Damage also means that the replica has lost records
(`barnabas.log.lost_data`). A value that holds the bytes of a batch can make a torn batch look
damaged. That costs the replica its place in the in-sync set for a moment, no record.
"""

import re

from barnabas.base.files import File
from barnabas.log.segment.batches import scan_headers, scan_valid
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, read_header

__all__ = ["damaged_upto", "valid_batch_behind"]

_CHUNK_BYTES = 1 << 20
_SECTOR_BYTES = 512
_HEAD_BYTES = 17
"""Base offset, length, leader epoch and magic, by which a batch is searched for."""


def damaged_upto(file: File, position: int, end: int, next_offset: int, max_offset: int) -> int | None:
    """What is lost if the bytes from ``position`` on, where no valid batch is, are cut off.

    None for a torn batch. That is the offset after the last batch that can be seen there, at least
    ``next_offset`` + 1. ``max_offset`` is the largest of the segment.
    """
    data_end = _end_of_data(file, position, end)
    if data_end == position or end - position < HEADER_BYTES:
        return None
    header = read_header(file.read_at(position, HEADER_BYTES))
    is_header = header.magic == 2 and header.size_bytes >= HEADER_BYTES
    is_whole = is_header and position + header.size_bytes <= data_end
    if is_whole:
        lost_upto = _end_of_batches(file, position + header.size_bytes, end, next_offset, max_offset)
        if lost_upto > next_offset:
            return lost_upto
    found = valid_batch_behind(file, position, data_end, next_offset, max_offset)
    if found is not None:
        return _end_of_batches(file, found, end, next_offset, max_offset)
    return None if is_header and not is_whole else next_offset + 1


def _end_of_data(file: File, position: int, end: int) -> int:
    """The position after the last sector that is not all zeros: a batch may end with
    a zero of its own."""
    data_end, start = position, position
    while position < end:
        data = file.read_at(position, min(_CHUNK_BYTES, end - position))
        if not data:
            break
        if kept := len(data.rstrip(b"\0")):
            data_end = position + kept
        position += len(data)
    return data_end if data_end == start else min(-(-data_end // _SECTOR_BYTES) * _SECTOR_BYTES, end)


def _end_of_batches(file: File, position: int, end: int, next_offset: int, max_offset: int) -> int:
    """The offset after the batches that follow each other from a position on, by their headers."""
    for _, header in scan_headers(file, position, end):
        if not next_offset <= header.base_offset <= header.last_offset <= max_offset:
            break
        next_offset = header.last_offset + 1
    return next_offset


def valid_batch_behind(file: File, position: int, end: int, next_offset: int, max_offset: int) -> int | None:
    """Where the first batch after a position begins that has a right checksum and
    offsets that may follow."""
    # The upper half of a base offset is one of two values in a segment.
    halves = {(offset >> 32).to_bytes(4, "big") for offset in (next_offset, max_offset)}
    heads = re.compile(b"(?s)(?=(?:" + b"|".join(map(re.escape, sorted(halves))) + rb").{4}[\0-\x7f].{7}\x02)")
    at = position + 1
    while end - at >= HEADER_BYTES:
        chunk = file.read_at(at, min(_CHUNK_BYTES, end - at))
        if len(chunk) < _HEAD_BYTES:
            return None
        for match in heads.finditer(chunk):
            found = at + match.start()
            if end - found < HEADER_BYTES:
                return None
            header = read_header(file.read_at(found, HEADER_BYTES))
            if found + header.size_bytes <= end and next_offset <= header.base_offset <= header.last_offset:
                for begin, _ in scan_valid(file, found, found + header.size_bytes, next_offset, max_offset):
                    return begin
        at += len(chunk) - _HEAD_BYTES + 1
    return None
