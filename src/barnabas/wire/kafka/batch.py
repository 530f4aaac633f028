"""Record batches of magic 2, as they are on the wire and on disk: headers, CRC, and changes in place.

A batch starts with 61 bytes, big-endian::

     0  base_offset             int64    set by the leader; not covered by the CRC
     8  batch_length            int32    bytes after this field
    12  partition_leader_epoch  int32    set by the leader; not covered by the CRC
    16  magic                   int8     2
    17  crc                     uint32   CRC-32C of everything from attributes to the end
    21  attributes              int16    0-2 compression, 3 log append time, 4 transactional, 5 control, 6 horizon
    23  last_offset_delta       int32
    27  base_timestamp          int64    the delete horizon where bit 6 is set
    35  max_timestamp           int64
    43  producer_id             int64    -1 without idempotence
    51  producer_epoch          int16
    53  base_sequence           int32
    57  record_count            int32
    61  records                          compressed as a whole

These are free functions on ``(buffer, offset)`` for hot paths: none of them looks into the records; `records` does.
Batches of magic 0 and 1 (before Apache Kafka 0.11) are recognised and refused. Bad bytes raise KafkaError, with
CORRUPT_MESSAGE unless said otherwise.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.files import Buffer
from barnabas.wire.kafka.compression import Compression
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "PREFIX_BYTES",
    "BatchHeader",
    "assign_offsets",
    "check_crc",
    "check_produced",
    "compute_crc",
    "crc_is_valid",
    "iterate_batches",
    "read_header",
    "set_log_append_time",
    "set_max_timestamp",
    "size_at",
]

MAGIC = 2
HEADER_BYTES = 61
PREFIX_BYTES = 12
"""Base offset and length: with these a reader finds the next batch."""
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

COMPRESSION_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qi")
_LONG = Struct(">q")
_INT = Struct(">i")
_SHORT = Struct(">h")
_CRC = Struct(">I")
_MAX_TIMESTAMP_AT = 35
_PARTITION_LEADER_EPOCH_AT = 12
_ZSTD_FROM_PRODUCE_VERSION = 7


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
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
        """The whole batch, header included."""
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequence numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """A `Compression`, or a number above those that exist."""
        return self.attributes & COMPRESSION_BITS

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` is the leader's, and the timestamp of all records."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop tombstones and markers of this batch (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """The header of the batch at ``offset``; the batch itself may be cut off (see `iterate_batches`).

    Raises KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 and 1, CORRUPT_MESSAGE for what is no batch at all.
    """
    if len(buffer) - offset < HEADER_BYTES:
        if len(buffer) - offset > MAGIC_AT:
            _check_magic(buffer[offset + MAGIC_AT])
        raise _corrupt(f"{len(buffer) - offset} bytes are no record batch: its header takes {HEADER_BYTES}")
    header = BatchHeader._make(HEADER.unpack_from(buffer, offset))
    if header.magic != MAGIC:
        _check_magic(header.magic)
    if header.batch_length < HEADER_BYTES - PREFIX_BYTES:
        raise _corrupt(f"a record batch cannot have {header.batch_length} bytes after its length")
    return header


def _check_magic(magic: int) -> None:
    if magic in (0, 1):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"messages in format {magic}, from before Apache Kafka 0.11, are not supported",
        )
    if magic != MAGIC:
        raise _corrupt(f"record batches of magic {magic} are not known")


def size_at(buffer: Buffer, offset: int = 0) -> int:
    """The size in bytes that the batch at ``offset`` claims, from its first 12 bytes."""
    size: int = _INT.unpack_from(buffer, offset + 8)[0] + PREFIX_BYTES
    return size


def iterate_batches(buffer: Buffer, offset: int = 0, *, partial_end: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's offset in the buffer and its header, with the batch whole inside the buffer.

    A last batch that is cut off raises CORRUPT_MESSAGE, or with ``partial_end`` ends the iteration, as at the end of
    what a fetch returned.
    """
    end = len(buffer)
    while offset < end:
        if partial_end and (end - offset < HEADER_BYTES or size_at(buffer, offset) > end - offset):
            return
        header = read_header(buffer, offset)
        size = header.batch_length + PREFIX_BYTES
        if size > end - offset:
            raise _corrupt(f"a record batch of {size} bytes is cut off after {end - offset}")
        yield offset, header
        offset += size


