"""Validates the records of produced batches, and compresses them again for topics with another
codec. Kafka: LogValidator.

The records of every batch are read, because a consumer cannot read past damaged records. They are
looked at one by one if the topic has another codec than the producer, is compacted (records need
keys), or limits timestamps.
"""

from collections.abc import Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.append_checks import latest_timestamp_ms, timestamp_error, unpacked_limit_bytes
from barnabas.log.producer_state import Origin
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
    seal,
)
from barnabas.wire.kafka.records.compression import (
    LARGE_BYTES,
    CompressionType,
    TooLargeError,
    compress,
    decompress_produced,
)
from barnabas.wire.kafka.records.contents import (
    Contents,
    TooManyObjectsError,
    are_plain,
    are_uniform,
    check_body,
    check_contents,
)
from barnabas.wire.kafka.records.packed_contents import check_packed
from barnabas.wire.kafka.records.records import Record, read_records

__all__ = [
    "RejectedRecordsError",
    "convert_unpacked",
    "is_body_checked",
    "needs_record_validation",
    "packed_records",
    "refusal_of",
    "validate_and_convert",
    "validate_records",
]

_NO_LIMIT = (1 << 63) - 1
_FEW_RECORDS = 4
_MOST_RECORDS_NAMED = 10_000


class RejectedRecordsError(KafkaError):
    """A batch of which some records must not be written; none of it was (KIP-467).

    ``record_errors`` has, for each of them, its index in the batch and what is wrong with it.
    """

    def __init__(self, found: list[tuple[int, KafkaError]]) -> None:
        codes = {error.code for _, error in found}
        code = ErrorCode.INVALID_TIMESTAMP if ErrorCode.INVALID_TIMESTAMP in codes else ErrorCode.INVALID_RECORD
        self.record_errors = [(index, error.message) for index, error in found]
        super().__init__(code, _summary(code, self.record_errors))


def _summary(code: ErrorCode, record_errors: Sequence[tuple[int, str]]) -> str:
    """Kafka's words."""
    if code is ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    first = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in record_errors[:3])
    return (
        f"One or more records have been rejected due to {len(record_errors)} record errors in total, and only showing "
        f"the first three errors at most: [{first}]"
    )


def needs_record_validation(fields: HeaderFields, config: LogConfig, origin: int, now_ms: int) -> bool:
    """Whether the topic requires that every record is checked.

    The broker's own batches are not checked."""
    if origin != Origin.CLIENT:
        return False
    codec = config.codec
    return (
        (codec is not None and codec != fields[5] & COMPRESSION_MASK)
        or config.looks_at_records
        or fields[8] > latest_timestamp_ms(config, now_ms)
    )


