"""EndQuorumEpoch (API key 54)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, uint16, uuid

__all__ = [
    "EndQuorumEpochRequest",
    "EndQuorumEpochRequestPartitionData",
    "EndQuorumEpochRequestTopicData",
    "EndQuorumEpochResponse",
    "EndQuorumEpochResponsePartitionData",
    "EndQuorumEpochResponseTopicData",
    "LeaderEndpoint",
    "NodeEndpoint",
    "ReplicaInfo",
]


class ReplicaInfo(Struct):
    """``topics[].partitions[].preferred_candidates[]`` of `EndQuorumEpochRequest`."""

    candidate_id: int = int32("1+")
    candidate_directory_id: Uuid = uuid("1+")


class EndQuorumEpochRequestPartitionData(Struct):
    """``topics[].partitions[]`` of `EndQuorumEpochRequest`."""

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array_of("int32", "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array_of(ReplicaInfo, "1+", ignorable=True)


class EndQuorumEpochRequestTopicData(Struct):
    """``topics[]`` of `EndQuorumEpochRequest`."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochRequestPartitionData] = array_of(EndQuorumEpochRequestPartitionData)


class LeaderEndpoint(Struct):
    """``leader_endpoints[]`` of `EndQuorumEpochRequest`."""

    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    """API key 54, versions 0 to 1."""

    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[EndQuorumEpochRequestTopicData] = array_of(EndQuorumEpochRequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array_of(LeaderEndpoint, "1+", ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    """``topics[].partitions[]`` of `EndQuorumEpochResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class EndQuorumEpochResponseTopicData(Struct):
    """``topics[]`` of `EndQuorumEpochResponse`."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochResponsePartitionData] = array_of(EndQuorumEpochResponsePartitionData)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `EndQuorumEpochResponse`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    """API key 54, versions 0 to 1."""

    error_code: int = int16()
    topics: list[EndQuorumEpochResponseTopicData] = array_of(EndQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "1+", tag=0)
