"""Record batches of magic 2, as they stand in segments, in Produce requests and in Fetch responses.

Layout, big-endian:

    offset size
     0      8   base offset                     set by the leader; outside the CRC
     8      4   length of all that follows
    12      4   partition leader epoch          set by the leader; outside the CRC
    16      1   magic (2)
    17      4   CRC32C of all that follows
    21      2   attributes: bits 0-2 compression, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23      4   last offset delta
    27      8   base timestamp (delete horizon where bit 6 is set)
    35      8   max timestamp
    43      8   producer id
    51      2   producer epoch
    53      4   base sequence
    57      4   number of records
    61          records, compressed as one block

A record: length, attributes (a byte, unused), timestamp delta, offset delta, key, value, headers; all lengths, counts and
deltas are zigzag varints. Source: Kafka's protocol guide, "Record Batch"; KIP-98; KIP-534.

Hot paths work on ``(buffer, offset)`` and never look behind the header: `read_header`, `check_batch`, `assign_offsets`.
Records are read and written only where somebody must: tools, coordinators, conversion of compression, compaction.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.compression import CompressionType, compress, decompress
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "CONTROL",
    "HEADER",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD_BYTES",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TRANSACTIONAL",
    "BatchHeader",
    "EndMarker",
    "Record",
    "assign_offsets",
    "build_batch",
    "build_end_marker",
    "check_batch",
    "check_records",
    "read_end_marker",
    "read_header",
    "read_headers",
    "read_records",
    "set_log_append_time",
]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LOG_OVERHEAD_BYTES = 12
"""What a batch's length does not count: the base offset and the length itself."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
MAGIC = 2

_CRC_START = 21
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_UNPACKED_BYTES = 256 * 1024 * 1024
_SMALLEST_RECORD_BYTES = 7
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class BatchHeader(NamedTuple):
    """A batch's header, field by field in their order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header and length included."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0; -1 where the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> CompressionType:
        """Raises KafkaError for a codec that nobody has defined."""
        try:
            return CompressionType(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {self.attributes & COMPRESSION_MASK}"
            ) from None

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may go (KIP-534); None where compaction has not said."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


class Record(NamedTuple):
    """One record with its absolute offset and timestamp (ms since the Unix epoch)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class EndMarker(NamedTuple):
    """The record of a control batch that ends a transaction (KIP-98)."""

    is_abort: bool
    coordinator_epoch: int


# Headers and whole batches


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """The header at ``offset``; the caller knows that `HEADER_BYTES` are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, offset))


def check_batch(buffer: Buffer, offset: int, end: int) -> BatchHeader:
    """The header of the whole and undamaged batch at ``offset``; it ends at ``offset + size_bytes``.

    Raises KafkaError: CORRUPT_MESSAGE where length or CRC are wrong, UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 and 1,
    INVALID_RECORD for headers that contradict themselves. Records are not looked at.
    """
    if end - offset < HEADER_BYTES:
        if end - offset > 16 and buffer[offset + 16] in (0, 1):
            raise _old_magic(buffer[offset + 16])
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch header of {end - offset} bytes, {HEADER_BYTES} are needed"
        )
    header = BatchHeader._make(HEADER.unpack_from(buffer, offset))
    magic = header.magic
    if magic != MAGIC:
        if magic in (0, 1):
            raise _old_magic(magic)
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is unknown")
    stop = offset + header.length + LOG_OVERHEAD_BYTES
    if header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES or stop > end:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of length {header.length} where {end - offset} bytes are left"
        )
    if crc32c(memoryview(buffer)[offset + _CRC_START : stop]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch's CRC32C is not {header.crc:#010x} as it says")
    if header.last_offset_delta < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"last offset delta {header.last_offset_delta}")
    return header


def _old_magic(magic: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"record format {magic}: only format 2 (Kafka 0.11 and newer) is kept"
    )


def read_headers(buffer: Buffer, offset: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(offset, header) of each whole batch; stops before a batch that is cut off. CRCs are not checked.

    Raises `CorruptDataError` where a length is impossible.
    """
    stop = len(buffer) if end is None else end
    while stop - offset >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, offset))
        if header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise CorruptDataError(f"a batch of length {header.length} at byte {offset}")
        if offset + header.length + LOG_OVERHEAD_BYTES > stop:
            return
        yield offset, header
        offset += header.length + LOG_OVERHEAD_BYTES


