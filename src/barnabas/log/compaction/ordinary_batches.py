"""The short way of compaction, for pieces of ordinary batches: all their headers,
records and output at once.

A batch is ordinary if it is of no transaction, not a marker, has no delete horizon, and is
undamaged. Most pieces of most logs consist of such batches only; then nothing is done batch by
batch but the CRC, and what codecs do. `map_ordinary` puts the keys of a piece into the map.
`filter_ordinary` writes what stays of it as one block: neighbours that stay are one copy, whichever
batches they are in, and headers are changed in place there.

Where anything of a piece is not ordinary both say so and have written nothing: `read_groups` and
`BatchFilter` then go through it batch by batch. They are the rule, and this is an abbreviation of
it: both write the same bytes.

Kafka has no counterpart: its `Cleaner` reads batch by batch.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.compaction.offset_map import NewestOffsets, OffsetMap, digests
from barnabas.wire.kafka.records.batch_header import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
)
from barnabas.wire.kafka.records.columns import Integers, find_rows, read_columns, read_deltas
from barnabas.wire.kafka.records.compression import CompressionType, compress, decompress, decompress_to

__all__ = ["MOST_ROWS", "Block", "HeaderColumns", "Unpacker", "filter_ordinary", "map_ordinary", "read_header_columns"]

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
MOST_ROWS = 65_536
"""How many records are read together, at most, which limits the memory."""
_BODY_BYTES = 2 << 20
_ROOM_BYTES = _BODY_BYTES + (1 << 18)


class HeaderColumns(NamedTuple):
    """Fields of the headers of a chunk's batches, a row each."""

    start: Integers
    """Where the batch begins in the chunk."""
    stop: Integers
    crc: npt.NDArray[np.uint32]
    base_offset: Integers
    last_offset: Integers
    base_timestamp: Integers
    max_timestamp: Integers
    has_append_time: npt.NDArray[np.bool_]
    record_count: Integers
    codec: Integers
    is_ordinary: npt.NDArray[np.bool_]
    """As far as the header says."""


def read_header_columns(data: bytes, positions: Sequence[int]) -> HeaderColumns:
    """The headers at these positions, where whole batches begin."""
    start = np.array(positions, np.int64)
    found = np.ndarray((len(data) - HEADER_BYTES + 1,), _HEADER, data, strides=(1,))[start]
    base_offset = found["base_offset"].astype(np.int64)
    record_count = found["record_count"].astype(np.int64)
    attributes = found["attributes"].astype(np.int64)
    codec = attributes & COMPRESSION_MASK
    is_ordinary = (found["magic"] == MAGIC) & (attributes & ~(LOG_APPEND_TIME | COMPRESSION_MASK) == 0)
    is_ordinary &= (record_count > 0) & (record_count <= MOST_ROWS) & (codec <= max(CompressionType))
    return HeaderColumns(
        start,
        start + LOG_OVERHEAD_BYTES + found["length"],
        found["crc"].astype(np.uint32),
        base_offset,
        base_offset + found["last_offset_delta"],
        found["base_timestamp"].astype(np.int64),
        found["max_timestamp"].astype(np.int64),
        (attributes & LOG_APPEND_TIME) != 0,
        record_count,
        codec,
        is_ordinary,
    )


def _is_sound(data: bytes, start: Integers, stop: Integers, crc: npt.NDArray[np.uint32]) -> bool:
    """Whether these are the CRCs of the batches from ``start`` to ``stop``."""
    found: list[int] = crc.tolist()
    return _crcs(data, start, stop) == found


def _crcs(data: Buffer, start: Integers, stop: Integers) -> list[int]:
    with memoryview(data) as view:
        ranges = zip((start + CRC_START).tolist(), stop.tolist(), strict=True)
        return [crc32c(view[first:last]) for first, last in ranges]


class _Bodies(NamedTuple):
    """The records of some batches of a piece, not compressed."""

    numbers: npt.NDArray[np.int64]
    """Which batches these are."""
    data: Buffer
    start: Integers
    stop: Integers


