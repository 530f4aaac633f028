"""AlterPartitionReassignments (API key 45)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, string

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
]


class ReassignablePartition(Struct):
    """``topics[].partitions[]`` of `AlterPartitionReassignmentsRequest`."""

    partition_index: int = int32()
    replicas: list[int] | None = array_of("int32", nullable="0+", default=None)


class ReassignableTopic(Struct):
    """``topics[]`` of `AlterPartitionReassignmentsRequest`."""

    name: str = string()
    partitions: list[ReassignablePartition] = array_of(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    """API key 45, versions 0 to 1."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array_of(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """``responses[].partitions[]`` of `AlterPartitionReassignmentsResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    """``responses[]`` of `AlterPartitionReassignmentsResponse`."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array_of(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    """API key 45, versions 0 to 1."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array_of(ReassignableTopicResponse)
