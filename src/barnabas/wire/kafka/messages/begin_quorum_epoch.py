"""BeginQuorumEpoch (API key 53)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, uint16, uuid

__all__ = [
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochRequestPartitionData",
    "BeginQuorumEpochRequestTopicData",
    "BeginQuorumEpochResponse",
    "BeginQuorumEpochResponsePartitionData",
    "BeginQuorumEpochResponseTopicData",
    "LeaderEndpoint",
    "NodeEndpoint",
]


class BeginQuorumEpochRequestPartitionData(Struct):
    """``topics[].partitions[]`` of `BeginQuorumEpochRequest`."""

    partition_index: int = int32()
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochRequestTopicData(Struct):
    """``topics[]`` of `BeginQuorumEpochRequest`."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochRequestPartitionData] = array_of(BeginQuorumEpochRequestPartitionData)


class LeaderEndpoint(Struct):
    """``leader_endpoints[]`` of `BeginQuorumEpochRequest`."""

    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Message, api_key=53, versions="0-1", flexible="1+"):
    """API key 53, versions 0 to 1."""

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = array_of(BeginQuorumEpochRequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array_of(LeaderEndpoint, "1+", ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    """``topics[].partitions[]`` of `BeginQuorumEpochResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochResponseTopicData(Struct):
    """``topics[]`` of `BeginQuorumEpochResponse`."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochResponsePartitionData] = array_of(BeginQuorumEpochResponsePartitionData)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `BeginQuorumEpochResponse`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochResponse(Message, api_key=53, versions="0-1", flexible="1+"):
    """API key 53, versions 0 to 1."""

    error_code: int = int16()
    topics: list[BeginQuorumEpochResponseTopicData] = array_of(BeginQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "1+", tag=0)
