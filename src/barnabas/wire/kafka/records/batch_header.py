"""The header of a record batch of magic 2, as it stands in segments, in Produce
requests and in Fetch responses.

Kafka: DefaultRecordBatch. Layout, big-endian:

    offset size
     0      8   base offset                     set by the leader; outside the CRC
     8      4   length of all that follows
    12      4   partition leader epoch          set by the leader; outside the CRC
    16      1   magic (2)
    17      4   CRC32C of all that follows
    21      2   attributes: bits 0-2 compression, 3 LogAppendTime, 4 transactional, 5
                control, 6 delete horizon
    23      4   last offset delta
    27      8   base timestamp (delete horizon where bit 6 is set)
    35      8   max timestamp
    43      8   producer id
    51      2   producer epoch
    53      4   base sequence
    57      4   number of records
    61          records, compressed as one block (see `records`)

Source: Kafka's protocol guide, "Record Batch"; KIP-98; KIP-534.

Hot paths work on ``(buffer, offset)`` and never read the records: `read_header`,
`check_batch`, `assign_offsets`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.compression import CompressionType

__all__ = [
    "COMPRESSION_MASK",
    "CONTROL",
    "CRC_START",
    "DELETE_HORIZON",
    "HEADER",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD_BYTES",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TRANSACTIONAL",
    "BatchHeader",
    "HeaderFields",
    "assign_offsets",
    "check_batch",
    "clear_log_append_time",
    "read_header",
    "read_headers",
    "seal",
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
MAGIC = 2

CRC_START = 21
"""The CRC covers a batch from here, its attributes, to its end."""
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")


HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""A header as `HEADER` unpacks it, in the order of `BatchHeader`: for hot paths, which
unpack it once and pass it on."""


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
        """Raises KafkaError for a codec that is not defined."""
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


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """The header at ``offset``; the caller knows that `HEADER_BYTES` are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, offset))


def check_batch(buffer: Buffer, offset: int, end: int) -> BatchHeader:
    """The header of the whole and undamaged batch at ``offset``.

    It ends at ``offset + size_bytes``. Raises KafkaError: CORRUPT_MESSAGE where length or CRC are
    wrong, UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 and 1, INVALID_RECORD for headers that
    contradict themselves. Records are not looked at.
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
    if crc32c(memoryview(buffer)[offset + CRC_START : stop]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch's CRC32C is not {header.crc:#010x} as it says")
    if header.last_offset_delta < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"last offset delta {header.last_offset_delta}")
    return header


def _old_magic(magic: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"record format {magic}: only format 2 (Kafka 0.11 and newer) is kept"
    )


def read_headers(buffer: Buffer, offset: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(offset, header) of each whole batch; stops before a batch that is cut off.

    CRCs are not checked. Raises `CorruptDataError` where a length is impossible.
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


def set_log_append_time(batch: bytearray | memoryview, attributes: int, timestamp_ms: int) -> None:
    """Give a batch, which has these attributes now, the log's timestamp; write its CRC again."""
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, 35, timestamp_ms)
    seal(batch)


def clear_log_append_time(batch: bytearray | memoryview, attributes: int) -> None:
    """Let the records of a batch, which has these attributes now, carry their own timestamps.

    Write its CRC again."""
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes & ~LOG_APPEND_TIME)
    seal(batch)


def seal(batch: bytearray | memoryview) -> None:
    """Write the CRC of a batch that was changed or built."""
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
