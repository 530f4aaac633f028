"""FetchSnapshot (API key 59)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import (
    Message,
    Records,
    Struct,
    array_of,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct_of,
    uint16,
    uuid,
)

__all__ = [
    "FetchSnapshotRequest",
    "FetchSnapshotRequestPartitionSnapshot",
    "FetchSnapshotRequestSnapshotId",
    "FetchSnapshotRequestTopicSnapshot",
    "FetchSnapshotResponse",
    "FetchSnapshotResponsePartitionSnapshot",
    "FetchSnapshotResponseSnapshotId",
    "FetchSnapshotResponseTopicSnapshot",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
]


class FetchSnapshotRequestSnapshotId(Struct):
    """``topics[].partitions[].snapshot_id`` of `FetchSnapshotRequest`."""

    end_offset: int = int64()
    epoch: int = int32()


class FetchSnapshotRequestPartitionSnapshot(Struct):
    """``topics[].partitions[]`` of `FetchSnapshotRequest`."""

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: FetchSnapshotRequestSnapshotId = struct_of(
        FetchSnapshotRequestSnapshotId, default=FetchSnapshotRequestSnapshotId
    )
    position: int = int64()
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class FetchSnapshotRequestTopicSnapshot(Struct):
    """``topics[]`` of `FetchSnapshotRequest`."""

    name: str = string()
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = array_of(FetchSnapshotRequestPartitionSnapshot)


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    """API key 59, versions 0 to 1."""

    cluster_id: str | None = string(nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[FetchSnapshotRequestTopicSnapshot] = array_of(FetchSnapshotRequestTopicSnapshot)


class FetchSnapshotResponseSnapshotId(Struct):
    """``topics[].partitions[].snapshot_id`` of `FetchSnapshotResponse`."""

    end_offset: int = int64()
    epoch: int = int32()


class LeaderIdAndEpoch(Struct):
    """``topics[].partitions[].current_leader`` of `FetchSnapshotResponse`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class FetchSnapshotResponsePartitionSnapshot(Struct):
    """``topics[].partitions[]`` of `FetchSnapshotResponse`."""

    index: int = int32()
    error_code: int = int16()
    snapshot_id: FetchSnapshotResponseSnapshotId = struct_of(
        FetchSnapshotResponseSnapshotId, default=FetchSnapshotResponseSnapshotId
    )
    current_leader: LeaderIdAndEpoch | None = struct_of(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records = record_data()


class FetchSnapshotResponseTopicSnapshot(Struct):
    """``topics[]`` of `FetchSnapshotResponse`."""

    name: str = string()
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = array_of(FetchSnapshotResponsePartitionSnapshot)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `FetchSnapshotResponse`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    """API key 59, versions 0 to 1."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[FetchSnapshotResponseTopicSnapshot] = array_of(FetchSnapshotResponseTopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "1+", tag=0)
