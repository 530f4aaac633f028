"""ConsumerGroupHeartbeat (API key 68)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, struct_of, uuid

__all__ = [
    "Assignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatRequestTopicPartitions",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupHeartbeatResponseTopicPartitions",
]


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    """``topic_partitions[]`` of `ConsumerGroupHeartbeatRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array_of("int32")


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    """API key 68, versions 0 to 1."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array_of("string", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = array_of(
        ConsumerGroupHeartbeatRequestTopicPartitions, nullable="0+", default=None
    )


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    """``assignment.topic_partitions[]`` of `ConsumerGroupHeartbeatResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array_of("int32")


class Assignment(Struct):
    """``assignment`` of `ConsumerGroupHeartbeatResponse`."""

    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = array_of(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    """API key 68, versions 0 to 1."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct_of(Assignment, nullable="0+")
