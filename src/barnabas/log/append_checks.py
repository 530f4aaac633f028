"""Checks the headers of batches: produced ones on a leader, replicated ones on a follower.

Kafka: LogValidator.

Here are the checks of the header and the CRC, which every batch passes. `conversion` checks the
records: of compressed batches too, unless `compression.check` is off.
"""

from crc32c import crc32c

from barnabas.base.files import Buffer
from barnabas.log.producer_state import Origin
from barnabas.log.settings import CODECS, LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    HeaderFields,
)
from barnabas.wire.kafka.records.records import SMALLEST_RECORD_BYTES

__all__ = [
    "check_replicated",
    "latest_timestamp_ms",
    "timestamp_error",
    "unpack_header",
    "unpacked_limit_bytes",
    "validate_batch",
]

_LEAST_LIMIT_BYTES = 16 << 20
_GROWTH = 16
_ANY_TIME = (1 << 63) - 1


def unpacked_limit_bytes(config: LogConfig) -> int:
    """How many bytes the records of one batch may have, uncompressed."""
    return max(_LEAST_LIMIT_BYTES, _GROWTH * config.max_message_bytes)


def unpack_header(records: Buffer) -> HeaderFields:
    """The header's fields of the batch in ``records``.

    Raises `KafkaError` INVALID_RECORD when it is not there."""
    if len(records) < HEADER_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"A record batch has at least {HEADER_BYTES} bytes, not {len(records)}"
        )
    fields: HeaderFields = HEADER.unpack_from(records)
    return fields


def validate_batch(records: memoryview, header: HeaderFields, config: LogConfig, origin: int, now_ms: int) -> None:
    """Check the one batch in ``records``, whose header this is. The caller ignores trailing bytes.

    Raises `KafkaError` with the code that Kafka answers: CORRUPT_MESSAGE (CRC, lengths),
    INVALID_RECORD (no batch or several, old formats, offsets and counts that disagree, what clients
    must not write), MESSAGE_TOO_LARGE, INVALID_TIMESTAMP.
    """
    length, magic, crc = header[1], header[3], header[4]
    size = length + LOG_OVERHEAD_BYTES
    if magic != MAGIC:
        raise _invalid(f"Record batches of format 2 are taken, this one has magic {magic}")
    if size < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch's length cannot be {length}")
    if size != len(records):
        _check_rest(records, size, len(records))
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {size} bytes, max.message.bytes allows {config.max_message_bytes}",
        )
    if crc32c(records[CRC_START:size]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc})")
    _check_header(header, config, origin, now_ms)


def _check_header(header: HeaderFields, config: LogConfig, origin: int, now_ms: int) -> None:
    """Offsets, counts, attributes and timestamps that agree with each other and with the topic."""
    base_offset, length, _, _, _, attributes, delta, _, max_timestamp, _, _, _, count = header
    if delta < 0 or delta + 1 != count:
        raise _invalid(f"Inconsistent batch: offsets 0 to {delta} do not hold {count} records")
    if origin == Origin.CLIENT:
        if base_offset != 0:
            raise _invalid(f"The base offset of a produced batch is 0, not {base_offset}")
        if attributes & CONTROL:
            raise _invalid("Clients are not allowed to write control records")
    codec = attributes & COMPRESSION_MASK
    if codec >= len(CODECS):
        raise _invalid(f"Compression codec {codec} does not exist")
    if not codec:
        body_bytes = length + LOG_OVERHEAD_BYTES - HEADER_BYTES
        if count * SMALLEST_RECORD_BYTES > body_bytes:
            raise _invalid(f"{count} records do not fit into the batch's {body_bytes} bytes")
    elif count * SMALLEST_RECORD_BYTES > unpacked_limit_bytes(config):
        # Offsets are given by this count alone: a wrong count would leave a hole of
        # up to 2^31 offsets.
        raise _invalid(f"{count} records are more than a compressed batch may hold")
    if config.log_append_time:
        if attributes & LOG_APPEND_TIME:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "Producers must not set the timestamp type LogAppendTime")
    elif origin != Origin.CLIENT and max_timestamp > latest_timestamp_ms(config, now_ms):
        # A client's records are checked one by one instead, so that the response
        # names the rejected records.
        raise timestamp_error(max_timestamp, config, now_ms)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def latest_timestamp_ms(config: LogConfig, now_ms: int) -> int:
    """The largest timestamp that records may have: any where the log gives them its own."""
    return _ANY_TIME if config.log_append_time else now_ms + config.timestamp_after_max_ms


def _check_rest(records: memoryview, size: int, available: int) -> None:
    """Refuse a second batch, and a first one that is not complete.

    Other trailing bytes are cut off."""
    if size > available:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The batch announces {size} bytes and has {available}")
    if available - size >= HEADER_BYTES:
        length = HEADER.unpack_from(records, size)[1]
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or size + length + LOG_OVERHEAD_BYTES <= available:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A produce request holds one record batch for a partition")


def check_replicated(batch: memoryview, header: BatchHeader) -> None:
    """Check a leader's batch on a follower. Raises `KafkaError` CORRUPT_MESSAGE."""
    if (
        header.magic != MAGIC
        or header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES
        or header.last_offset_delta < 0
        or header.base_offset < 0
        or crc32c(batch[CRC_START:]) != header.crc
    ):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Record batch at offset {header.base_offset} is corrupt (crc {header.crc})"
        )


def timestamp_error(timestamp_ms: int, config: LogConfig, now_ms: int) -> KafkaError:
    """INVALID_TIMESTAMP with the range that would have been taken."""
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"Timestamp {timestamp_ms} is out of range: it should be within "
        f"[{now_ms - config.timestamp_before_max_ms}, {now_ms + config.timestamp_after_max_ms}]",
    )
