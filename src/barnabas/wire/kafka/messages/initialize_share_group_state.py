"""InitializeShareGroupState (API key 83)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string, uuid

__all__ = [
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "InitializeStateData",
    "InitializeStateResult",
    "PartitionData",
    "PartitionResult",
]


class PartitionData(Struct):
    """``topics[].partitions[]`` of `InitializeShareGroupStateRequest`."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Struct):
    """``topics[]`` of `InitializeShareGroupStateRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    """API key 83, versions 0."""

    group_id: str = string()
    topics: list[InitializeStateData] = array_of(InitializeStateData)


class PartitionResult(Struct):
    """``results[].partitions[]`` of `InitializeShareGroupStateResponse`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class InitializeStateResult(Struct):
    """``results[]`` of `InitializeShareGroupStateResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array_of(PartitionResult)


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    """API key 83, versions 0."""

    results: list[InitializeStateResult] = array_of(InitializeStateResult)
