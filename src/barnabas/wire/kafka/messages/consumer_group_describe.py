"""ConsumerGroupDescribe (API key 69)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, string, struct_of, uuid

__all__ = [
    "Assignment",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "DescribedGroup",
    "Member",
    "TopicPartitions",
]


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    """API key 69, versions 0 to 1."""

    group_ids: list[str] = array_of("string")
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """``groups[].members[].assignment.topic_partitions[]``.

    ``groups[].members[].target_assignment.topic_partitions[]`` of
    `ConsumerGroupDescribeResponse`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array_of("int32")


class Assignment(Struct):
    """``groups[].members[].assignment``.

    ``groups[].members[].target_assignment`` of `ConsumerGroupDescribeResponse`."""

    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions)


class Member(Struct):
    """``groups[].members[]`` of `ConsumerGroupDescribeResponse`."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array_of("string")
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct_of(Assignment, default=Assignment)
    target_assignment: Assignment = struct_of(Assignment, default=Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    """``groups[]`` of `ConsumerGroupDescribeResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array_of(Member)
    authorized_operations: int = int32(default=-2147483648)


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    """API key 69, versions 0 to 1."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array_of(DescribedGroup)
