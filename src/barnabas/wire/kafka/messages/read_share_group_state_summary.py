"""ReadShareGroupStateSummary (API key 87)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string, uuid

__all__ = [
    "PartitionData",
    "PartitionResult",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "ReadStateSummaryData",
    "ReadStateSummaryResult",
]


class PartitionData(Struct):
    """``topics[].partitions[]`` of `ReadShareGroupStateSummaryRequest`."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Struct):
    """``topics[]`` of `ReadShareGroupStateSummaryRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    """API key 87, versions 0 to 1."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array_of(ReadStateSummaryData)


class PartitionResult(Struct):
    """``results[].partitions[]`` of `ReadShareGroupStateSummaryResponse`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    """``results[]`` of `ReadShareGroupStateSummaryResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array_of(PartitionResult)


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    """API key 87, versions 0 to 1."""

    results: list[ReadStateSummaryResult] = array_of(ReadStateSummaryResult)
