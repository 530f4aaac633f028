"""UpdateRaftVoter (API key 82)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, struct_of, uint16, uuid

__all__ = ["CurrentLeader", "KRaftVersionFeature", "Listener", "UpdateRaftVoterRequest", "UpdateRaftVoterResponse"]


class Listener(Struct):
    """``listeners[]`` of `UpdateRaftVoterRequest`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """``kraft_version_feature`` of `UpdateRaftVoterRequest`."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    """API key 82, versions 0."""

    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array_of(Listener)
    kraft_version_feature: KRaftVersionFeature = struct_of(KRaftVersionFeature, default=KRaftVersionFeature)


class CurrentLeader(Struct):
    """``current_leader`` of `UpdateRaftVoterResponse`."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    """API key 82, versions 0."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = struct_of(CurrentLeader, tag=0)
