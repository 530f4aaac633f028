"""Vote (API key 52)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, int64, string, uint16, uuid

__all__ = [
    "NodeEndpoint",
    "VoteRequest",
    "VoteRequestPartitionData",
    "VoteRequestTopicData",
    "VoteResponse",
    "VoteResponsePartitionData",
    "VoteResponseTopicData",
]


class VoteRequestPartitionData(Struct):
    """``topics[].partitions[]`` of `VoteRequest`."""

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class VoteRequestTopicData(Struct):
    """``topics[]`` of `VoteRequest`."""

    topic_name: str = string()
    partitions: list[VoteRequestPartitionData] = array_of(VoteRequestPartitionData)


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    """API key 52, versions 0 to 2."""

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData] = array_of(VoteRequestTopicData)


class VoteResponsePartitionData(Struct):
    """``topics[].partitions[]`` of `VoteResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class VoteResponseTopicData(Struct):
    """``topics[]`` of `VoteResponse`."""

    topic_name: str = string()
    partitions: list[VoteResponsePartitionData] = array_of(VoteResponsePartitionData)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `VoteResponse`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    """API key 52, versions 0 to 2."""

    error_code: int = int16()
    topics: list[VoteResponseTopicData] = array_of(VoteResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "1+", tag=0)
