"""CreateTopics (API key 19)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, string, uuid

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


class CreatableReplicaAssignment(Struct):
    """``topics[].assignments[]`` of `CreateTopicsRequest`."""

    partition_index: int = int32()
    broker_ids: list[int] = array_of("int32")


class CreatableTopicConfig(Struct):
    """``topics[].configs[]`` of `CreateTopicsRequest`."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """``topics[]`` of `CreateTopicsRequest`."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array_of(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array_of(CreatableTopicConfig)


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    """API key 19, versions 2 to 7."""

    topics: list[CreatableTopic] = array_of(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    """``topics[].configs[]`` of `CreateTopicsResponse`."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    """``topics[]`` of `CreateTopicsResponse`."""

    name: str = string()
    topic_id: Uuid = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array_of(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    """API key 19, versions 2 to 7."""

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array_of(CreatableTopicResult)
