"""LeaveGroup (API key 13)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


class MemberIdentity(Struct):
    """``members[]`` of `LeaveGroupRequest`."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    """API key 13, versions 0 to 5."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array_of(MemberIdentity, "3+")


class MemberResponse(Struct):
    """``members[]`` of `LeaveGroupResponse`."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    """API key 13, versions 0 to 5."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array_of(MemberResponse, "3+")
