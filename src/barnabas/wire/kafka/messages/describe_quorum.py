"""DescribeQuorum (API key 55)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string, uint16, uuid

__all__ = [
    "DescribeQuorumRequest",
    "DescribeQuorumRequestPartitionData",
    "DescribeQuorumRequestTopicData",
    "DescribeQuorumResponse",
    "DescribeQuorumResponsePartitionData",
    "DescribeQuorumResponseTopicData",
    "Listener",
    "Node",
    "ReplicaState",
]


class DescribeQuorumRequestPartitionData(Struct):
    """``topics[].partitions[]`` of `DescribeQuorumRequest`."""

    partition_index: int = int32()


class DescribeQuorumRequestTopicData(Struct):
    """``topics[]`` of `DescribeQuorumRequest`."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array_of(DescribeQuorumRequestPartitionData)


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    """API key 55, versions 0 to 2."""

    topics: list[DescribeQuorumRequestTopicData] = array_of(DescribeQuorumRequestTopicData)


class ReplicaState(Struct):
    """``topics[].partitions[].current_voters[]``.

    ``topics[].partitions[].observers[]`` of `DescribeQuorumResponse`."""

    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    """``topics[].partitions[]`` of `DescribeQuorumResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array_of(ReplicaState)
    observers: list[ReplicaState] = array_of(ReplicaState)


class DescribeQuorumResponseTopicData(Struct):
    """``topics[]`` of `DescribeQuorumResponse`."""

    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array_of(DescribeQuorumResponsePartitionData)


class Listener(Struct):
    """``nodes[].listeners[]`` of `DescribeQuorumResponse`."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    """``nodes[]`` of `DescribeQuorumResponse`."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array_of(Listener, "2+")


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    """API key 55, versions 0 to 2."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = array_of(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array_of(Node, "2+")
