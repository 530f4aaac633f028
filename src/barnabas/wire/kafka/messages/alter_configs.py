"""AlterConfigs (API key 33)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, string

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterableConfig",
]


class AlterableConfig(Struct):
    """``resources[].configs[]`` of `AlterConfigsRequest`."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """``resources[]`` of `AlterConfigsRequest`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array_of(AlterableConfig)


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    """API key 33, versions 0 to 2."""

    resources: list[AlterConfigsResource] = array_of(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """``responses[]`` of `AlterConfigsResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    """API key 33, versions 0 to 2."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array_of(AlterConfigsResourceResponse)
