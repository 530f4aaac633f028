"""AlterClientQuotas (API key 49)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, float64, int16, int32, string

__all__ = [
    "AlterClientQuotasRequest",
    "AlterClientQuotasRequestEntityData",
    "AlterClientQuotasRequestEntryData",
    "AlterClientQuotasResponse",
    "AlterClientQuotasResponseEntityData",
    "AlterClientQuotasResponseEntryData",
    "OpData",
]


class AlterClientQuotasRequestEntityData(Struct):
    """``entries[].entity[]`` of `AlterClientQuotasRequest`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """``entries[].ops[]`` of `AlterClientQuotasRequest`."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasRequestEntryData(Struct):
    """``entries[]`` of `AlterClientQuotasRequest`."""

    entity: list[AlterClientQuotasRequestEntityData] = array_of(AlterClientQuotasRequestEntityData)
    ops: list[OpData] = array_of(OpData)


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    """API key 49, versions 0 to 1."""

    entries: list[AlterClientQuotasRequestEntryData] = array_of(AlterClientQuotasRequestEntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntityData(Struct):
    """``entries[].entity[]`` of `AlterClientQuotasResponse`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class AlterClientQuotasResponseEntryData(Struct):
    """``entries[]`` of `AlterClientQuotasResponse`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlterClientQuotasResponseEntityData] = array_of(AlterClientQuotasResponseEntityData)


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    """API key 49, versions 0 to 1."""

    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array_of(AlterClientQuotasResponseEntryData)
