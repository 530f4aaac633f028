"""AlterPartition (API key 56)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int8, int16, int32, int64, string, uuid

__all__ = [
    "AlterPartitionRequest",
    "AlterPartitionRequestPartitionData",
    "AlterPartitionRequestTopicData",
    "AlterPartitionResponse",
    "AlterPartitionResponsePartitionData",
    "AlterPartitionResponseTopicData",
    "BrokerState",
]


class BrokerState(Struct):
    """``topics[].partitions[].new_isr_with_epochs[]`` of `AlterPartitionRequest`."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class AlterPartitionRequestPartitionData(Struct):
    """``topics[].partitions[]`` of `AlterPartitionRequest`."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array_of("int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = array_of(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class AlterPartitionRequestTopicData(Struct):
    """``topics[]`` of `AlterPartitionRequest`."""

    topic_name: str = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = array_of(AlterPartitionRequestPartitionData)


class AlterPartitionRequest(Message, api_key=56, versions="0-3", flexible="0+"):
    """API key 56, versions 0 to 3."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopicData] = array_of(AlterPartitionRequestTopicData)


class AlterPartitionResponsePartitionData(Struct):
    """``topics[].partitions[]`` of `AlterPartitionResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array_of("int32")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


class AlterPartitionResponseTopicData(Struct):
    """``topics[]`` of `AlterPartitionResponse`."""

    topic_name: str = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = array_of(AlterPartitionResponsePartitionData)


class AlterPartitionResponse(Message, api_key=56, versions="0-3", flexible="0+"):
    """API key 56, versions 0 to 3."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopicData] = array_of(AlterPartitionResponseTopicData)
