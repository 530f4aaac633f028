"""The short way of compaction, for chunks of ordinary batches: all their headers, records and output at once.

A batch is ordinary if it is not compressed, of no transaction, not a marker, has no delete horizon, and is undamaged. Most
chunks of most logs consist of such batches only; then nothing is done batch by batch but the CRC. `map_plain` puts the keys of a chunk into the
map. `filter_plain` writes what stays of it as one block: neighbours that stay are one copy, whichever batches they are in, and
headers are changed in place there.

Where anything of a chunk is not ordinary both return None and have done nothing: `read_groups` and `BatchFilter` then go
through it batch by batch. They are the rule, and this is an abbreviation of it: both write the same bytes.

Kafka has no counterpart: its `Cleaner` reads batch by batch.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from barnabas.log.compaction.offset_map import NewestOffsets, OffsetMap, digests
from barnabas.wire.kafka.records.batch_header import CRC_START, HEADER_BYTES, LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, MAGIC
from barnabas.wire.kafka.records.columns import Integers, find_rows, read_columns, read_deltas

__all__ = ["Block", "HeaderColumns", "filter_plain", "map_plain", "read_header_columns"]

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_CRC = struct.Struct(">I")
_CRC_AT = 17
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_COUNT = struct.Struct(">i")
_COUNT_AT = 57


class HeaderColumns(NamedTuple):
    """Fields of the headers of a chunk's batches, a row each."""

    start: Integers
    """Where the batch begins in the chunk."""
    stop: Integers
    crc: list[int]
    base_offset: Integers
    last_offset: Integers
    base_timestamp: Integers
    max_timestamp: Integers
    has_append_time: npt.NDArray[np.bool_]
    record_count: Integers
    is_ordinary: npt.NDArray[np.bool_]
    """As far as the header says."""


def read_header_columns(data: bytes, positions: Sequence[int]) -> HeaderColumns:
    """The headers at these positions, where whole batches begin."""
    start = np.array(positions, np.int64)
    found = np.ndarray((len(data) - HEADER_BYTES + 1,), _HEADER, data, strides=(1,))[start]
    base_offset = found["base_offset"].astype(np.int64)
    record_count = found["record_count"].astype(np.int64)
    is_ordinary = (found["magic"] == MAGIC) & (found["attributes"] & ~LOG_APPEND_TIME == 0) & (record_count > 0)
    return HeaderColumns(
        start,
        start + LOG_OVERHEAD_BYTES + found["length"],
        found["crc"].tolist(),
        base_offset,
        base_offset + found["last_offset_delta"],
        found["base_timestamp"].astype(np.int64),
        found["max_timestamp"].astype(np.int64),
        (found["attributes"] & LOG_APPEND_TIME) != 0,
        record_count,
        is_ordinary,
    )


def _is_sound(data: bytes, headers: HeaderColumns, numbers: Sequence[int]) -> bool:
    """Whether the CRCs of these batches are right."""
    view, start, stop, crc = memoryview(data), headers.start.tolist(), headers.stop.tolist(), headers.crc
    return all(crc32c(view[start[number] + CRC_START : stop[number]]) == crc[number] for number in numbers)


def map_plain(data: bytes, headers: HeaderColumns, offsets: OffsetMap, first_offset: int) -> bool:
    """Put the keys of a chunk's records from an offset on into the map. False, and nothing is put, if it cannot be done so."""
    if not headers.is_ordinary.all() or not _is_sound(data, headers, range(len(headers.crc))):
        return False
    rows = find_rows(data, headers.start + HEADER_BYTES, headers.stop, headers.record_count)
    if rows.damaged:
        return False
    columns, damaged = read_columns(data, rows.start, rows.stop)
    if damaged:
        return False
    found = headers.base_offset.repeat(headers.record_count) + columns.offset_delta
    wanted = (columns.key_size >= 0) & (found >= first_offset)
    rows_wanted: slice | npt.NDArray[np.bool_] = slice(None) if wanted.all() else wanted
    keys = digests(data, columns.key_start[rows_wanted], columns.key_size[rows_wanted])
    return offsets.put(keys, found[rows_wanted], columns.value_size[rows_wanted] < 0)


