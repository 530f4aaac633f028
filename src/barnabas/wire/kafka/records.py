"""The records inside batches of magic 2: reading, checking and writing them; control records.

A record, all numbers zigzag variable-length integers unless said otherwise::

    length of the rest, attributes (one byte, unused), timestamp delta, offset delta,
    key length (-1 for null), key, value length (-1 for null), value,
    header count, then for each header: key length, key in UTF-8, value length (-1 for null), value

Where a batch is compressed, its records are compressed together. A control batch holds one record; its key is a version
int16 and a type int16 (0 abort, 1 commit), its value for these two a version int16 and the coordinator epoch int32.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812  # it is a class
from typing import NamedTuple

from barnabas.base.files import Buffer
from barnabas.wire.kafka.batch import (
    CONTROL_BIT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    compute_crc,
    read_header,
)
from barnabas.wire.kafka.compression import Compression, compress, decompress
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.primitives import uvarint

__all__ = [
    "DECOMPRESSED_LIMIT_BYTES",
    "ControlType",
    "Header",
    "Record",
    "build_batch",
    "check_records",
    "control_type",
    "end_transaction_marker",
    "read_records",
]

DECOMPRESSED_LIMIT_BYTES = 128 * 1024 * 1024
"""What a batch may hold uncompressed where the caller gives no limit of its own."""

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record; ``timestamp`` in milliseconds since the epoch, or -1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class ControlType(IntEnum):
    """What a control record says."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CONTROL_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_CRC = Struct(">I")
_LEAST_RECORD_BYTES = 7  # a length, attributes, two deltas, null key, null value, no headers


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """A zigzag integer of up to 64 bits and the position after it."""
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise _invalid("a variable-length integer is too long")
    return (value >> 1) ^ -(value & 1), at


