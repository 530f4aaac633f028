"""Finding and checking record batches in a log file, without holding more of it than a chunk.

Kafka: FileRecords, FileLogInputStream.

`barnabas.wire.kafka.records` describes the batches themselves.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import File
from barnabas.wire.kafka.records.batch_header import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    read_header,
)

__all__ = ["Located", "MisplacedEntryError", "is_batch_at", "lacks_records", "locate", "scan_headers", "scan_valid"]

_LOCATOR = struct.Struct(">qi11xi")
"""The part of a header with which a batch is found: base offset, length, last offset delta."""

_CHUNK_BYTES = 4096
_SCAN_CHUNK_BYTES = 1 << 20
_LEAST_OLD_MESSAGE_BYTES = 14


class Located(NamedTuple):
    """A batch found in a file."""

    position: int
    size: int
    base_offset: int


class MisplacedEntryError(CorruptDataError):
    """An index entry points to a place where its batch is not."""


def lacks_records(header: BatchHeader) -> bool:
    """Whether a batch has fewer records than offsets, as only compaction leaves it."""
    return 0 < header.record_count <= header.last_offset_delta


def is_batch_at(file: File, position: int, last_offset: int) -> bool:
    """Whether a batch with this last offset begins at a position, by its header."""
    header = file.read_at(position, _LOCATOR.size)
    if len(header) < _LOCATOR.size:
        return False
    base_offset, _, delta = _LOCATOR.unpack(header)
    return bool(base_offset + delta == last_offset)


def locate(file: File, position: int, end: int, offset: int, *, entry_offset: int | None = None) -> Located | None:
    """The first batch from a position on whose last offset is ``offset`` or later.

    None when there is none up to ``end``. With ``entry_offset`` the batch at the position must have
    that last offset, as an index says; raises `MisplacedEntryError` when it has not.
    """
    start_position = position
    unpack = _LOCATOR.unpack_from
    need = _LOCATOR.size
    chunk = b""
    start = position
    while position + HEADER_BYTES <= end:
        if position + need > start + len(chunk):
            start = position
            chunk = file.read_at(position, min(_CHUNK_BYTES, end - position))
            if len(chunk) < need:
                return None
        base_offset, length, delta = unpack(chunk, position - start)
        if position == start_position and entry_offset is not None and base_offset + delta != entry_offset:
            raise MisplacedEntryError(f"no batch that ends with offset {entry_offset} begins at {position}")
        size = length + LOG_OVERHEAD_BYTES
        if length <= 0 or position + size > end:
            return None
        if base_offset + delta >= offset:
            return Located(position, size, base_offset)
        position += size
    return None


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of whole batches up to ``end``.

    Stops where the bytes are no batch of magic 2."""
    unpack = HEADER.unpack_from
    chunk = b""
    start = position
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > start + len(chunk):
            start = position
            chunk = file.read_at(position, min(_CHUNK_BYTES, end - position))
            if len(chunk) < HEADER_BYTES:
                return
        header = BatchHeader._make(unpack(chunk, position - start))
        if header.magic != 2 or header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES or position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def scan_valid(
    file: File, position: int, end: int, next_offset: int, max_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Like `scan_headers`, and stops at the first batch whose CRC is wrong or whose
    offsets go back.

    ``next_offset`` is the least the first batch may begin with, ``max_offset`` the largest that a
    segment can index (the CRC does not cover offsets). Raises `CorruptDataError` at a sound batch
    of an old format: cutting it off would destroy what a person has to convert.
    """
    chunk = memoryview(b"")
    start = position
    while position + HEADER_BYTES <= end:
        at = position - start
        if at + HEADER_BYTES > len(chunk):
            start, at = position, 0
            chunk = memoryview(file.read_at(position, min(_SCAN_CHUNK_BYTES, end - position)))
        if len(chunk) < HEADER_BYTES:
            return
        header = read_header(chunk, at)
        size = header.size_bytes
        if header.length < _LEAST_OLD_MESSAGE_BYTES or position + size > end:
            return
        if at + size > len(chunk):
            start, at = position, 0
            chunk = memoryview(file.read_at(position, max(size, min(_SCAN_CHUNK_BYTES, end - position))))
            if len(chunk) < size:
                return
        if header.magic != 2:
            # Formats 0 and 1 have their CRC32 where format 2 has the leader epoch.
            if header.magic in (0, 1) and zlib.crc32(chunk[at + 16 : at + size]) == header.leader_epoch & 0xFFFFFFFF:
                raise CorruptDataError(
                    f"a message of format {header.magic} at position {position}: formats below 2 are not read. "
                    f"Rewrite the topic with Apache Kafka, message.format.version 0.11 or later, first"
                )
            return
        if (
            header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES
            or header.base_offset < next_offset
            or header.last_offset_delta < 0
            or header.last_offset > max_offset
            or crc32c(chunk[at + CRC_START : at + size]) != header.crc
        ):
            return
        yield position, header
        next_offset = header.last_offset + 1
        position += size
