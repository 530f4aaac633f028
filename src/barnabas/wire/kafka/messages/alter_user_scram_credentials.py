"""AlterUserScramCredentials (API key 51)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, byte_string, int8, int16, int32, string

__all__ = [
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
]


class ScramCredentialDeletion(Struct):
    """``deletions[]`` of `AlterUserScramCredentialsRequest`."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """``upsertions[]`` of `AlterUserScramCredentialsRequest`."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = byte_string()
    salted_password: bytes = byte_string()


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    """API key 51, versions 0."""

    deletions: list[ScramCredentialDeletion] = array_of(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array_of(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """``results[]`` of `AlterUserScramCredentialsResponse`."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    """API key 51, versions 0."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array_of(AlterUserScramCredentialsResult)
