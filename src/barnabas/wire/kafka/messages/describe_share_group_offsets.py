"""DescribeShareGroupOffsets (API key 90)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string, uuid

__all__ = [
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsRequestGroup",
    "DescribeShareGroupOffsetsRequestTopic",
    "DescribeShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsResponseGroup",
    "DescribeShareGroupOffsetsResponsePartition",
    "DescribeShareGroupOffsetsResponseTopic",
]


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """``groups[].topics[]`` of `DescribeShareGroupOffsetsRequest`."""

    topic_name: str = string()
    partitions: list[int] = array_of("int32")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """``groups[]`` of `DescribeShareGroupOffsetsRequest`."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array_of(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    """API key 90, versions 0 to 1."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array_of(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """``groups[].topics[].partitions[]`` of `DescribeShareGroupOffsetsResponse`."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None, ignorable=True)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """``groups[].topics[]`` of `DescribeShareGroupOffsetsResponse`."""

    topic_name: str = string()
    topic_id: Uuid = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array_of(DescribeShareGroupOffsetsResponsePartition)


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """``groups[]`` of `DescribeShareGroupOffsetsResponse`."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array_of(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None, ignorable=True)


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    """API key 90, versions 0 to 1."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array_of(DescribeShareGroupOffsetsResponseGroup)
