"""OffsetDelete (API key 47)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string

__all__ = [
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


class OffsetDeleteRequestPartition(Struct):
    """``topics[].partitions[]`` of `OffsetDeleteRequest`."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """``topics[]`` of `OffsetDeleteRequest`."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array_of(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    """API key 47, versions 0."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array_of(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """``topics[].partitions[]`` of `OffsetDeleteResponse`."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """``topics[]`` of `OffsetDeleteResponse`."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array_of(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """API key 47, versions 0."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array_of(OffsetDeleteResponseTopic)
