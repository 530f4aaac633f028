"""DescribeProducers (API key 61)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "PartitionResponse",
    "ProducerState",
    "TopicRequest",
    "TopicResponse",
]


class TopicRequest(Struct):
    """``topics[]`` of `DescribeProducersRequest`."""

    name: str = string()
    partition_indexes: list[int] = array_of("int32")


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    """API key 61, versions 0."""

    topics: list[TopicRequest] = array_of(TopicRequest)


class ProducerState(Struct):
    """``topics[].partitions[].active_producers[]`` of `DescribeProducersResponse`."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """``topics[].partitions[]`` of `DescribeProducersResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array_of(ProducerState)


class TopicResponse(Struct):
    """``topics[]`` of `DescribeProducersResponse`."""

    name: str = string()
    partitions: list[PartitionResponse] = array_of(PartitionResponse)


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """API key 61, versions 0."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array_of(TopicResponse)
