"""SyncGroup (API key 14)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, byte_string, int16, int32, string

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


class SyncGroupRequestAssignment(Struct):
    """``assignments[]`` of `SyncGroupRequest`."""

    member_id: str = string()
    assignment: bytes = byte_string()


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    """API key 14, versions 0 to 5."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array_of(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    """API key 14, versions 0 to 5."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = byte_string()
