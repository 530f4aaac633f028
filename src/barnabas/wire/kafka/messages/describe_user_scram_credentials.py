"""DescribeUserScramCredentials (API key 50)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, string

__all__ = [
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "UserName",
]


class UserName(Struct):
    """``users[]`` of `DescribeUserScramCredentialsRequest`."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    """API key 50, versions 0."""

    users: list[UserName] | None = array_of(UserName, nullable="0+")


class CredentialInfo(Struct):
    """``results[].credential_infos[]`` of `DescribeUserScramCredentialsResponse`."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """``results[]`` of `DescribeUserScramCredentialsResponse`."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array_of(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    """API key 50, versions 0."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array_of(DescribeUserScramCredentialsResult)
