"""Produced batches whose records a leader must read, and those that it builds again. Kafka: LogValidator.

Records are read where the topic has another codec than the producer (the batch is built again with the topic's), where
a compacted topic needs keys, and where timestamps are limited.
"""

from collections.abc import Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.append_checks import timestamp_error, unpacked_limit_bytes
from barnabas.log.producer_state import Origin
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import COMPRESSION_MASK, BatchHeader, HeaderFields
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch, check_records, read_records

__all__ = ["RejectedRecordsError", "convert_batch", "must_look_inside"]

_NO_LIMIT = (1 << 63) - 1


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


def must_look_inside(fields: HeaderFields, config: LogConfig, origin: int, now_ms: int) -> bool:
    """Whether a batch's header is not enough to take it. The broker's own batches are taken as they are."""
    if origin != Origin.CLIENT:
        return False
    codec = config.codec
    return (
        (codec is not None and codec != fields[5] & COMPRESSION_MASK)
        or config.cleanup_compact
        or config.timestamp_before_max_ms != _NO_LIMIT
        or (fields[8] - now_ms > config.timestamp_after_max_ms and not config.log_append_time)
    )


def convert_batch(batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> Buffer:
    """Check every record of a batch; returns it, or its records in a new batch with the topic's codec.

    Raises `RejectedRecordsError` with INVALID_RECORD (no key on a compacted topic) or INVALID_TIMESTAMP; `KafkaError`
    with CORRUPT_MESSAGE, and MESSAGE_TOO_LARGE for what grew past max.message.bytes.
    """
    header = BatchHeader._make(fields)
    limit_bytes = unpacked_limit_bytes(config)
    check_records(batch, 0, header, limit_bytes)
    try:
        records = list(read_records(batch, limit_bytes=limit_bytes))
    except CorruptDataError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    found = ((n, _record_error(record, config, now_ms)) for n, record in enumerate(records))
    errors = [(n, error) for n, error in found if error is not None]
    if errors:
        raise RejectedRecordsError(errors)
    if config.codec is None or config.codec == header.compression:
        return batch
    converted = build_batch(
        records,
        compression=CompressionType(config.codec),
        level=config.compression_level,
        log_append_time=header.is_log_append_time,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    if len(converted) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {len(converted)} bytes in the topic's codec, max.message.bytes allows "
            f"{config.max_message_bytes}",
        )
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
