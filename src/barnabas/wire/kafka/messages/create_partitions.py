"""CreatePartitions (API key 37)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, string

__all__ = [
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
]


class CreatePartitionsAssignment(Struct):
    """``topics[].assignments[]`` of `CreatePartitionsRequest`."""

    broker_ids: list[int] = array_of("int32")


class CreatePartitionsTopic(Struct):
    """``topics[]`` of `CreatePartitionsRequest`."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array_of(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    """API key 37, versions 0 to 3."""

    topics: list[CreatePartitionsTopic] = array_of(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """``results[]`` of `CreatePartitionsResponse`."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    """API key 37, versions 0 to 3."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array_of(CreatePartitionsTopicResult)