def _zigzag(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def read_records(
    buffer: Buffer,
    offset: int = 0,
    header: BatchHeader | None = None,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> Iterator[Record]:
    """The records of the batch at ``offset``, with absolute offsets; its CRC is the caller's to check.

    Raises KafkaError: CORRUPT_MESSAGE for a batch that is cut off or cannot be decompressed, MESSAGE_TOO_LARGE above
    ``limit_bytes`` uncompressed, INVALID_RECORD for broken records, or more or fewer than the header counts.
    """
    header = header or read_header(buffer, offset)
    data = _uncompressed(buffer, offset, header, limit_bytes)
    end = len(data)
    at = 0
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    appended = header.max_timestamp if header.is_log_append_time else None
    try:
        for _ in range(header.record_count):
            size, at = _varint(data, at)
            stop = at + size
            if size < 0 or stop > end:
                raise _invalid(f"a record of {size} bytes is longer than its batch")
            timestamp_delta, at = _varint(data, at + 1)
            offset_delta, at = _varint(data, at)
            key, at = _bytes(data, at, stop)
            value, at = _bytes(data, at, stop)
            count, at = _varint(data, at)
            headers = _headers(data, at, stop, count) if count or at != stop else ()
            timestamp = base_timestamp + timestamp_delta if appended is None else appended
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
            at = stop
    except IndexError:
        raise _invalid("a record is longer than its batch") from None
    if at != end:
        raise _invalid(f"{end - at} bytes follow the {header.record_count} records of a batch")


def _uncompressed(buffer: Buffer, offset: int, header: BatchHeader, limit_bytes: int) -> Buffer:
    size = header.batch_length + PREFIX_BYTES
    if size > len(buffer) - offset:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes is cut off after {len(buffer) - offset}")
    data = decompress(header.compression, memoryview(buffer)[offset + HEADER_BYTES : offset + size], limit_bytes)
    if header.record_count < 0 or header.record_count * _LEAST_RECORD_BYTES > len(data):
        raise _invalid(f"a batch counts {header.record_count} records in {len(data)} bytes")
    return data


def _bytes(data: Buffer, at: int, stop: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    end = at + size
    if end > stop:
        raise _invalid("a key or value is longer than its record")
    return bytes(data[at:end]), end


def _headers(data: Buffer, at: int, stop: int, count: int) -> list[Header]:
    if not 0 <= count * 2 <= stop - at:
        raise _invalid(f"a record counts {count} headers in {stop - at} bytes")
    headers: list[Header] = []
    for _ in range(count):
        key, at = _bytes(data, at, stop)
        if key is None:
            raise _invalid("a header's key is null")
        value, at = _bytes(data, at, stop)
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError:
            raise _invalid("a header's key is not UTF-8") from None
    if at != stop:
        raise _invalid("a record is longer than its fields")
    return headers


def check_records(
    buffer: Buffer,
    offset: int,
    header: BatchHeader,
    *,
    keys_required: bool = False,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> int:
    """Look at every record as Apache's LogValidator does, and return the highest timestamp.

    Checks that the records are whole and as many as counted, that their offset deltas run 0, 1, 2, ..., and with
    ``keys_required`` (a compacted topic) that each has a key. Raises KafkaError as `read_records` does.
    """
    highest = NO_TIMESTAMP
    expected = header.base_offset
    for record in read_records(buffer, offset, header, limit_bytes=limit_bytes):
        if record.offset != expected:
            raise _invalid(f"a record has the offset delta {record.offset - header.base_offset} in place of another")
        if keys_required and record.key is None:
            raise _invalid("records of a compacted topic need a key")
        expected += 1
        if record.timestamp > highest:
            highest = record.timestamp
    return highest


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    last_offset: int | None = None,
) -> bytearray:
    """A batch of at least one record. Offsets are the records' own, in rising order.

    ``base_offset`` is that of the first record unless given, and ``last_offset`` that of the last: a compacted batch
    keeps the range it had. Raises ValueError without records.
    """
    items = list(records)
    if not items:
        raise ValueError("a batch needs a record")
    first = items[0]
    base = first.offset if base_offset is None else base_offset
    last = items[-1].offset if last_offset is None else last_offset
    base_timestamp = first.timestamp
    out: list[bytes] = []
    for record in items:
        _put_record(out, record, base, base_timestamp)
    body: Buffer = b"".join(out)
    if compression is not Compression.NONE:
        body = compress(compression, body, level)
    attributes = int(compression)
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    if log_append_time_ms is None:
        max_timestamp = max(record.timestamp for record in items)
    else:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base,
        HEADER_BYTES - PREFIX_BYTES + len(body),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last - base,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(items),
    )
    batch += body
    _CRC.pack_into(batch, CRC_AT, compute_crc(batch, 0, len(batch)))
    return batch


def _put_record(out: list[bytes], record: Record, base_offset: int, base_timestamp: int) -> None:
    parts = [b"\0", _zigzag(record.timestamp - base_timestamp), _zigzag(record.offset - base_offset)]
    _put_bytes(parts, record.key)
    _put_bytes(parts, record.value)
    parts.append(_zigzag(len(record.headers)))
    for key, value in record.headers:
        _put_bytes(parts, key.encode())
        _put_bytes(parts, value)
    out.append(_zigzag(sum(map(len, parts))))
    out += parts


def _put_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(b"\1")
    else:
        parts.append(_zigzag(len(value)))
        parts.append(value)


def end_transaction_marker(
    offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    kind: ControlType,
    coordinator_epoch: int,
    *,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition."""
    return build_batch(
        [Record(offset, timestamp_ms, _CONTROL_KEY.pack(0, kind), _END_MARKER.pack(0, coordinator_epoch))],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_type(record: Record) -> tuple[int, int | None]:
    """The type of a control record, and for an abort or commit marker the coordinator epoch.

    The type is a `ControlType`, or the number of one that is not known here. Raises KafkaError (INVALID_RECORD).
    """
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            return kind, _END_MARKER.unpack_from(record.value or b"")[1]
    except StructError:
        raise _invalid("a control record is shorter than its fields") from None
    return kind, None
