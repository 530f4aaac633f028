"""CreateDelegationToken (API key 38)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, byte_string, int16, int32, int64, string

__all__ = ["CreatableRenewers", "CreateDelegationTokenRequest", "CreateDelegationTokenResponse"]


class CreatableRenewers(Struct):
    """``renewers[]`` of `CreateDelegationTokenRequest`."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    """API key 38, versions 1 to 3."""

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array_of(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    """API key 38, versions 1 to 3."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = byte_string()
    throttle_time_ms: int = int32()
