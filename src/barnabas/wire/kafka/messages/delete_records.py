"""DeleteRecords (API key 21)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string

__all__ = [
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
]


class DeleteRecordsPartition(Struct):
    """``topics[].partitions[]`` of `DeleteRecordsRequest`."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """``topics[]`` of `DeleteRecordsRequest`."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array_of(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    """API key 21, versions 0 to 2."""

    topics: list[DeleteRecordsTopic] = array_of(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """``topics[].partitions[]`` of `DeleteRecordsResponse`."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """``topics[]`` of `DeleteRecordsResponse`."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array_of(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    """API key 21, versions 0 to 2."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array_of(DeleteRecordsTopicResult)
