"""OffsetCommit (API key 8)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string, uuid

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


class OffsetCommitRequestPartition(Struct):
    """``topics[].partitions[]`` of `OffsetCommitRequest`."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """``topics[]`` of `OffsetCommitRequest`."""

    name: str = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array_of(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    """API key 8, versions 2 to 10."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array_of(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """``topics[].partitions[]`` of `OffsetCommitResponse`."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """``topics[]`` of `OffsetCommitResponse`."""

    name: str = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array_of(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    """API key 8, versions 2 to 10."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array_of(OffsetCommitResponseTopic)
