"""JoinGroup (API key 11)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, byte_string, int16, int32, string

__all__ = ["JoinGroupRequest", "JoinGroupRequestProtocol", "JoinGroupResponse", "JoinGroupResponseMember"]


class JoinGroupRequestProtocol(Struct):
    """``protocols[]`` of `JoinGroupRequest`."""

    name: str = string()
    metadata: bytes = byte_string()


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    """API key 11, versions 0 to 9."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array_of(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """``members[]`` of `JoinGroupResponse`."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = byte_string()


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    """API key 11, versions 0 to 9."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array_of(JoinGroupResponseMember)
