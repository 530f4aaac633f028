"""ShareGroupHeartbeat (API key 76)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, struct_of, uuid

__all__ = ["Assignment", "ShareGroupHeartbeatRequest", "ShareGroupHeartbeatResponse", "TopicPartitions"]


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    """API key 76, versions 1."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array_of("string", nullable="0+", default=None)


class TopicPartitions(Struct):
    """``assignment.topic_partitions[]`` of `ShareGroupHeartbeatResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array_of("int32")


class Assignment(Struct):
    """``assignment`` of `ShareGroupHeartbeatResponse`."""

    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions)


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    """API key 76, versions 1."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct_of(Assignment, nullable="0+")
