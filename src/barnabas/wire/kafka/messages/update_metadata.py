"""UpdateMetadata (API key 6)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, int64, string, uuid

__all__ = [
    "UpdateMetadataBroker",
    "UpdateMetadataEndpoint",
    "UpdateMetadataPartitionState",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "UpdateMetadataTopicState",
]


class UpdateMetadataPartitionState(Struct):
    """``ungrouped_partition_states[]``.

    ``topic_states[].partition_states[]`` of `UpdateMetadataRequest`."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array_of("int32")
    zk_version: int = int32()
    replicas: list[int] = array_of("int32")
    offline_replicas: list[int] = array_of("int32", "4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    """``topic_states[]`` of `UpdateMetadataRequest`."""

    topic_name: str = string("5+")
    topic_id: Uuid = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array_of(UpdateMetadataPartitionState, "5+")


class UpdateMetadataEndpoint(Struct):
    """``live_brokers[].endpoints[]`` of `UpdateMetadataRequest`."""

    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Struct):
    """``live_brokers[]`` of `UpdateMetadataRequest`."""

    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array_of(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    """API key 6, versions 0 to 8."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array_of(UpdateMetadataPartitionState, "0-4")
    topic_states: list[UpdateMetadataTopicState] = array_of(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array_of(UpdateMetadataBroker)


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    """API key 6, versions 0 to 8."""

    error_code: int = int16()