class Block(NamedTuple):
    """Batches that stay, one after another, and a row of each."""

    data: bytearray
    sizes: list[int]
    last_offsets: list[int]
    max_timestamps: list[int]


def filter_plain(data: bytes, headers: HeaderColumns, newest: NewestOffsets, last_offsets: Integers) -> Block | None:
    """What stays of a chunk whose records are all in the map.

    None if it cannot be done so: also if one of its delete markers may stay, or nothing but the header of a batch, as
    ``last_offsets``, which are those of producers' last batches, ask for.
    """
    if not headers.is_ordinary.all():
        return None
    counts, marker_counts = newest.count(headers.base_offset, headers.last_offset)
    if marker_counts.any():
        return None
    stays = counts > 0
    if np.isin(headers.last_offset[~stays], last_offsets).any():
        return None
    is_part = stays & (counts != headers.record_count)
    parts = is_part.nonzero()[0]
    start, stop = headers.start[stays & ~is_part], headers.stop[stays & ~is_part]
    sizes = headers.stop - headers.start
    max_timestamps = headers.max_timestamp
    if parts.size:
        if not _is_sound(data, headers, parts.tolist()):
            return None
        part_start, part_counts = headers.start[parts], headers.record_count[parts]
        rows = find_rows(data, part_start + HEADER_BYTES, headers.stop[parts], part_counts)
        if rows.damaged:
            return None
        timestamp_deltas, offset_deltas = read_deltas(data, rows.start)
        keep = newest.holds(headers.base_offset[parts].repeat(part_counts) + offset_deltas)
        first_rows = np.cumsum(part_counts) - part_counts
        if (np.add.reduceat(keep, first_rows, dtype=np.int64) != counts[parts]).any():
            return None
        sizes[parts] = HEADER_BYTES + np.add.reduceat(np.where(keep, rows.stop - rows.start, 0), first_rows)
        latest = np.maximum.reduceat(np.where(keep, timestamp_deltas, np.iinfo(np.int64).min), first_rows)
        max_timestamps = max_timestamps.copy()
        max_timestamps[parts] = np.where(
            headers.has_append_time[parts], max_timestamps[parts], headers.base_timestamp[parts] + latest
        )
        start = np.concatenate((start, part_start, rows.start[keep]))
        stop = np.concatenate((stop, part_start + HEADER_BYTES, rows.stop[keep]))
        start.sort(kind="stable")
        stop.sort(kind="stable")  # these ranges do not overlap, so their ends have the order of their starts
    block = bytearray().join(_runs(data, start, stop))
    at = (np.cumsum(sizes * stays) - sizes)[parts].tolist() if parts.size else []
    view = memoryview(block)
    fields = zip(at, sizes[parts].tolist(), max_timestamps[parts].tolist(), counts[parts].tolist(), strict=True)
    for position, size, max_timestamp, count in fields:
        _LENGTH.pack_into(block, position + _LENGTH_AT, size - LOG_OVERHEAD_BYTES)
        _MAX_TIMESTAMP.pack_into(block, position + _MAX_TIMESTAMP_AT, max_timestamp)
        _COUNT.pack_into(block, position + _COUNT_AT, count)
        _CRC.pack_into(block, position + _CRC_AT, crc32c(view[position + CRC_START : position + size]))
    return Block(block, sizes[stays].tolist(), headers.last_offset[stays].tolist(), max_timestamps[stays].tolist())


def _runs(data: bytes, start: Integers, stop: Integers) -> list[bytes]:
    """The bytes of these ranges, those of neighbours together."""
    if not start.size:
        return []
    is_break = start[1:] != stop[:-1]
    starts = start[np.concatenate(([True], is_break))].tolist()
    stops = stop[np.concatenate((is_break, [True]))].tolist()
    return [data[begin:end] for begin, end in zip(starts, stops, strict=True)]
