"""Checks a Produce request before its batch goes to the log, which checks the batch itself.

In Kafka: `ReplicaManager.isValidRequiredAcks`, the check of internal topics in `ReplicaManager.appendToLocalLog`, and
`ProduceRequest.validateRecords`.
"""

from barnabas.base.files import Buffer, FileSlice
from barnabas.broker.metadata.cache import INTERNAL_TOPICS
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import ATTRIBUTES_BYTE, COMPRESSION_MASK, TRANSACTIONAL
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.schema import Records

__all__ = ["validate_request"]

_ZSTD_VERSION = 7
_ADMIN_CLIENT = "__admin_client"


def validate_request(topic: str, records: Records, acks: int, client_id: str | None, version: int) -> Buffer:
    """Check what a Produce request asks for one partition; return the batch to append.

    Raises `KafkaError`: INVALID_REQUIRED_ACKS, INVALID_TOPIC_EXCEPTION for an internal topic,
    UNSUPPORTED_COMPRESSION_TYPE, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch, which no
    coordinator here could end.
    """
    if not -1 <= acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic in INTERNAL_TOPICS and client_id != _ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    if records is None or isinstance(records, FileSlice):
        return b""
    if len(records) > ATTRIBUTES_BYTE:
        attributes = records[ATTRIBUTES_BYTE]
        if attributes & TRANSACTIONAL:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if version < _ZSTD_VERSION and attributes & COMPRESSION_MASK == CompressionType.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests with version {version} are not allowed to use ZStandard compression",
            )
    return records
