"""DescribeTopicPartitions (API key 75)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, string, struct_of, uuid

__all__ = [
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsRequestCursor",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponseCursor",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "TopicRequest",
]


class TopicRequest(Struct):
    """``topics[]`` of `DescribeTopicPartitionsRequest`."""

    name: str = string()


class DescribeTopicPartitionsRequestCursor(Struct):
    """``cursor`` of `DescribeTopicPartitionsRequest`."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    """API key 75, versions 0."""

    topics: list[TopicRequest] = array_of(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = struct_of(DescribeTopicPartitionsRequestCursor, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    """``topics[].partitions[]`` of `DescribeTopicPartitionsResponse`."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array_of("int32")
    isr_nodes: list[int] = array_of("int32")
    eligible_leader_replicas: list[int] | None = array_of("int32", nullable="0+", default=None)
    last_known_elr: list[int] | None = array_of("int32", nullable="0+", default=None)
    offline_replicas: list[int] = array_of("int32")


class DescribeTopicPartitionsResponseTopic(Struct):
    """``topics[]`` of `DescribeTopicPartitionsResponse`."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: Uuid = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array_of(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponseCursor(Struct):
    """``next_cursor`` of `DescribeTopicPartitionsResponse`."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    """API key 75, versions 0."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array_of(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = struct_of(
        DescribeTopicPartitionsResponseCursor, nullable="0+"
    )
