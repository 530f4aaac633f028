"""DescribeGroups (API key 15)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, byte_string, int16, int32, string

__all__ = ["DescribeGroupsRequest", "DescribeGroupsResponse", "DescribedGroup", "DescribedGroupMember"]


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    """API key 15, versions 0 to 6."""

    groups: list[str] = array_of("string")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """``groups[].members[]`` of `DescribeGroupsResponse`."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


class DescribedGroup(Struct):
    """``groups[]`` of `DescribeGroupsResponse`."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None, ignorable=True)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array_of(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    """API key 15, versions 0 to 6."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array_of(DescribedGroup)
