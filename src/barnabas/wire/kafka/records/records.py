"""The records of a batch: read one by one, and built into a batch.

Kafka: DefaultRecord, MemoryRecordsBuilder. A record: length, attributes (a byte, unused), timestamp
delta, offset delta, key, value, headers; all lengths, counts and deltas are zigzag varints.

A broker's hot path never comes here: records are read and written only by tools, coordinators,
conversion of compression and compaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.ids import NO_LEADER_EPOCH
from barnabas.wire.kafka.records.batch_header import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    seal,
)
from barnabas.wire.kafka.records.compression import CompressionType, compress, decompress
from barnabas.wire.kafka.records.varints import read_varint, read_varlong, varint

__all__ = [
    "SMALLEST_RECORD_BYTES",
    "Pair",
    "Record",
    "build_batch",
    "build_batch_around",
    "encode_record_of_batch",
    "pairs_of",
    "read_pairs",
    "read_records",
    "read_times",
    "unpack_records",
]

SMALLEST_RECORD_BYTES = 7
_MAX_UNPACKED_BYTES = 256 * 1024 * 1024
_NULL = b"\1"  # the length -1


Pair = tuple[bytes | None, bytes | None]
"""A record's key and value."""


class Record(NamedTuple):
    """One record with its absolute offset and timestamp (ms since the Unix epoch)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def unpack_records(
    buffer: Buffer, header: BatchHeader, offset: int = 0, *, limit_bytes: int = _MAX_UNPACKED_BYTES
) -> Buffer:
    """The records of the batch at ``offset``, decompressed.

    Raises `CorruptDataError`, and `KafkaError` for an unknown codec."""
    body = memoryview(buffer)[offset + HEADER_BYTES : offset + header.size_bytes]
    return decompress(header.compression, body, limit_bytes)


def read_records(buffer: Buffer, offset: int = 0, *, limit_bytes: int = _MAX_UNPACKED_BYTES) -> Iterator[Record]:
    """The records of the batch at ``offset``, unpacked to at most ``limit_bytes``.

    Raises `CorruptDataError` for records that do not fill the batch as it says. The
    CRC is not checked.
    """
    header = read_header(buffer, offset)
    data = memoryview(unpack_records(buffer, header, offset, limit_bytes=limit_bytes))
    if not 0 <= header.record_count <= len(data) // SMALLEST_RECORD_BYTES:
        raise CorruptDataError(f"{header.record_count} records in {len(data)} bytes")
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    position = 0
    try:
        for _ in range(header.record_count):
            size, position = read_varint(data, position)
            stop = position + size
            if size < SMALLEST_RECORD_BYTES - 1 or stop > len(data):
                raise CorruptDataError(f"a record of {size} bytes, {len(data) - position} are left")
            timestamp_delta, position = read_varlong(data, position + 1)
            offset_delta, position = read_varint(data, position)
            key, position = _nullable_bytes(data, position, stop)
            value, position = _nullable_bytes(data, position, stop)
            header_count, position = read_varint(data, position)
            headers: Sequence[tuple[str, bytes | None]] = ()
            if header_count:
                headers, position = _headers(data, position, stop, header_count)
            if position != stop:
                raise CorruptDataError(f"a record ends {stop - position} bytes before its length does")
            timestamp = fixed_timestamp if fixed_timestamp is not None else base_timestamp + timestamp_delta
            yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError:
        raise CorruptDataError("a record is cut off") from None
    if position != len(data):
        raise CorruptDataError(f"{len(data) - position} bytes after the last record")


def read_pairs(buffer: Buffer, offset: int = 0, *, limit_bytes: int = _MAX_UNPACKED_BYTES) -> list[Pair]:
    """Keys and values of the records of the batch at ``offset``: `read_records` without
    all that surrounds them.

    Raises `CorruptDataError` where `read_records` does, but for headers, which are not read.
    """
    header = read_header(buffer, offset)
    return pairs_of(bytes(unpack_records(buffer, header, offset, limit_bytes=limit_bytes)), header.record_count)


def pairs_of(data: bytes, record_count: int) -> list[Pair]:
    """Like `read_pairs`, for records that are unpacked."""
    end = len(data)
    if not 0 <= record_count <= end // SMALLEST_RECORD_BYTES:
        raise CorruptDataError(f"{record_count} records in {end} bytes")
    pairs: list[Pair] = []
    position = 0
    try:
        for _ in range(record_count):
            # Almost all of these numbers have one byte: a call for each would double the time.
            byte = data[position]
            if byte & 0x81:
                size, position = read_varint(data, position)
            else:
                size = byte >> 1
                position += 1
            stop = position + size
            if size < SMALLEST_RECORD_BYTES - 1 or stop > end:
                raise CorruptDataError(f"a record of {size} bytes, {end - position} are left")
            position += 2 if data[position + 1] < 0x80 else _varint_bytes(data, position + 1) + 1
            position += 1 if data[position] < 0x80 else _varint_bytes(data, position)
            byte = data[position]
            if byte & 0x81 or position + (byte >> 1) >= stop:
                key, position = _nullable_bytes(data, position, stop)
            else:
                begin = position + 1
                position = begin + (byte >> 1)
                key = data[begin:position]
            byte = data[position]
            if byte & 0x81 or position + (byte >> 1) >= stop:
                value, position = _nullable_bytes(data, position, stop)
            else:
                position += 1
                value = data[position : position + (byte >> 1)]
            pairs.append((key, value))
            position = stop
    except IndexError:
        raise CorruptDataError("a record is cut off") from None
    if position != end:
        raise CorruptDataError(f"{end - position} bytes after the last record")
    return pairs


def read_times(buffer: Buffer, offset: int = 0, *, limit_bytes: int = _MAX_UNPACKED_BYTES) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record of the batch at ``offset``.

    Keys, values and headers are passed over. Raises `CorruptDataError` for records
    that cannot be read.
    """
    header = read_header(buffer, offset)
    data = unpack_records(buffer, header, offset, limit_bytes=limit_bytes)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position = 0
    try:
        for _ in range(header.record_count):
            size, position = read_varint(data, position)
            stop = position + size
            if size < SMALLEST_RECORD_BYTES - 1:
                raise CorruptDataError(f"a record of {size} bytes")
            timestamp_delta, position = read_varlong(data, position + 1)
            offset_delta, position = read_varint(data, position)
            yield base_offset + offset_delta, base_timestamp + timestamp_delta
            position = stop
    except IndexError:
        raise CorruptDataError("a record is cut off") from None


