"""WriteShareGroupState (API key 85)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, int64, string, uuid

__all__ = [
    "PartitionData",
    "PartitionResult",
    "StateBatch",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
    "WriteStateData",
    "WriteStateResult",
]


class StateBatch(Struct):
    """``topics[].partitions[].state_batches[]`` of `WriteShareGroupStateRequest`."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    """``topics[].partitions[]`` of `WriteShareGroupStateRequest`."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array_of(StateBatch)


class WriteStateData(Struct):
    """``topics[]`` of `WriteShareGroupStateRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    """API key 85, versions 0 to 1."""

    group_id: str = string()
    topics: list[WriteStateData] = array_of(WriteStateData)


class PartitionResult(Struct):
    """``results[].partitions[]`` of `WriteShareGroupStateResponse`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class WriteStateResult(Struct):
    """``results[]`` of `WriteShareGroupStateResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array_of(PartitionResult)


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    """API key 85, versions 0 to 1."""

    results: list[WriteStateResult] = array_of(WriteStateResult)
