"""AddRaftVoter (API key 80)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, string, uint16, uuid

__all__ = ["AddRaftVoterRequest", "AddRaftVoterResponse", "Listener"]


class Listener(Struct):
    """``listeners[]`` of `AddRaftVoterRequest`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    """API key 80, versions 0 to 1."""

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array_of(Listener)
    ack_when_committed: bool = boolean("1+", default=True, ignorable=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """API key 80, versions 0 to 1."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
