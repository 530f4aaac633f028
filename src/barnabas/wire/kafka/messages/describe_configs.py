"""DescribeConfigs (API key 32)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, string

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
]


class DescribeConfigsResource(Struct):
    """``resources[]`` of `DescribeConfigsRequest`."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array_of("string", nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    """API key 32, versions 1 to 4."""

    resources: list[DescribeConfigsResource] = array_of(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    """``results[].configs[].synonyms[]`` of `DescribeConfigsResponse`."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """``results[].configs[]`` of `DescribeConfigsResponse`."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array_of(DescribeConfigsSynonym)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    """``results[]`` of `DescribeConfigsResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array_of(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    """API key 32, versions 1 to 4."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array_of(DescribeConfigsResult)
