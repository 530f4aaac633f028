"""BrokerHeartbeat (API key 63)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, array_of, boolean, int16, int32, int64

__all__ = ["BrokerHeartbeatRequest", "BrokerHeartbeatResponse"]


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    """API key 63, versions 0 to 2."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array_of("uuid", "1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = array_of("uuid", "2+", nullable="2+", default=None, tag=1, ignorable=True)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    """API key 63, versions 0 to 2."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
