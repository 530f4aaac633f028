"""TxnOffsetCommit (API key 28)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string

__all__ = [
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


class TxnOffsetCommitRequestPartition(Struct):
    """``topics[].partitions[]`` of `TxnOffsetCommitRequest`."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """``topics[]`` of `TxnOffsetCommitRequest`."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array_of(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    """API key 28, versions 0 to 5."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array_of(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """``topics[].partitions[]`` of `TxnOffsetCommitResponse`."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """``topics[]`` of `TxnOffsetCommitResponse`."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array_of(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    """API key 28, versions 0 to 5."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array_of(TxnOffsetCommitResponseTopic)
