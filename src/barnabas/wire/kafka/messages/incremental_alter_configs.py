"""IncrementalAlterConfigs (API key 44)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, string

__all__ = [
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterableConfig",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
]


class AlterableConfig(Struct):
    """``resources[].configs[]`` of `IncrementalAlterConfigsRequest`."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """``resources[]`` of `IncrementalAlterConfigsRequest`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array_of(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    """API key 44, versions 0 to 1."""

    resources: list[AlterConfigsResource] = array_of(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """``responses[]`` of `IncrementalAlterConfigsResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    """API key 44, versions 0 to 1."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array_of(AlterConfigsResourceResponse)
