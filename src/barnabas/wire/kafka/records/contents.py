"""What a leader checks of the records in a produced batch, without an object for each.

Kafka: LogValidator, DefaultRecord.

Records fill the batch exactly, and so do fields and headers their record. Offset deltas count up
from 0. `check_contents` walks a batch record by record, about 0.7 us each; of hundreds of
records it reads columns instead if numpy is loaded (see `columns`), about 0.2 us each.
`are_uniform` and `are_plain` recognise most batches for less. Nothing is kept but a few numbers,
so memory does not grow with what a client sends, and the number of records and headers that one
batch may have bounds the time.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.tuples import new_tuple
from barnabas.wire.kafka.records.compression import LARGE_BYTES
from barnabas.wire.kafka.records.headers import skip_headers
from barnabas.wire.kafka.records.records import SMALLEST_RECORD_BYTES
from barnabas.wire.kafka.records.varints import read_varint, read_varlong, read_zigzag, varint

if TYPE_CHECKING:
    from barnabas.wire.kafka.records.columns import RecordColumns

__all__ = [
    "MOST_OBJECTS",
    "Contents",
    "TooManyObjectsError",
    "UniformRun",
    "are_plain",
    "are_uniform",
    "check_body",
    "check_contents",
    "is_plain_record",
    "load_columns",
    "uniform_runs",
]

MOST_OBJECTS = 200_000
"""How many records and headers one batch may hold, compressed or not. A plain batch of 1 MB
cannot hold more records."""

_FEW_RECORDS = 4
_COPIED_BYTES = 1 << 15
"""Up to here a copy, which is read faster, costs less than it saves."""
_MANY_RECORDS = 300
_IMPORTING_PAYS = 50_000
"""Walking this many takes about as long as the import."""
_PIECE_RECORDS = 4_096
_LARGEST = 1 << 63
_MOST_PLAIN = 16_384
_WIDTHS = ((1, 0, 64), (2, 64, 8_192), (3, 8_192, _MOST_PLAIN))
"""The bytes of an offset delta as a varint, and the first and last such delta; the
last is not one of them."""
_RUN_RECORDS = 8_192
_RUNS = (*_WIDTHS[:2], *((3, first, first + _RUN_RECORDS) for first in range(_RUN_RECORDS, MOST_OBJECTS, _RUN_RECORDS)))
"""Like `_WIDTHS`, for any number of records; within one run the third byte is the same."""
_OFFSET_DELTAS = (
    (bytes(range(0, 128, 2)),),
    (bytes(range(128, 256, 2)) * 127, b"".join(bytes([at]) * 64 for at in range(1, 128))),
    (bytes(range(128, 256, 2)) * 128, b"".join(bytes([at]) * 64 for at in range(128, 256))),
)
"""For each width, the first bytes of its offset deltas as varints, and the second bytes."""
_has_columns = False
_PLAIN_BYTES = 4096


def _ends_of_records(prefix: bytes) -> list[Any]:
    """The varint of a value's size behind ``prefix``, by the bytes of both varint and value.

    None, which nothing can be compared with, stands where there is no such varint, and
    for negative numbers too.
    """
    ends: list[Any] = [None] * (2 * _PLAIN_BYTES)
    for size in range(_PLAIN_BYTES):
        for width in (1, 2):
            if size >= width == len(varint(size - width)):
                ends[size] = prefix + varint(size - width)
    # 63 in one byte more than it needs: no other number fills 65 bytes.
    ends[65] = prefix + b"\xfe\0"
    return ends


_KEYLESS_ENDS = _ends_of_records(b"\1")
_ENDS = _ends_of_records(b"")
_deltas = [varint(delta) for delta in range(64)]
"""The offset deltas that were needed so far, as varints."""


class TooManyObjectsError(CorruptDataError):
    """A batch has more records and headers than `MOST_OBJECTS`."""


class Contents(NamedTuple):
    """What was found in a batch of at least one record."""

    least_timestamp_delta: int
    largest_timestamp_delta: int
    has_keyless: bool
    """Whether some record has no key."""


def load_columns() -> None:
    """Let checks of large batches use columns from now on.

    The first call imports numpy: make it beside the event loop."""
    global _has_columns
    from barnabas.wire.kafka.records import columns  # noqa: F401

    _has_columns = True


def check_contents(data: Buffer, count: int, most_objects: int = MOST_OBJECTS) -> Contents:
    """Check the ``count`` records that ``data``, a batch without its header and not compressed,
    holds.

    Raises `CorruptDataError`, and `TooManyObjectsError` for more records and headers than
    ``most_objects``, before much time is spent.
    """
    if count * SMALLEST_RECORD_BYTES > len(data):
        raise CorruptDataError(f"{count} records do not fit into {len(data)} bytes")
    if count > most_objects:
        raise TooManyObjectsError(f"{count} records in one batch; at most {most_objects} records and headers are taken")
    if count >= _IMPORTING_PAYS and not _has_columns:
        load_columns()
    if count >= _MANY_RECORDS and _has_columns:
        return _check_columns(data, count, most_objects)
    if isinstance(data, memoryview) and len(data) <= LARGE_BYTES:
        data = bytes(data)  # which are read faster
    return _check_one_by_one(data, count, most_objects)


def check_body(data: Buffer, count: int, most_objects: int = MOST_OBJECTS, *, may_copy: bool = False) -> None:
    """Like `check_contents`, but cheaper where most batches are plain, and without a result.

    ``may_copy`` allows a copy of a large body, whose records are read faster then.
    """
    if count == 1 and is_plain_record(data):
        return
    if isinstance(data, memoryview) and len(data) <= _COPIED_BYTES:
        data = bytes(data)
    if count >= _FEW_RECORDS and are_uniform(data, count):
        return
    if isinstance(data, memoryview) and (may_copy or len(data) <= LARGE_BYTES):
        data = bytes(data)
    if count >= _FEW_RECORDS and not isinstance(data, memoryview) and are_plain(data, count):
        return
    check_contents(data, count, most_objects)


def is_plain_record(data: Buffer) -> bool:
    """Whether ``data`` is one record as `check_contents` asks for, with a key of less than 64 bytes
    or none, and without headers.

    Then its sizes follow from the size of ``data``, and are compared: 0.6 us, a third of reading
    them. False says nothing.
    """
    size = len(data)
    starts = _starts_of_record(size)
    if starts is None:
        return False
    at, head, keyless = starts
    key_size = data[at]
    if key_size == 1:
        return keyless is not None and data[: len(keyless)] == keyless and not data[size - 1]
    if key_size & 0x81 or data[:at] != head or data[size - 1]:
        return False
    at += 1 + (key_size >> 1)
    value_size = _value_size(size - 1 - at)
    return value_size is not None and data[at : at + len(value_size)] == value_size


@lru_cache(4096)
def _starts_of_record(size: int) -> tuple[int, bytes, bytes | None] | None:
    """How a record of this size in bytes begins: its length, no attributes, and deltas of 0.

    Returns where that ends, these bytes, and those of a record without a key up to its value (None
    if no such record has this size). Returns None if no record has this size."""
    for width in (1, 2, 3, 4):
        head = varint(size - width) + b"\0\0\0"
        at = len(head)
        if at == width + 3 and size > at + 2:
            value_size = _value_size(size - 1 - at - 1)
            return at, head, None if value_size is None else head + b"\1" + value_size
    return None


@lru_cache(4096)
def _value_size(left: int) -> bytes | None:
    """The varint of a value's size, where varint and value together take ``left`` bytes.

    None where no size does."""
    for width in (1, 2, 3, 4):
        if left >= width == len(varint(left - width)):
            return varint(left - width)
    return None


def are_uniform(data: Buffer, count: int, *, with_keys: bool = False) -> bool:
    """Whether ``count`` records fill ``data`` as `check_contents` asks for, and have no headers and
    fields of the same sizes. ``with_keys`` asks for keys, too.

    Then a byte of structure, such as a length, is the same in all of them, and a slice shows it in
    one step: 16 records take 3 us, 160 take 5, 100,000 about 1 ms. False says nothing. Records
    whose offset deltas have another width, or another third byte, are another run.
    """
    position = 0
    try:
        for width, first, end_delta in _RUNS:
            if first >= count:
                break
            number = min(count, end_delta) - first
            size, content = read_varint(data, position)
            stride = content + size - position
            end = position + stride * number
            offset_at = content + 2
            key_size, key_start = read_varint(data, offset_at + width)
            value_at = key_start + key_size if key_size > 0 else key_start
            value_size, value_start = read_varint(data, value_at)
            header_count_at = value_start + value_size if value_size > 0 else value_start
            if (
                key_size < -(not with_keys)
                or value_size < -1
                or data[header_count_at]
                or header_count_at + 1 != position + stride
                or end > len(data)
                or not bytes(data[content + 1 : end : stride]).isascii()  # timestamp deltas, of one byte
            ):
                return False
            at = offset_at
            for table in _OFFSET_DELTAS[width - 1]:
                if data[at:end:stride] != table[:number]:
                    return False
                at += 1
            if width == 3 and data[at] != first // _RUN_RECORDS:
                return False
            for start, stop in (
                (position, content),
                (at, key_start),  # from the third byte of an offset delta on
                (value_at, value_start),
                (header_count_at, position + stride),
            ):
                for same in range(start, stop):
                    if data[same:end:stride] != bytes((data[same],)) * number:
                        return False
            position = end
    except (IndexError, CorruptDataError):
        return False
    return position == len(data) and count <= MOST_OBJECTS


class UniformRun(NamedTuple):
    """Records of one size, one after another: where they are, and where the first one
    has its key and its value."""

    start: int
    stop: int
    key_start: int
    key_size: int
    value_start: int
    value_size: int


def uniform_runs(data: bytes, count: int) -> Iterator[UniformRun]:
    """All records of a body that `are_uniform`."""
    position = 0
    for width, first, end_delta in _RUNS:
        if first >= count:
            return
        size, content = read_varint(data, position)
        key_size, key_start = read_varint(data, content + 2 + width)
        value_size, value_start = read_varint(data, key_start + max(key_size, 0))
        stop = position + (content + size - position) * (min(count, end_delta) - first)
        yield UniformRun(position, stop, key_start, key_size, value_start, value_size)
        position = stop


def are_plain(data: bytes | bytearray, count: int, *, with_keys: bool = False) -> bool:
    """Whether ``count`` records fill ``data`` as `check_contents` asks for, have no headers, and
    are small. ``with_keys`` asks for keys, too.

    What a record without headers must have behind its timestamp follows from its size: offset
    delta, no key, and the size of a value that reaches to its last byte. So these bytes are
    compared and not read: about 0.4 us a record. False says nothing.
    """
    if count > _MOST_PLAIN:
        return False
    global _deltas
    deltas = _deltas
    if count > len(deltas):
        # Other threads may read the table: it is replaced, and never changed.
        deltas = _deltas = [varint(delta) for delta in range(min(2 * count, _MOST_PLAIN))]
    position = sizes = header_counts = 0
    has, keyless_ends, ends = data.startswith, _KEYLESS_ENDS, _ENDS
    try:
        for width, first, end_delta in _WIDTHS:
            behind_key_size = width + 1
            for delta in islice(deltas, first, min(count, end_delta)):
                size = data[position]
                if size < 0x80:
                    position += 2
                    last = position + (size >> 1) - 2
                else:
                    position += 3
                    last = position + (size >> 1) + (data[position - 2] << 6) - 66
                sizes |= size
                if data[position] > 0x7F:
                    position += 1
                    if data[position] > 0x7F:
                        return False
                position += 1
                value_at = position + behind_key_size
                key_size = data[value_at - 1]
                if key_size == 1:
                    if with_keys or not has(delta + keyless_ends[last - value_at], position):
                        return False
                else:
                    value_at += key_size >> 1
                    if key_size & 0x81 or not has(delta, position) or not has(ends[last - value_at], value_at):
                        return False
                header_counts |= data[last]
                position = last + 1
    except (IndexError, TypeError):  # a position past the data, or None among the ends
        return False
    return not header_counts and not sizes & 1 and position == len(data)


def _check_one_by_one(data: Buffer, count: int, most_objects: int = MOST_OBJECTS) -> Contents:
    """Varints of one and two bytes, most of them, are read in place; sizes and deltas are compared
    as they stand, in zigzag. A call for each would double the time.
    """
    position = stop = 0
    least, largest, has_keyless = _LARGEST, -_LARGEST, False
    headers_left = most_objects - count
    try:
        for zigzag_offset_delta in range(0, 2 * count, 2):
            # Behind the length stand attributes, which mean nothing.
            size = data[position]
            if size < 0x80:
                stop = position + 1 + (size >> 1)
                position += 2
            elif (byte := data[position + 1]) < 0x80:
                size = size & 0x7F | byte << 7
                stop = position + 2 + (size >> 1)
                position += 3
            else:
                size, position = read_zigzag(data, position)
                stop = position + (size >> 1)
                position += 1
            damage = size & 1
            delta, position = read_varlong(data, position) if data[position] else (0, position + 1)
            if delta > largest:
                largest = delta
            if delta < least:
                least = delta
            delta, position = (byte, position + 1) if (byte := data[position]) < 0x80 else read_zigzag(data, position)
            damage |= delta ^ zigzag_offset_delta
            size, position = (byte, position + 1) if (byte := data[position]) < 0x80 else read_zigzag(data, position)
            if size & 1:
                damage |= size ^ 1
                has_keyless = True
            else:
                position += size >> 1
            size = data[position]  # of the value
            if size < 0x80:
                position += 1
            elif (byte := data[position + 1]) < 0x80:
                size = size & 0x7F | byte << 7
                position += 2
            else:
                size, position = read_zigzag(data, position)
            if size & 1:
                damage |= size ^ 1
            else:
                position += size >> 1
            if data[position]:
                header_count, position = read_varint(data, position)
                headers_left = _headers_left(headers_left, header_count)
                position = skip_headers(data, position, stop, header_count)
            else:
                position += 1
            if damage or position != stop:
                raise CorruptDataError(
                    f"record {zigzag_offset_delta >> 1} has other sizes or offsets than it must have"
                )
    except IndexError:
        raise CorruptDataError(f"a record ends {stop - len(data)} bytes after its batch") from None
    if position != len(data):
        raise CorruptDataError(f"{len(data) - position} bytes after the last record")
    return new_tuple(Contents, (least, largest, has_keyless))


def _headers_left(headers_left: int, header_count: int) -> int:
    if header_count > headers_left:
        raise TooManyObjectsError(f"more than {MOST_OBJECTS} records and headers in one batch")
    return headers_left - header_count


def _check_columns(data: Buffer, count: int, most_objects: int = MOST_OBJECTS) -> Contents:
    from barnabas.wire.kafka.records.columns import Body, damaged_headers, find_records, read_columns

    rows = find_records(data, [Body(0, len(data), count)])
    for _, problem in rows.damaged:
        raise CorruptDataError(problem)
    least, largest = _LARGEST, -_LARGEST
    has_keyless = False
    headers_left = most_objects - count
    for first in range(0, count, _PIECE_RECORDS):
        stop = rows.stop[first : first + _PIECE_RECORDS]
        columns, damaged = read_columns(data, rows.start[first : first + _PIECE_RECORDS], stop)
        if damaged:
            raise CorruptDataError(f"record {first + damaged[0]} does not fill its length as it says")
        _check_offsets(columns, first)
        least = min(least, int(columns.timestamp_delta.min()))
        largest = max(largest, int(columns.timestamp_delta.max()))
        has_keyless = has_keyless or bool((columns.key_size < 0).any())
        header_count = int(columns.header_count.sum())
        if header_count:
            headers_left = _headers_left(headers_left, header_count)
            if damaged := damaged_headers(data, stop, columns):
                raise CorruptDataError(f"the headers of record {first + damaged[0]} do not fill it")
    return Contents(least, largest, has_keyless)


def _check_offsets(columns: "RecordColumns", first: int) -> None:
    deltas = columns.offset_delta
    for number in (deltas[1:] - deltas[:-1] != 1).nonzero()[0][:1].tolist():
        raise CorruptDataError(f"record {first + number + 1} has another offset delta")
    if deltas[0] != first:
        raise CorruptDataError(f"record {first} has another offset delta")
