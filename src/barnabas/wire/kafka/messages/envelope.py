"""Envelope (API key 58)."""

from barnabas.wire.kafka.schema import Message, byte_string, int16

__all__ = ["EnvelopeRequest", "EnvelopeResponse"]


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    """API key 58, versions 0."""

    request_data: bytes = byte_string()
    request_principal: bytes | None = byte_string(nullable="0+")
    client_host_address: bytes = byte_string()


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    """API key 58, versions 0."""

    response_data: bytes | None = byte_string(nullable="0+", default=None)
    error_code: int = int16()