def _varint_bytes(data: bytes, position: int) -> int:
    return read_varlong(data, position)[1] - position


def _nullable_bytes(data: Buffer, position: int, stop: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        if size != -1:
            raise CorruptDataError(f"a length of {size}")
        return None, position
    end = position + size
    if end > stop:
        raise CorruptDataError(f"a field of {size} bytes, {stop - position} are left")
    return bytes(data[position:end]), end


def _headers(data: memoryview, position: int, stop: int, count: int) -> tuple[list[tuple[str, bytes | None]], int]:
    if not 0 <= count <= (stop - position) // 2:
        raise CorruptDataError(f"{count} headers in {stop - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _nullable_bytes(data, position, stop)
        value, position = _nullable_bytes(data, position, stop)
        if key is None:
            raise CorruptDataError("a record header without a key")
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError:
            raise CorruptDataError("a record header's key is not UTF-8") from None
    return headers, position


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    compression: CompressionType = CompressionType.NONE,
    level: int | None = None,
    log_append_time: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of at least one record.

    Offsets are the records' own; gaps are kept, as compaction leaves them. ``base_offset`` is the
    first record's unless given.
    """
    body = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    base = -1
    last = -1
    count = 0
    for record in records:
        if not count:
            base = record.offset if base_offset is None else base_offset
            base_timestamp = max_timestamp = record.timestamp
        elif record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        last = record.offset
        body += _record_bytes(record, base, base_timestamp)
        count += 1
    if not count:
        raise ValueError("a batch needs a record")
    packed = compress(compression, body, level=level)
    attributes = int(compression)
    attributes |= LOG_APPEND_TIME if log_append_time else 0
    attributes |= TRANSACTIONAL if is_transactional else 0
    attributes |= CONTROL if is_control else 0
    batch = bytearray(
        HEADER.pack(
            base,
            HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
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
            count,
        )
    )
    batch += packed
    seal(batch)
    return batch


def build_batch_around(
    records: Buffer,
    record_count: int,
    timestamp: int,
    compression: CompressionType = CompressionType.NONE,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """One batch of records that are encoded already: with offset deltas from 0 on,
    and timestamp deltas of 0."""
    packed = compress(compression, records)
    batch = bytearray(
        HEADER.pack(
            0,
            HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            int(compression) | (TRANSACTIONAL if is_transactional else 0),
            record_count - 1,
            timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    )
    batch += packed
    seal(batch)
    return batch


def encode_record_of_batch(offset_delta: int, key: bytes, value: bytes) -> bytes:
    """A record without headers, as `build_batch_around` takes it."""
    return _record_bytes(Record(offset_delta, 0, key, value), 0, 0)


def _record_bytes(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    parts = [b"\0", varint(timestamp - base_timestamp), varint(offset - base_offset)]
    parts += (_NULL,) if key is None else (varint(len(key)), key)
    parts += (_NULL,) if value is None else (varint(len(value)), value)
    parts.append(varint(len(headers)))
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (_NULL,) if content is None else (varint(len(content)), content)
    inner = b"".join(parts)
    return varint(len(inner)) + inner
