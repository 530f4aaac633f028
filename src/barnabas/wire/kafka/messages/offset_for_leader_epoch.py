"""OffsetForLeaderEpoch (API key 23)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string

__all__ = [
    "EpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class OffsetForLeaderPartition(Struct):
    """``topics[].partitions[]`` of `OffsetForLeaderEpochRequest`."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """``topics[]`` of `OffsetForLeaderEpochRequest`."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array_of(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="0-4", flexible="4+"):
    """API key 23, versions 0 to 4."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array_of(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """``topics[].partitions[]`` of `OffsetForLeaderEpochResponse`."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """``topics[]`` of `OffsetForLeaderEpochResponse`."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array_of(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="0-4", flexible="4+"):
    """API key 23, versions 0 to 4."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array_of(OffsetForLeaderTopicResult)