class Unpacker:
    """Unpacks batches one behind the other into one buffer, again and again."""

    def __init__(self, limit_bytes: int) -> None:
        """A batch may have ``limit_bytes`` unpacked."""
        self._limit_bytes = limit_bytes
        self._room = bytearray()

    def bodies(self, data: bytes, headers: HeaderColumns, numbers: Integers) -> Iterator[_Bodies]:
        """The records of these batches, by some thousands: where they are, or unpacked.

        Each is valid until the next is asked for. Raises `CorruptDataError`.
        """
        if not headers.codec[numbers].any() and headers.record_count[numbers].sum() <= MOST_ROWS:
            yield _Bodies(numbers, data, headers.start[numbers] + HEADER_BYTES, headers.stop[numbers])
            return
        self._room = self._room or bytearray(_ROOM_BYTES)
        room = memoryview(self._room)
        fields = zip(
            headers.codec[numbers].tolist(),
            (headers.start[numbers] + HEADER_BYTES).tolist(),
            headers.stop[numbers].tolist(),
            headers.record_count[numbers].tolist(),
            strict=True,
        )
        view = memoryview(data)
        stops: list[int] = []
        first = end = rows = 0
        for at, (codec, start, stop, count) in enumerate(fields):
            if stops and (end > _BODY_BYTES or rows + count > MOST_ROWS):
                yield _joined(numbers[first:at], self._room, stops)
                stops, first, end, rows = [], at, 0, 0
            kind, packed = CompressionType(codec), view[start:stop]
            size = decompress_to(kind, packed, room[end:])
            if size is None or size > self._limit_bytes:
                body = decompress(kind, packed, self._limit_bytes)
                size = len(body)
                if end + size > len(room) and stops:
                    yield _joined(numbers[first:at], self._room, stops)
                    stops, first, end, rows = [], at, 0, 0
                if size > len(room):
                    yield _joined(numbers[at : at + 1], body, [size])
                    first = at + 1
                    continue
                room[end : end + size] = body
            end += size
            stops.append(end)
            rows += count
        if stops:
            yield _joined(numbers[first:], self._room, stops)


def _joined(numbers: Integers, data: Buffer, stops: list[int]) -> _Bodies:
    stop = np.array(stops, np.int64)
    return _Bodies(numbers, data, np.concatenate(([0], stop[:-1])), stop)


def map_ordinary(
    data: bytes, headers: HeaderColumns, offsets: OffsetMap, first_offset: int, unpacker: Unpacker
) -> bool:
    """Put the keys of a piece's records from an offset on into the map.

    False if it cannot be done so, or not of all."""
    if not headers.is_ordinary.all() or not _is_sound(data, headers.start, headers.stop, headers.crc):
        return False
    try:
        for bodies in unpacker.bodies(data, headers, np.arange(len(headers.crc))):
            if not _map_bodies(bodies, headers, offsets, first_offset):
                return False
    except CorruptDataError:
        return False
    return True


def _map_bodies(bodies: _Bodies, headers: HeaderColumns, offsets: OffsetMap, first_offset: int) -> bool:
    counts = headers.record_count[bodies.numbers]
    rows = find_rows(bodies.data, bodies.start, bodies.stop, counts)
    if rows.damaged:
        return False
    columns, damaged = read_columns(bodies.data, rows.start, rows.stop)
    if damaged:
        return False
    last_deltas = (headers.last_offset - headers.base_offset)[bodies.numbers].repeat(counts)
    if ((columns.offset_delta < 0) | (columns.offset_delta > last_deltas)).any():
        return False
    found = headers.base_offset[bodies.numbers].repeat(counts) + columns.offset_delta
    wanted = (columns.key_size >= 0) & (found >= first_offset)
    rows_wanted: slice | npt.NDArray[np.bool_] = slice(None) if wanted.all() else wanted
    keys = digests(bodies.data, columns.key_start[rows_wanted], columns.key_size[rows_wanted])
    return offsets.put(keys, found[rows_wanted], columns.value_size[rows_wanted] < 0)


class Block(NamedTuple):
    """Batches that stay, one after another, and a row of each."""

    data: bytearray
    sizes: list[int]
    last_offsets: list[int]
    max_timestamps: list[int]


