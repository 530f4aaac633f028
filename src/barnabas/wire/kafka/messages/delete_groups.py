"""DeleteGroups (API key 42)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string

__all__ = ["DeletableGroupResult", "DeleteGroupsRequest", "DeleteGroupsResponse"]


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    """API key 42, versions 0 to 2."""

    groups_names: list[str] = array_of("string")


class DeletableGroupResult(Struct):
    """``results[]`` of `DeleteGroupsResponse`."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    """API key 42, versions 0 to 2."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array_of(DeletableGroupResult)
