"""ListPartitionReassignments (API key 46)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string

__all__ = [
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
]


class ListPartitionReassignmentsTopics(Struct):
    """``topics[]`` of `ListPartitionReassignmentsRequest`."""

    name: str = string()
    partition_indexes: list[int] = array_of("int32")


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    """API key 46, versions 0."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array_of(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """``topics[].partitions[]`` of `ListPartitionReassignmentsResponse`."""

    partition_index: int = int32()
    replicas: list[int] = array_of("int32")
    adding_replicas: list[int] = array_of("int32")
    removing_replicas: list[int] = array_of("int32")


class OngoingTopicReassignment(Struct):
    """``topics[]`` of `ListPartitionReassignmentsResponse`."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array_of(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    """API key 46, versions 0."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array_of(OngoingTopicReassignment)
