"""DeleteAcls (API key 31)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, string

__all__ = [
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
]


class DeleteAclsFilter(Struct):
    """``filters[]`` of `DeleteAclsRequest`."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    """API key 31, versions 1 to 3."""

    filters: list[DeleteAclsFilter] = array_of(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """``filter_results[].matching_acls[]`` of `DeleteAclsResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """``filter_results[]`` of `DeleteAclsResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array_of(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    """API key 31, versions 1 to 3."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array_of(DeleteAclsFilterResult)
