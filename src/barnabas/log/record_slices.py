"""The records of a batch as slices of its bytes: enough to tell which may go, without making objects of those that stay.

A record: length, attributes (a byte), timestamp delta, offset delta, key, value, headers; lengths and deltas are zigzag
varints. As long as the batch keeps its base offset and base timestamp, the bytes of a record that stays are right as
they are.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError

__all__ = ["RecordSlice", "scan_records", "with_timestamp_delta"]

_LEAST_RECORD_BYTES = 7


class RecordSlice(NamedTuple):
    """A record's place in the unpacked records of its batch, and what compaction asks of it."""

    start: int
    """Where its length begins."""
    stop: int
    timestamp_delta: int
    after_timestamp: int
    """Where the offset delta begins."""
    offset_delta: int
    key: memoryview | None
    has_value: bool


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position behind it; IndexError when it is cut off."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise CorruptDataError("a varint of more than ten bytes")


def _put_varint(out: bytearray, value: int) -> None:
    number = value << 1 if value >= 0 else (-value << 1) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def scan_records(data: memoryview, count: int) -> Iterator[RecordSlice]:
    """The slices of ``count`` records that fill ``data``. Raises `CorruptDataError`.

    Varints of one byte, most of them, are read in place: this loop is what compaction spends its time in.
    """
    end = len(data)
    if not 0 <= count <= end // _LEAST_RECORD_BYTES:
        raise CorruptDataError(f"{count} records in {end} bytes")
    position = 0
    try:
        for _ in range(count):
            start = position
            byte = data[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = _varint(data, position)
            stop = position + size
            if size < _LEAST_RECORD_BYTES - 1 or stop > end:
                raise CorruptDataError(f"a record of {size} bytes, {end - position} are left")
            position += 1
            byte = data[position]
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
                after_timestamp = position + 1
            else:
                timestamp_delta, after_timestamp = _varint(data, position)
            byte = data[after_timestamp]
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                position = after_timestamp + 1
            else:
                offset_delta, position = _varint(data, after_timestamp)
            byte = data[position]
            if byte < 0x80:
                key_size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                key_size, position = _varint(data, position)
            if key_size > stop - position:
                raise CorruptDataError(f"a key of {key_size} bytes, {stop - position} are left")
            key = None
            if key_size >= 0:
                key = data[position : position + key_size]
                position += key_size
            byte = data[position]
            if byte < 0x80:
                value_size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                value_size, position = _varint(data, position)
            if value_size > stop - position:
                raise CorruptDataError(f"a value of {value_size} bytes, {stop - position} are left")
            yield RecordSlice(start, stop, timestamp_delta, after_timestamp, offset_delta, key, value_size >= 0)
            position = stop
    except IndexError:
        raise CorruptDataError("a record is cut off") from None
    if position != end:
        raise CorruptDataError(f"{end - position} bytes behind the last record")


def with_timestamp_delta(data: memoryview, record: RecordSlice, timestamp_delta: int) -> bytearray:
    """The record's bytes with another timestamp delta (its batch gets another base timestamp)."""
    delta = bytearray()
    _put_varint(delta, timestamp_delta)
    out = bytearray()
    _put_varint(out, 1 + len(delta) + record.stop - record.after_timestamp)
    out.append(0)  # attributes, unused in format 2
    out += delta
    out += data[record.after_timestamp : record.stop]
    return out
