"""ReadShareGroupState (API key 84)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, int64, string, uuid

__all__ = [
    "PartitionData",
    "PartitionResult",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadStateData",
    "ReadStateResult",
    "StateBatch",
]


class PartitionData(Struct):
    """``topics[].partitions[]`` of `ReadShareGroupStateRequest`."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Struct):
    """``topics[]`` of `ReadShareGroupStateRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    """API key 84, versions 0."""

    group_id: str = string()
    topics: list[ReadStateData] = array_of(ReadStateData)


class StateBatch(Struct):
    """``results[].partitions[].state_batches[]`` of `ReadShareGroupStateResponse`."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Struct):
    """``results[].partitions[]`` of `ReadShareGroupStateResponse`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array_of(StateBatch)


class ReadStateResult(Struct):
    """``results[]`` of `ReadShareGroupStateResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array_of(PartitionResult)


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    """API key 84, versions 0."""

    results: list[ReadStateResult] = array_of(ReadStateResult)
