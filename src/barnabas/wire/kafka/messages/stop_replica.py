"""StopReplica (API key 5)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, int64, string

__all__ = [
    "StopReplicaPartitionError",
    "StopReplicaPartitionState",
    "StopReplicaPartitionV0",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "StopReplicaTopicState",
    "StopReplicaTopicV1",
]


class StopReplicaPartitionV0(Struct):
    """``ungrouped_partitions[]`` of `StopReplicaRequest`."""

    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Struct):
    """``topics[]`` of `StopReplicaRequest`."""

    name: str = string("1-2")
    partition_indexes: list[int] = array_of("int32", "1-2")


class StopReplicaPartitionState(Struct):
    """``topic_states[].partition_states[]`` of `StopReplicaRequest`."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


class StopReplicaTopicState(Struct):
    """``topic_states[]`` of `StopReplicaRequest`."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array_of(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, api_key=5, versions="0-4", flexible="2+"):
    """API key 5, versions 0 to 4."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array_of(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array_of(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array_of(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Struct):
    """``partition_errors[]`` of `StopReplicaResponse`."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, api_key=5, versions="0-4", flexible="2+"):
    """API key 5, versions 0 to 4."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array_of(StopReplicaPartitionError)
