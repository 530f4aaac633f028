"""DeleteShareGroupState (API key 86)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, uuid

__all__ = [
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "DeleteStateData",
    "DeleteStateResult",
    "PartitionData",
    "PartitionResult",
]


class PartitionData(Struct):
    """``topics[].partitions[]`` of `DeleteShareGroupStateRequest`."""

    partition: int = int32()


class DeleteStateData(Struct):
    """``topics[]`` of `DeleteShareGroupStateRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    """API key 86, versions 0."""

    group_id: str = string()
    topics: list[DeleteStateData] = array_of(DeleteStateData)


class PartitionResult(Struct):
    """``results[].partitions[]`` of `DeleteShareGroupStateResponse`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteStateResult(Struct):
    """``results[]`` of `DeleteShareGroupStateResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array_of(PartitionResult)


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    """API key 86, versions 0."""

    results: list[DeleteStateResult] = array_of(DeleteStateResult)
