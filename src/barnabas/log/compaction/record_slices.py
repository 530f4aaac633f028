"""The records of a batch as slices of its bytes: enough to see which may go, without an object for each that stays.

A record: length, attributes (a byte), timestamp delta, offset delta, key, value, headers; lengths and deltas are zigzag
varints. As long as the batch keeps its base offset and base timestamp, the bytes of a record that stays are right as
they are.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.records.records import SMALLEST_RECORD_BYTES
from barnabas.wire.kafka.records.varints import put_varint, read_varint, read_varlong

__all__ = ["RecordSlice", "scan_records", "with_timestamp_delta"]


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


def scan_records(data: memoryview, count: int) -> Iterator[RecordSlice]:
    """The slices of ``count`` records that fill ``data``. Raises `CorruptDataError`.

    Varints of one byte, most of them, are read in place: this loop is what compaction spends its time in.
    """
    end = len(data)
    if not 0 <= count <= end // SMALLEST_RECORD_BYTES:
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
                size, position = read_varint(data, position)
            stop = position + size
            if size < SMALLEST_RECORD_BYTES - 1 or stop > end:
                raise CorruptDataError(f"a record of {size} bytes, {end - position} are left")
            position += 1
            byte = data[position]
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
                after_timestamp = position + 1
            else:
                timestamp_delta, after_timestamp = read_varlong(data, position)
            byte = data[after_timestamp]
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                position = after_timestamp + 1
            else:
                offset_delta, position = read_varint(data, after_timestamp)
            byte = data[position]
            if byte < 0x80:
                key_size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                key_size, position = read_varint(data, position)
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
                value_size, position = read_varint(data, position)
            if value_size > stop - position:
                raise CorruptDataError(f"a value of {value_size} bytes, {stop - position} are left")
            yield RecordSlice(start, stop, timestamp_delta, after_timestamp, offset_delta, key, value_size >= 0)
            position = stop
    except IndexError:
        raise CorruptDataError("a record is cut off") from None
    if position != end:
        raise CorruptDataError(f"{end - position} bytes after the last record")


def with_timestamp_delta(data: memoryview, record: RecordSlice, timestamp_delta: int) -> bytearray:
    """The record's bytes with another timestamp delta (its batch gets another base timestamp)."""
    delta = bytearray()
    put_varint(delta, timestamp_delta)
    out = bytearray()
    put_varint(out, 1 + len(delta) + record.stop - record.after_timestamp)
    out.append(0)  # attributes, unused in format 2
    out += delta
    out += data[record.after_timestamp : record.stop]
    return out
