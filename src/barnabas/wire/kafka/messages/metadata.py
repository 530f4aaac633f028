"""Metadata (API key 3)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, string, uuid

__all__ = [
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


class MetadataRequestTopic(Struct):
    """``topics[]`` of `MetadataRequest`."""

    topic_id: Uuid = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    """API key 3, versions 0 to 13."""

    topics: list[MetadataRequestTopic] | None = array_of(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    """``brokers[]`` of `MetadataResponse`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """``topics[].partitions[]`` of `MetadataResponse`."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array_of("int32")
    isr_nodes: list[int] = array_of("int32")
    offline_replicas: list[int] = array_of("int32", "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """``topics[]`` of `MetadataResponse`."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: Uuid = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array_of(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    """API key 3, versions 0 to 13."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array_of(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array_of(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", ignorable=True)