def assign_offsets(buffer: Buffer, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Write what the leader decides into a batch; neither is covered by the CRC."""
    _BASE_OFFSET.pack_into(buffer, offset, base_offset)
    _LEADER_EPOCH.pack_into(buffer, offset + 12, leader_epoch)


def set_log_append_time(buffer: Buffer, offset: int, header: BatchHeader, timestamp_ms: int) -> None:
    """Mark the batch as stamped by the log, and compute its CRC anew."""
    _ATTRIBUTES.pack_into(buffer, offset + 21, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, offset + 35, timestamp_ms)
    _CRC.pack_into(buffer, offset + 17, crc32c(memoryview(buffer)[offset + _CRC_START : offset + header.size_bytes]))


# Records out of a batch


def read_records(buffer: Buffer, offset: int = 0, *, limit_bytes: int = _MAX_UNPACKED_BYTES) -> Iterator[Record]:
    """The records of the batch at ``offset``, unpacked to at most ``limit_bytes``.

    Raises `CorruptDataError` for records that do not fill the batch as it says. The CRC is not checked.
    """
    header = read_header(buffer, offset)
    body = memoryview(buffer)[offset + HEADER_BYTES : offset + header.size_bytes]
    data = memoryview(decompress(header.compression, body, limit_bytes))
    if not 0 <= header.record_count <= len(data) // _SMALLEST_RECORD_BYTES:
        raise CorruptDataError(f"{header.record_count} records in {len(data)} bytes")
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    position = 0
    try:
        for _ in range(header.record_count):
            size, position = _varint(data, position)
            stop = position + size
            if size < _SMALLEST_RECORD_BYTES - 1 or stop > len(data):
                raise CorruptDataError(f"a record of {size} bytes, {len(data) - position} are left")
            timestamp_delta, position = _varint(data, position + 1)
            offset_delta, position = _varint(data, position)
            key, position = _nullable_bytes(data, position, stop)
            value, position = _nullable_bytes(data, position, stop)
            header_count, position = _varint(data, position)
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
        raise CorruptDataError(f"{len(data) - position} bytes behind the last record")


def check_records(buffer: Buffer, offset: int, header: BatchHeader, limit_bytes: int) -> int:
    """What Apache's broker checks when it looks inside a produced batch; returns the size of the records unpacked.

    Offset deltas count up from 0 to the last offset delta, and the number of records agrees.
    Raises KafkaError INVALID_RECORD or CORRUPT_MESSAGE.
    """
    if header.record_count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records do not agree with the last offset delta {header.last_offset_delta}",
        )
    size = 0
    try:
        for expected, record in enumerate(read_records(buffer, offset, limit_bytes=limit_bytes)):
            if record.offset - header.base_offset != expected:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"record {expected} has offset delta {record.offset - header.base_offset}"
                )
            size += len(record.key or b"") + len(record.value or b"")
    except CorruptDataError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the position behind it; IndexError when it is cut off."""
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


def _nullable_bytes(data: memoryview, position: int, stop: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        if size != -1:
            raise CorruptDataError(f"a length of {size}")
        return None, position
    if size > stop - position:
        raise CorruptDataError(f"a field of {size} bytes, {stop - position} are left")
    return bytes(data[position : position + size]), position + size


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


# Records into a batch


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
    """One batch of at least one record. Offsets are the records' own; gaps are kept, as compaction leaves them.

    ``base_offset`` is that of the first record unless given.
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
        _append_record(body, record, base, base_timestamp)
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
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[_CRC_START:]))
    return batch


def _append_record(body: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    inner = bytearray(b"\0")
    _put_varint(inner, record.timestamp - base_timestamp)
    _put_varint(inner, record.offset - base_offset)
    _put_nullable(inner, record.key)
    _put_nullable(inner, record.value)
    _put_varint(inner, len(record.headers))
    for key, value in record.headers:
        _put_nullable(inner, key.encode())
        _put_nullable(inner, value)
    _put_varint(body, len(inner))
    body += inner


def _put_varint(out: bytearray, value: int) -> None:
    number = value << 1 if value >= 0 else (-value << 1) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1
    else:
        _put_varint(out, len(value))
        out += value


# Control batches


def build_end_marker(
    marker: EndMarker, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int, leader_epoch: int
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction in a partition."""
    key = _MARKER_KEY.pack(0, 0 if marker.is_abort else 1)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(offset, timestamp_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(buffer: Buffer, offset: int = 0) -> EndMarker | None:
    """The marker of a control batch; None for control records of other kinds. Raises `CorruptDataError`."""
    record = next(read_records(buffer, offset), None)
    if record is None or record.key is None or len(record.key) < _MARKER_KEY.size:
        raise CorruptDataError("a control batch without a control record")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise CorruptDataError("an end marker without a coordinator epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndMarker(kind == 0, coordinator_epoch)
