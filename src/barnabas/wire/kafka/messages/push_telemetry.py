"""PushTelemetry (API key 72)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, boolean, byte_string, int8, int16, int32, uuid

__all__ = ["PushTelemetryRequest", "PushTelemetryResponse"]


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    """API key 72, versions 0."""

    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = byte_string()


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """API key 72, versions 0."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
