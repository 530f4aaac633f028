"""LeaderAndIsr (API key 4)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, int64, string, uuid

__all__ = [
    "LeaderAndIsrLiveLeader",
    "LeaderAndIsrPartitionError",
    "LeaderAndIsrPartitionState",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "LeaderAndIsrTopicError",
    "LeaderAndIsrTopicState",
]


class LeaderAndIsrPartitionState(Struct):
    """``ungrouped_partition_states[]``.

    ``topic_states[].partition_states[]`` of `LeaderAndIsrRequest`."""

    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array_of("int32")
    partition_epoch: int = int32()
    replicas: list[int] = array_of("int32")
    adding_replicas: list[int] = array_of("int32", "3+", ignorable=True)
    removing_replicas: list[int] = array_of("int32", "3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")


class LeaderAndIsrTopicState(Struct):
    """``topic_states[]`` of `LeaderAndIsrRequest`."""

    topic_name: str = string("2+")
    topic_id: Uuid = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array_of(LeaderAndIsrPartitionState, "2+")


class LeaderAndIsrLiveLeader(Struct):
    """``live_leaders[]`` of `LeaderAndIsrRequest`."""

    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Message, api_key=4, versions="0-7", flexible="4+"):
    """API key 4, versions 0 to 7."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array_of(LeaderAndIsrPartitionState, "0-1")
    topic_states: list[LeaderAndIsrTopicState] = array_of(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array_of(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Struct):
    """``partition_errors[]``; ``topics[].partition_errors[]`` of `LeaderAndIsrResponse`."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicError(Struct):
    """``topics[]`` of `LeaderAndIsrResponse`."""

    topic_id: Uuid = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array_of(LeaderAndIsrPartitionError, "5+")


class LeaderAndIsrResponse(Message, api_key=4, versions="0-7", flexible="4+"):
    """API key 4, versions 0 to 7."""

    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array_of(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array_of(LeaderAndIsrTopicError, "5+")
