"""Fetch (API key 1)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import (
    Message,
    Records,
    Struct,
    array_of,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct_of,
    uuid,
)

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


class ReplicaState(Struct):
    """``replica_state`` of `FetchRequest`."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    """``topics[].partitions[]`` of `FetchRequest`."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1, ignorable=True)


class FetchTopic(Struct):
    """``topics[]`` of `FetchRequest`."""

    topic: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array_of(FetchPartition)


class ForgottenTopic(Struct):
    """``forgotten_topics_data[]`` of `FetchRequest`."""

    topic: str = string("7-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partitions: list[int] = array_of("int32", "7+")


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    """API key 1, versions 4 to 18."""

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct_of(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array_of(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array_of(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Struct):
    """``responses[].partitions[].diverging_epoch`` of `FetchResponse`."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """``responses[].partitions[].current_leader`` of `FetchResponse`."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    """``responses[].partitions[].snapshot_id`` of `FetchResponse`."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """``responses[].partitions[].aborted_transactions[]`` of `FetchResponse`."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """``responses[].partitions[]`` of `FetchResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct_of(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct_of(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct_of(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array_of(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records = record_data(nullable="0+")


class FetchableTopicResponse(Struct):
    """``responses[]`` of `FetchResponse`."""

    topic: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array_of(PartitionData)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `FetchResponse`."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    """API key 1, versions 4 to 18."""

    throttle_time_ms: int = int32()
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array_of(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "16+", tag=0)
