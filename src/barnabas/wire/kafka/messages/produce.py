"""Produce (API key 0)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import (
    Message,
    Records,
    Struct,
    array_of,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct_of,
    uuid,
)

__all__ = [
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


class PartitionProduceData(Struct):
    """``topic_data[].partition_data[]`` of `ProduceRequest`."""

    index: int = int32()
    records: Records = record_data(nullable="0+")


class TopicProduceData(Struct):
    """``topic_data[]`` of `ProduceRequest`."""

    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array_of(PartitionProduceData)


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    """API key 0, versions 3 to 13."""

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array_of(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """``responses[].partition_responses[].record_errors[]`` of `ProduceResponse`."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    """``responses[].partition_responses[].current_leader`` of `ProduceResponse`."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    """``responses[].partition_responses[]`` of `ProduceResponse`."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array_of(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct_of(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    """``responses[]`` of `ProduceResponse`."""

    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array_of(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `ProduceResponse`."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    """API key 0, versions 3 to 13."""

    responses: list[TopicProduceResponse] = array_of(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "10+", tag=0)
