"""SaslHandshake (API key 17)."""

from barnabas.wire.kafka.schema import Message, array_of, int16, string

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """API key 17, versions 0 to 1."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """API key 17, versions 0 to 1."""

    error_code: int = int16()
    mechanisms: list[str] = array_of("string")