def filter_ordinary(
    data: bytes, headers: HeaderColumns, newest: NewestOffsets, last_offsets: Integers, unpacker: Unpacker
) -> Block | None:
    """What stays of a piece whose records are all in the map.

    None if it cannot be done so: also if one of its delete markers may stay, or nothing but the
    header of a batch, as ``last_offsets``, which are those of producers' last batches, ask for.
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
    if not _is_sound(data, headers.start[parts], headers.stop[parts], headers.crc[parts]):
        return None
    plan = _Block(data, headers, counts, stays, is_part)
    try:
        for bodies in unpacker.bodies(data, headers, parts) if parts.size else ():
            if not plan.add(bodies, newest):
                return None
    except CorruptDataError:
        return None
    return plan.written()


class _Block:
    """The block of a piece, as it becomes known."""

    def __init__(
        self,
        data: bytes,
        headers: HeaderColumns,
        counts: Integers,
        stays: npt.NDArray[np.bool_],
        is_part: npt.NDArray[np.bool_],
    ) -> None:
        """``counts`` is how many records stay of each batch, ``is_part`` which batches stay
        with fewer than they had."""
        self._data, self._headers, self._counts = data, headers, counts
        self._stays, self._is_part = stays, is_part
        self._sizes = headers.stop - headers.start
        self._max_timestamps = headers.max_timestamp.copy()
        is_whole = stays & ~is_part
        self._starts, self._stops = [headers.start[is_whole]], [headers.stop[is_whole]]
        self._packed: dict[int, Buffer] = {}
        """The new bodies of compressed batches."""

    def add(self, bodies: _Bodies, newest: NewestOffsets) -> bool:
        """Find what stays of these batches.

        False if their records are not what the map was made of."""
        headers, numbers = self._headers, bodies.numbers
        counts = headers.record_count[numbers]
        rows = find_rows(bodies.data, bodies.start, bodies.stop, counts)
        if rows.damaged:
            return False
        timestamp_deltas, offset_deltas = read_deltas(bodies.data, rows.start)
        keep = newest.holds(headers.base_offset[numbers].repeat(counts) + offset_deltas)
        first_rows = np.cumsum(counts) - counts
        kept_counts = np.add.reduceat(keep, first_rows, dtype=np.int64)
        if (kept_counts != self._counts[numbers]).any():
            return False
        latest = np.maximum.reduceat(np.where(keep, timestamp_deltas, np.iinfo(np.int64).min), first_rows)
        base, has_append_time = headers.base_timestamp[numbers], headers.has_append_time[numbers]
        with np.errstate(over="ignore"):
            largest = base + latest
        if ((base ^ largest) & (latest ^ largest) < 0)[~has_append_time].any():
            return False  # more than 64 bits
        self._max_timestamps[numbers] = np.where(has_append_time, self._max_timestamps[numbers], largest)
        start, stop = rows.start[keep], rows.stop[keep]
        if bodies.data is self._data:
            self._sizes[numbers] = HEADER_BYTES + np.add.reduceat(np.where(keep, rows.stop - rows.start, 0), first_rows)
            self._starts += (headers.start[numbers], start)
            self._stops += (headers.start[numbers] + HEADER_BYTES, stop)
        else:
            self._pack(bodies, kept_counts, start, stop)
        return True

    def _pack(self, bodies: _Bodies, kept_counts: Integers, start: Integers, stop: Integers) -> None:
        batch_of_row = np.arange(len(kept_counts)).repeat(kept_counts)
        is_first = np.concatenate(([True], (start[1:] != stop[:-1]) | (batch_of_row[1:] != batch_of_row[:-1])))
        is_last = np.concatenate((is_first[1:], [True]))
        starts, stops = start[is_first].tolist(), stop[is_last].tolist()
        first_runs = batch_of_row[is_first].searchsorted(np.arange(len(kept_counts) + 1)).tolist()
        codecs = self._headers.codec[bodies.numbers].tolist()
        view = memoryview(bodies.data)
        for at, number in enumerate(bodies.numbers.tolist()):
            runs = slice(first_runs[at], first_runs[at + 1])
            body = b"".join([view[begin:end] for begin, end in zip(starts[runs], stops[runs], strict=True)])
            self._packed[number] = packed = compress(CompressionType(codecs[at]), body)
            self._sizes[number] = HEADER_BYTES + len(packed)

    def written(self) -> Block:
        """The batches that stay."""
        headers, sizes, stays = self._headers, self._sizes, self._stays
        if self._packed:
            block = self._written_in_turn()
        else:
            start, stop = np.concatenate(self._starts), np.concatenate(self._stops)
            start.sort(kind="stable")
            # These ranges do not overlap, so their ends have the order of their starts.
            stop.sort(kind="stable")
            block = bytearray().join(_runs(self._data, start, stop))
        parts = self._is_part.nonzero()[0]
        if parts.size:
            at = (np.cumsum(sizes * stays) - sizes)[parts]
            fields = np.ndarray((len(block) - HEADER_BYTES + 1,), _HEADER, block, strides=(1,))
            fields["length"][at] = sizes[parts] - LOG_OVERHEAD_BYTES
            fields["max_timestamp"][at] = self._max_timestamps[parts]
            fields["record_count"][at] = self._counts[parts]
            fields["crc"][at] = _crcs(block, at, at + sizes[parts])
        return Block(
            block,
            sizes[stays].tolist(),
            headers.last_offset[stays].tolist(),
            self._max_timestamps[stays].tolist(),
        )

    def _written_in_turn(self) -> bytearray:
        """Where bodies are new, they go between what is copied."""
        starts, stops = self._headers.start.tolist(), self._headers.stop.tolist()
        view = memoryview(self._data)
        pieces: list[Buffer] = []
        for number in self._stays.nonzero()[0].tolist():
            packed = self._packed.get(number)
            if packed is None:
                pieces.append(view[starts[number] : stops[number]])
            else:
                pieces += (view[starts[number] : starts[number] + HEADER_BYTES], packed)
        return bytearray().join(pieces)


def _runs(data: bytes, start: Integers, stop: Integers) -> list[bytes]:
    """The bytes of these ranges, those of neighbours together."""
    if not start.size:
        return []
    is_break = start[1:] != stop[:-1]
    starts = start[np.concatenate(([True], is_break))].tolist()
    stops = stop[np.concatenate((is_break, [True]))].tolist()
    return [data[begin:end] for begin, end in zip(starts, stops, strict=True)]
