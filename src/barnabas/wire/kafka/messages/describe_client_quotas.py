"""DescribeClientQuotas (API key 48)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, float64, int8, int16, int32, string

__all__ = [
    "ComponentData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "EntityData",
    "EntryData",
    "ValueData",
]


class ComponentData(Struct):
    """``components[]`` of `DescribeClientQuotasRequest`."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    """API key 48, versions 0 to 1."""

    components: list[ComponentData] = array_of(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """``entries[].entity[]`` of `DescribeClientQuotasResponse`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    """``entries[].values[]`` of `DescribeClientQuotasResponse`."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """``entries[]`` of `DescribeClientQuotasResponse`."""

    entity: list[EntityData] = array_of(EntityData)
    values: list[ValueData] = array_of(ValueData)


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    """API key 48, versions 0 to 1."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array_of(EntryData, nullable="0+")
