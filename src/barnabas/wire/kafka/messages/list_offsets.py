"""ListOffsets (API key 2)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, int64, string

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
]


class ListOffsetsPartition(Struct):
    """``topics[].partitions[]`` of `ListOffsetsRequest`."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """``topics[]`` of `ListOffsetsRequest`."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array_of(ListOffsetsPartition)


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    """API key 2, versions 1 to 11."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array_of(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """``topics[].partitions[]`` of `ListOffsetsResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """``topics[]`` of `ListOffsetsResponse`."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array_of(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    """API key 2, versions 1 to 11."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array_of(ListOffsetsTopicResponse)