def validate_and_convert(batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> Buffer:
    """Check every record of a batch.

    Return the batch, or a new batch that has its records in the topic's codec. Records are not
    taken apart for another codec: they are the same bytes in each. Raises `RejectedRecordsError`
    with INVALID_RECORD (no key on a compacted topic) or INVALID_TIMESTAMP; `KafkaError` as
    `refusal_of` makes it, and MESSAGE_TOO_LARGE for what grew past max.message.bytes.
    """
    header = BatchHeader._make(fields)
    try:
        body = decompress_produced(header.compression, packed_records(batch, fields), unpacked_limit_bytes(config))
    except CorruptDataError as error:
        raise refusal_of(error) from error
    return convert_unpacked(batch, header, body, config, now_ms)


def convert_unpacked(batch: Buffer, header: BatchHeader, body: Buffer, config: LogConfig, now_ms: int) -> Buffer:
    """Like `validate_and_convert`, for a batch whose records are unpacked in ``body``."""
    keeps_codec = config.codec is None or config.codec == header.compression
    if keeps_codec and _need_no_look(body, header, config, now_ms):
        return batch
    try:
        contents = check_contents(body, header.record_count)
    except CorruptDataError as error:
        raise refusal_of(error) from error
    if not _is_valid(header, contents, config, now_ms):
        _reject_records(batch, config, now_ms)
    return batch if keeps_codec else _recompressed(body, header, contents, config)


def _need_no_look(body: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether their sizes show that all records are sound and have the keys that are asked
    for, and no more is asked.

    The latest timestamp is the header's, as in batches for topics that ask for nothing.
    """
    count = header.record_count
    if (
        count < _FEW_RECORDS
        or len(body) > LARGE_BYTES
        or config.timestamp_before_max_ms != _NO_LIMIT
        or header.max_timestamp > latest_timestamp_ms(config, now_ms)
    ):
        return False
    # Bytes are read faster than a view.
    data = bytes(body) if isinstance(body, memoryview) else body
    with_keys = config.cleanup_compact
    return are_uniform(data, count, with_keys=with_keys) or are_plain(data, count, with_keys=with_keys)


def validate_records(batch: Buffer, fields: HeaderFields, config: LogConfig) -> None:
    """Check the records of a batch that is stored as it came, if it `is_body_checked`.

    Raises `KafkaError` as `refusal_of` makes it."""
    if not is_body_checked(fields, config):
        return
    kind = CompressionType(fields[5] & COMPRESSION_MASK)
    count = fields[12]
    try:
        if kind is CompressionType.NONE:
            check_body(packed_records(batch, fields), count, may_copy=True)
        else:
            check_packed(kind, packed_records(batch, fields), count, unpacked_limit_bytes(config))
    except CorruptDataError as error:
        raise refusal_of(error) from error


def is_body_checked(fields: HeaderFields, config: LogConfig) -> bool:
    """Whether the topic wants the records of a batch checked that is stored as it came."""
    return config.compression_check or not fields[5] & COMPRESSION_MASK


def packed_records(batch: Buffer, fields: HeaderFields) -> memoryview:
    """What stands behind the header of a batch."""
    return memoryview(batch)[HEADER_BYTES : fields[1] + LOG_OVERHEAD_BYTES]


def refusal_of(error: CorruptDataError) -> KafkaError:
    """The answer to records that cannot be taken.

    The bytes are those that the producer sent, so sending them again is of no use. For
    MESSAGE_TOO_LARGE, producers divide the batch and send the parts.
    """
    is_large = isinstance(error, TooLargeError | TooManyObjectsError)
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE if is_large else ErrorCode.INVALID_RECORD, str(error))


def _is_valid(header: BatchHeader, contents: Contents, config: LogConfig, now_ms: int) -> bool:
    """Whether every record has a key if the topic needs one, and a timestamp within the range."""
    if config.cleanup_compact and contents.has_keyless:
        return False
    if config.log_append_time:
        return True
    earliest, latest = _timestamps(header, contents)
    return now_ms - earliest <= config.timestamp_before_max_ms and latest - now_ms <= config.timestamp_after_max_ms


def _timestamps(header: BatchHeader, contents: Contents) -> tuple[int, int]:
    """The timestamps of the earliest record and of the latest."""
    if header.is_log_append_time:
        return header.max_timestamp, header.max_timestamp
    base_timestamp = header.base_timestamp
    return base_timestamp + contents.least_timestamp_delta, base_timestamp + contents.largest_timestamp_delta


def _reject_records(batch: Buffer, config: LogConfig, now_ms: int) -> None:
    """Raise `RejectedRecordsError` if there are records to reject.

    It names those among the first records of the batch, or the first to reject.
    """
    errors: list[tuple[int, KafkaError]] = []
    for number, record in enumerate(read_records(batch)):
        error = _record_error(record, config, now_ms)
        if error is not None:
            errors.append((number, error))
        if errors and number >= _MOST_RECORDS_NAMED:
            break
    if errors:
        raise RejectedRecordsError(errors)


def _recompressed(body: Buffer, header: BatchHeader, contents: Contents, config: LogConfig) -> bytearray:
    assert config.codec is not None
    packed = compress(CompressionType(config.codec), body, level=config.compression_level)
    header = header._replace(
        length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
        attributes=config.codec | header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL),
        max_timestamp=_timestamps(header, contents)[1],
    )
    if header.size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {header.size_bytes} bytes in the topic's codec, max.message.bytes allows "
            f"{config.max_message_bytes}",
        )
    converted = bytearray(HEADER.pack(*header))
    converted += packed
    seal(converted)
    return converted


def _record_error(record: Record, config: LogConfig, now_ms: int) -> KafkaError | None:
    if config.cleanup_compact and record.key is None:
        return KafkaError(ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key")
    if (
        not config.log_append_time
        and record.timestamp >= 0
        and not -config.timestamp_after_max_ms <= now_ms - record.timestamp <= config.timestamp_before_max_ms
    ):
        return timestamp_error(record.timestamp, config, now_ms)
    return None
