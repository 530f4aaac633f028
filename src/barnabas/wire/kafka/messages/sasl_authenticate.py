"""SaslAuthenticate (API key 36)."""

from barnabas.wire.kafka.schema import Message, byte_string, int16, int64, string

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    """API key 36, versions 0 to 2."""

    auth_bytes: bytes = byte_string()


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    """API key 36, versions 0 to 2."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64("1+", ignorable=True)
