"""The records of batches as columns: where each record and each of its fields stands in a buffer,
without an object for each.

`find_records` finds the boundaries of records: each record begins where the one before ends.
Where many batches lie in the buffer, one record of each is passed at a time, all with three
numpy operations. Otherwise batches are walked one after the other, and records of one size
are found together.
`read_columns` then reads the fields of thousands of records at once with numpy, byte by byte
of their varints. Keys, values and headers stay where they are: a caller slices, hashes or
gathers only what it needs.

Columns serve what reads many records and keeps few: compaction, checks of large batches, data
frames. A call costs about 0.1 ms however few records there are, so let it read hundreds, of several
batches if they are small; and a few thousand at most where other threads wait. numpy takes 60 ms
and 12 MiB to import, so this module is imported where there is work for it.

Kafka: DefaultRecord.readFrom, and PartialDefaultRecord, which skips what is not needed.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.records.headers import skip_headers
from barnabas.wire.kafka.records.varints import MOST_VARINT_BYTES, MOST_VARLONG_BYTES, read_varint

__all__ = [
    "Body",
    "Integers",
    "RecordColumns",
    "RecordRows",
    "damaged_headers",
    "find_records",
    "find_rows",
    "read_columns",
    "read_deltas",
]

Integers = npt.NDArray[np.int64]

_LARGEST_VARINT = np.uint64((1 << 32) - 1)
_ONE_BYTE_NUMBERS = (np.arange(256, dtype=np.int64) >> 1) ^ -(np.arange(256, dtype=np.int64) & 1)
"""The numbers of varints of one byte."""
_SMALLEST_CONTENT_BYTES = 6
_SMALLEST_BYTES = 1 + _SMALLEST_CONTENT_BYTES
_FEW_ROWS = 64
"""Fewer are read faster one by one."""
_LEAST_RUN = 8
_LONGEST_PAUSE = 256
_LEAST_LANES = 24
"""Fewer batches are walked faster one after the other."""
_MOST_WASTE = 2
"""How many times the number of records the steps of all batches may be, were all as
long as the longest."""
_FIRST_LOOK = 64
"""Records among which a run is looked for, at first and after each that broke off."""


class Body(NamedTuple):
    """The records of one batch, not compressed, from ``start`` to ``stop`` in a buffer."""

    start: int
    stop: int
    record_count: int


class RecordRows(NamedTuple):
    """Records of several bodies, a row each, in their order."""

    start: Integers
    """Where the record's length begins."""
    stop: Integers
    ends: list[int]
    """For each body the row after its last one. A damaged body has no rows."""
    damaged: list[tuple[int, str]]
    """The numbers of bodies whose records do not fill them, and what is wrong."""


class RecordColumns(NamedTuple):
    """Fields of records, a row each.

    Positions and sizes are bytes, and positions count from the start of the buffer."""

    timestamp_delta: Integers
    offset_start: Integers
    """Where the offset delta begins: all after the timestamp."""
    offset_delta: Integers
    key_start: Integers
    key_size: Integers
    """-1 for a record without a key."""
    value_start: Integers
    value_size: Integers
    """-1 for a record without a value."""
    headers_start: Integers
    """Where the first header begins; the last ends with the record. Headers
    themselves are not read."""
    header_count: Integers


def find_records(data: Buffer, bodies: Sequence[Body]) -> RecordRows:
    """Where each record begins and ends. Only the length of a record is read."""
    if len(bodies) >= _LEAST_LANES:
        start, stop, counts = np.array(bodies, np.int64).T
        return find_rows(data, start, stop, counts)
    return _find_in_turn(data, bodies)


def find_rows(data: Buffer, start: Integers, stop: Integers, counts: Integers) -> RecordRows:
    """Like `find_records`, for bodies in columns."""
    if len(start) >= _LEAST_LANES:
        rows = _find_together(data, start, stop, counts)
        if rows is not None:
            return rows
    return _find_in_turn(data, list(map(Body, start.tolist(), stop.tolist(), counts.tolist())))


def _find_in_turn(data: Buffer, bodies: Sequence[Body]) -> RecordRows:
    starts: list[int] = []
    last_rows: list[int] = []
    last_stops: list[int] = []
    ends: list[int] = []
    damaged: list[tuple[int, str]] = []
    pause = 0
    for number, (start, stop, record_count) in enumerate(bodies):
        rows_before = len(starts)
        try:
            position, pause = _find(data, start, stop, record_count, starts, pause)
            if position != stop:
                raise CorruptDataError(f"{record_count} records end {stop - position} bytes before their batch")
        except CorruptDataError as error:
            del starts[rows_before:]
            damaged.append((number, str(error)))
        ends.append(len(starts))
        if len(starts) > rows_before:
            last_rows.append(len(starts) - 1)
            last_stops.append(stop)
    start_column = np.array(starts, np.int64)
    stop_column = np.empty_like(start_column)
    stop_column[:-1] = start_column[1:]
    stop_column[last_rows] = last_stops
    return RecordRows(start_column, stop_column, ends, damaged)


