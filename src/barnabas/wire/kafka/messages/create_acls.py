"""CreateAcls (API key 30)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, string

__all__ = ["AclCreation", "AclCreationResult", "CreateAclsRequest", "CreateAclsResponse"]


class AclCreation(Struct):
    """``creations[]`` of `CreateAclsRequest`."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    """API key 30, versions 1 to 3."""

    creations: list[AclCreation] = array_of(AclCreation)


class AclCreationResult(Struct):
    """``results[]`` of `CreateAclsResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    """API key 30, versions 1 to 3."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array_of(AclCreationResult)
