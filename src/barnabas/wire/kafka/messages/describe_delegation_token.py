"""DescribeDelegationToken (API key 41)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, byte_string, int16, int32, int64, string

__all__ = [
    "DescribeDelegationTokenOwner",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribedDelegationToken",
    "DescribedDelegationTokenRenewer",
]


class DescribeDelegationTokenOwner(Struct):
    """``owners[]`` of `DescribeDelegationTokenRequest`."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    """API key 41, versions 1 to 3."""

    owners: list[DescribeDelegationTokenOwner] | None = array_of(DescribeDelegationTokenOwner, nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    """``tokens[].renewers[]`` of `DescribeDelegationTokenResponse`."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    """``tokens[]`` of `DescribeDelegationTokenResponse`."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = array_of(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    """API key 41, versions 1 to 3."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array_of(DescribedDelegationToken)
    throttle_time_ms: int = int32()
