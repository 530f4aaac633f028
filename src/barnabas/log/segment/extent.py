"""Which offsets a segment's file holds, found cheaply: by its first batch, and by those
after the last index entry.

A file says four things about its place in a log: its name, the offset of its first batch, where its
last whole batch ends, and its size. `barnabas.log.arrangement` compares them with those of its
neighbours. To find them takes a few small reads, so a start can afford it for every segment. What
lies between is looked at by recovery (past the recovery point) and by reads.

Kafka: no counterpart.
"""

import struct
from typing import NamedTuple

from barnabas.base.files import File, Files
from barnabas.log.segment.batches import scan_headers
from barnabas.log.segment.offset_index import MAX_RELATIVE, OFFSET_ENTRY_BYTES
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, read_header

__all__ = ["Extent", "survey"]

_ENTRY = struct.Struct(">ii")
_FEW_BYTES = 8192
"""Walking this many takes less time than opening an index."""


class Extent(NamedTuple):
    """The part of a segment that its headers vouch for."""

    base_offset: int
    """By the file's name."""
    first_offset: int
    """The first offset of the first batch; the base offset where there is none, or where only this
    number is damaged."""
    next_offset: int
    """After the last whole batch."""
    position: int
    """Where the last whole batch ends."""
    size: int
    path: str
    before_last: int = 0
    """After the last batch but one."""
    last_position: int = 0
    """Where the last batch begins."""

    def without_last(self) -> "Extent":
        """The extent if nothing that the last batch says can be believed."""
        return self._replace(next_offset=self.before_last, position=self.last_position)

    @property
    def is_whole(self) -> bool:
        """Whether the file ends with a whole batch, as far as headers show."""
        return self.position == self.size


def survey(files: Files, path: str, index_path: str, base_offset: int, size: int, *, is_dense: bool) -> Extent:
    """The extent of a segment.

    With ``is_dense`` its batches follow each other without a gap. Raises `OSError`."""
    if not size:
        return Extent(base_offset, base_offset, base_offset, 0, 0, path)
    file = files.open(path, read_only=True)
    try:
        if size < HEADER_BYTES:
            return Extent(base_offset, base_offset, base_offset, 0, size, path)
        first = read_header(file.read_at(0, HEADER_BYTES))
        first_offset = first.base_offset if first.magic == 2 else base_offset
        is_small = size <= _FEW_BYTES
        begin = 0 if is_small else _last_entry(files, file, index_path, base_offset, size)
        if first_offset != base_offset and _is_only_damaged(file, first, base_offset, size, is_dense=is_dense):
            first_offset, begin, is_small = base_offset, 0, False
        extent = _walk(file, path, base_offset, first_offset, size, begin, is_dense=is_dense)
        if extent.is_whole:
            return extent
        # A damaged header hides what lies behind it: look from the other place, too.
        other = _last_entry(files, file, index_path, base_offset, size) if is_small else 0
        if not begin and not other:
            return extent
        found = _walk(file, path, base_offset, first_offset, size, other, is_dense=is_dense)
        return extent if other and not found.is_whole else found
    finally:
        file.close()


def _is_only_damaged(file: File, first: BatchHeader, base_offset: int, size: int, *, is_dense: bool) -> bool:
    """Whether the first batch is in its place although its offset says something else: the one
    behind it is in its place."""
    if first.base_offset >= base_offset and not is_dense:
        return False
    position = first.size_bytes
    if not HEADER_BYTES <= position <= size - HEADER_BYTES:
        return (first.base_offset ^ base_offset).bit_count() == 1
    second = read_header(file.read_at(position, HEADER_BYTES))
    next_offset = base_offset + first.last_offset_delta + 1
    return second.base_offset == next_offset if is_dense else second.base_offset >= next_offset


def _last_entry(files: Files, file: File, index_path: str, base_offset: int, size: int) -> int:
    """The position of the batch that the last index entry points to.

    0 where no entry can be believed."""
    try:
        index = files.open(index_path, read_only=True)
    except FileNotFoundError:
        return 0
    try:
        end = index.size() // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
        if not end:
            return 0
        relative, position = _ENTRY.unpack(index.read_at(end - OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES))
    finally:
        index.close()
    if not 0 < position <= size - HEADER_BYTES:
        return 0
    header = read_header(file.read_at(position, HEADER_BYTES))
    # An entry of Apache's follower has the last offset of all batches that were
    # appended with this one.
    is_there = header.magic == 2 and base_offset < header.base_offset <= header.last_offset <= base_offset + relative
    return position if is_there else 0


def _walk(
    file: File, path: str, base_offset: int, first_offset: int, size: int, position: int, *, is_dense: bool
) -> Extent:
    next_offset = before_last = base_offset
    last_position = position
    expected = first_offset if position == 0 else None
    for at, header in scan_headers(file, position, size):
        if is_dense and expected is not None:
            is_next = header.base_offset == expected
        else:
            is_next = header.base_offset >= next_offset
        if not is_next or not header.base_offset <= header.last_offset <= base_offset + MAX_RELATIVE:
            break
        before_last, last_position = next_offset, at
        next_offset = expected = header.last_offset + 1
        position = at + header.size_bytes
    return Extent(base_offset, first_offset, next_offset, position, size, path, before_last, last_position)