@cache
def _jumps() -> Integers:
    """How far the next record is, by the first two bytes of a length, little-endian.

    0 where it has more bytes."""
    both = np.arange(1 << 16, dtype=np.int64)
    byte, following = both & 0xFF, both >> 8
    jumps: Integers = np.where(
        byte < 0x80, 1 + (byte >> 1), np.where(following < 0x80, (byte >> 1) + (following << 6) - 62, 0)
    )
    return jumps


def _find_together(data: Buffer, start: Integers, stop: Integers, counts: Integers) -> RecordRows | None:
    """Like `find_rows`, one record of each body at a time.

    None where that takes longer, or where a body is not filled by records of less than 8
    KiB: then each needs a look.
    """
    if (counts < 1).any() or (counts * _SMALLEST_BYTES > stop - start).any():
        return None  # what the counts say cannot be true, and must not cost memory
    bodies, most = len(counts), int(counts.max())
    if most * bodies > _MOST_WASTE * counts.sum():
        return None
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    words = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))
    found = np.empty((most + 1, bodies), np.int64)
    found[0] = start[order]
    take, add = _jumps().take, np.add
    # The longest bodies stand first, so those that go on are always the first ones.
    going_on = bodies - np.searchsorted(sorted_counts[::-1], np.arange(most), "right")
    try:
        for number, lanes in enumerate(going_on.tolist()):
            here = found[number, :lanes]
            add(here, take(words[here]), found[number + 1, :lanes])
    except IndexError:
        return None  # past the end of the data
    if (found[sorted_counts, np.arange(bodies)] != stop[order]).any():
        return None
    lane_of_body = np.empty_like(order)
    lane_of_body[order] = np.arange(bodies)
    by_body = found.T[lane_of_body]
    numbers, past = np.arange(most + 1), counts[:, None]
    is_start = numbers < past
    is_stop = (numbers > 0) & (numbers <= past)
    return RecordRows(by_body[is_start], by_body[is_stop], np.cumsum(counts).tolist(), [])


def _find(data: Buffer, position: int, stop: int, count: int, starts: list[int], pause: int) -> tuple[int, int]:
    """Add where ``count`` records begin; returns where the last ends.

    A negative length is left for `read_columns` to see. ``pause`` is how many records are passed
    before the next look for a run. It is returned, too, for the next body.
    """
    add = starts.append
    left, looked_at = count, _FIRST_LOOK
    try:
        while left:
            looked_at = min(looked_at, left)
            run, stride = _run(data, position, stop, looked_at)
            starts += range(position, position + run * stride, stride)
            position += run * stride
            left -= run
            # A look costs as much as it could find. So it is long only after long runs, or
            # many short runs of many records would take time in proportion to the square of
            # their number.
            if run and run == looked_at:
                looked_at *= 2
                continue
            looked_at = _FIRST_LOOK
            # Where sizes differ there are few runs: look for one less and less often.
            pause = 1 if run else min(2 * pause + _LEAST_RUN, _LONGEST_PAUSE)
            singles = min(pause, left)
            left -= singles
            for _ in range(singles):
                add(position)
                byte = data[position]
                if byte < 0x80:
                    position += 1 + (byte >> 1)
                elif (following := data[position + 1]) < 0x80:
                    # = 2 + ((byte & 0x7F | following << 7) >> 1): bit 7 of byte is set
                    position += (byte >> 1) + (following << 6) - 62
                else:
                    size, after = read_varint(data, position)
                    position = after + max(size, 0)
    except IndexError:
        raise CorruptDataError("a record is cut off") from None
    return position, pause