def compute_crc(buffer: Buffer, offset: int, size_bytes: int) -> int:
    """CRC-32C of the batch of ``size_bytes`` at ``offset``."""
    value: int = crc32c(memoryview(buffer)[offset + ATTRIBUTES_AT : offset + size_bytes])
    return value


def crc_is_valid(buffer: Buffer, offset: int, header: BatchHeader) -> bool:
    """Whether the stored CRC is that of the bytes; the batch must be whole inside the buffer."""
    return compute_crc(buffer, offset, header.batch_length + PREFIX_BYTES) == header.crc


def check_crc(buffer: Buffer, offset: int, header: BatchHeader) -> None:
    """Raise CORRUPT_MESSAGE unless the CRC holds."""
    computed = compute_crc(buffer, offset, header.batch_length + PREFIX_BYTES)
    if computed != header.crc:
        raise _corrupt(f"a record batch has the CRC {header.crc}, its bytes have {computed}")


def assign_offsets(buffer: bytearray | memoryview, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch into the batch; its CRC covers neither."""
    _LONG.pack_into(buffer, offset, base_offset)
    _INT.pack_into(buffer, offset + _PARTITION_LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, offset: int, timestamp_ms: int) -> None:
    """Make ``timestamp_ms`` the time of all records of the batch, and its CRC right again."""
    (attributes,) = _SHORT.unpack_from(buffer, offset + ATTRIBUTES_AT)
    _SHORT.pack_into(buffer, offset + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    set_max_timestamp(buffer, offset, timestamp_ms)


def set_max_timestamp(buffer: bytearray | memoryview, offset: int, timestamp_ms: int) -> None:
    """Write the batch's highest timestamp, and its CRC."""
    _LONG.pack_into(buffer, offset + _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(buffer, offset + CRC_AT, compute_crc(buffer, offset, size_at(buffer, offset)))


def check_produced(buffer: Buffer, produce_version: int) -> BatchHeader:
    """Check what a client sent for one partition by its header and CRC alone; the batch may then be appended as it is.

    The rules are Apache Kafka's (ProduceRequest and LogValidator): exactly one batch of magic 2 that is whole, offsets
    that match the record count, no control batch, a sequence number where there is a producer id, zstd from Produce v7.
    What only the records can show (their own deltas, keys, timestamps) is `records.check_records`'s business.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE.
    """
    end = len(buffer)
    if end > MAGIC_AT and buffer[MAGIC_AT] != MAGIC:
        raise _invalid(f"record batches must have magic {MAGIC}, not {buffer[MAGIC_AT]}")
    header = read_header(buffer)
    size = header.batch_length + PREFIX_BYTES
    if size > end:
        raise _corrupt(f"a record batch of {size} bytes is cut off after {end}")
    if size < end:
        raise _invalid("a produce request must hold exactly one record batch for a partition")
    compression = header.attributes & COMPRESSION_BITS
    if compression > Compression.ZSTD:
        raise _invalid(f"{compression} is no compression type")
    if compression == Compression.ZSTD and produce_version < _ZSTD_FROM_PRODUCE_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {_ZSTD_FROM_PRODUCE_VERSION}, not {produce_version}",
        )
    check_crc(buffer, 0, header)
    if header.record_count <= 0:
        raise _invalid(f"a record batch cannot count {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise _invalid(f"{header.record_count} records do not have {header.last_offset_delta} as last offset delta")
    if header.attributes & CONTROL_BIT:
        raise _invalid("clients must not write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise _invalid(f"a batch of producer {header.producer_id} has the sequence number {header.base_sequence}")
    return header


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