def _run(data: Buffer, position: int, stop: int, most: int) -> tuple[int, int]:
    """How many records of the same size follow one another here, at most ``most``, and their size.

    0 for a few. The first says where the second must begin. If the bytes there are the same length,
    it says where the third begins. So the bytes of all lengths are compared at once.
    """
    if most < _LEAST_RUN:
        return 0, 1
    size, content = read_varint(data, position)
    stride = content + size - position
    run = min(most, (stop - position) // stride) if size > 0 else 0
    if run < _LEAST_RUN:
        return 0, 1
    end = position + run * stride
    for at in range(position, content):
        column = bytes(data[at:end:stride])
        run = min(run, len(column) - len(column.lstrip(column[:1])))
    return (run, stride) if run >= _LEAST_RUN else (0, 1)


def read_columns(data: Buffer, start: Integers, stop: Integers) -> tuple[RecordColumns, list[int]]:
    """The fields of the records in these rows of `find_records`, and the numbers of rows
    whose record is damaged.

    The fields of a damaged record mean nothing, but its key and value lie within it.
    """
    view = np.frombuffer(data, np.uint8)
    bad = np.zeros(len(start), np.bool_)
    size, content = _varints(view, start, bad)
    bad |= (size < _SMALLEST_CONTENT_BYTES) | (content + size != stop)
    timestamp_delta, offset_start = _varints(view, content + 1, bad, MOST_VARLONG_BYTES)
    offset_delta, position = _varints(view, offset_start, bad)
    key_size, key_start = _varints(view, position, bad)
    value_size, value_start = _varints(view, _after(key_start, key_size, stop, bad), bad)
    header_count, headers_start = _varints(view, _after(value_start, value_size, stop, bad), bad)
    left = stop - headers_start
    # A header has at least two bytes. Without headers the record ends here.
    bad |= (header_count < 0) | (header_count * 2 > left) | ((header_count == 0) & (left != 0))
    columns = RecordColumns(
        timestamp_delta,
        offset_start,
        offset_delta,
        key_start,
        key_size,
        value_start,
        value_size,
        headers_start,
        header_count,
    )
    return columns, bad.nonzero()[0].tolist() if bad.any() else []


def read_deltas(data: Buffer, start: Integers) -> tuple[Integers, Integers]:
    """The timestamp and offset deltas of records that are known to be sound."""
    view = np.frombuffer(data, np.uint8)
    bad = np.zeros(len(start), np.bool_)
    _, content = _varints(view, start, bad)
    timestamp_delta, position = _varints(view, content + 1, bad, MOST_VARLONG_BYTES)
    offset_delta, _ = _varints(view, position, bad)
    return timestamp_delta, offset_delta


def damaged_headers(data: Buffer, stop: Integers, columns: RecordColumns) -> list[int]:
    """The numbers of rows whose headers do not fill their record as they say.

    Where many records have headers, one of each record is read at once.
    """
    view = np.frombuffer(data, np.uint8)
    rows = columns.header_count.nonzero()[0]
    position, left, stop = columns.headers_start[rows], columns.header_count[rows], stop[rows]
    damaged: list[int] = []
    while rows.size > _FEW_ROWS:
        bad = np.zeros(rows.size, np.bool_)
        key_size, start = _varints(view, position, bad)
        bad |= key_size < 0
        value_size, start = _varints(view, _after(start, key_size, stop, bad), bad)
        position = _after(start, value_size, stop, bad)
        left -= 1
        bad |= (position > stop) | ((left == 0) & (position != stop))
        damaged += rows[bad].tolist()
        more = ~bad & (left > 0)
        rows, position, left, stop = rows[more], position[more], left[more], stop[more]
    for row, at, end, count in zip(rows.tolist(), position.tolist(), stop.tolist(), left.tolist(), strict=True):
        try:
            skip_headers(data, at, end, count)
        except CorruptDataError:
            damaged.append(row)
    return damaged


def _after(start: Integers, size: Integers, stop: Integers, bad: npt.NDArray[np.bool_]) -> Integers:
    """Where a field ends. One whose size is impossible becomes null."""
    wrong = (size < -1) | (size > stop - start)
    if wrong.any():
        bad |= wrong
        size[wrong] = -1
    following: Integers = start + np.maximum(size, 0)
    return following


def _varints(
    data: npt.NDArray[np.uint8], positions: Integers, bad: npt.NDArray[np.bool_], most_bytes: int = MOST_VARINT_BYTES
) -> tuple[Integers, Integers]:
    """The zigzag varints at ``positions``, and the positions after them.

    A varint past the end of the data has some value; its record is damaged because it
    ends after its ``stop``.
    """
    byte = data.take(positions, mode="clip")
    value: Integers = _ONE_BYTE_NUMBERS.take(byte)
    after = positions + 1
    rows = (byte >= 0x80).nonzero()[0]
    if rows.size:
        value[rows], after[rows] = _long_varints(data, byte[rows], after[rows], rows, bad, most_bytes)
    return value, after


def _long_varints(
    data: npt.NDArray[np.uint8],
    byte: npt.NDArray[np.uint8],
    after: Integers,
    rows: Integers,
    bad: npt.NDArray[np.bool_],
    most_bytes: int,
) -> tuple[Integers, Integers]:
    """Like `_varints`, for these ``rows``, which have more bytes than the first."""
    raw = (byte & 0x7F).astype(np.uint64)
    byte = data.take(after, mode="clip")
    raw |= (byte & 0x7F).astype(np.uint64) << np.uint64(7)
    after += 1
    longer = (byte >= 0x80).nonzero()[0]
    for shift in range(14, 7 * most_bytes, 7):
        if not longer.size:
            break
        byte = data.take(after[longer], mode="clip")
        raw[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte >= 0x80]
    bad[rows[longer]] = True
    if most_bytes == MOST_VARINT_BYTES:
        bad[rows[raw > _LARGEST_VARINT]] = True
    value: Integers = (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
    return value, after
