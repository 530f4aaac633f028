"""ShareFetch (API key 78)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import (
    Message,
    Records,
    Struct,
    array_of,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct_of,
    uuid,
)

__all__ = [
    "AcknowledgementBatch",
    "AcquiredRecords",
    "FetchPartition",
    "FetchTopic",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareFetchableTopicResponse",
]


class AcknowledgementBatch(Struct):
    """``topics[].partitions[].acknowledgement_batches[]`` of `ShareFetchRequest`."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array_of("int8")


class FetchPartition(Struct):
    """``topics[].partitions[]`` of `ShareFetchRequest`."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array_of(AcknowledgementBatch)


class FetchTopic(Struct):
    """``topics[]`` of `ShareFetchRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[FetchPartition] = array_of(FetchPartition)


class ForgottenTopic(Struct):
    """``forgotten_topics_data[]`` of `ShareFetchRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array_of("int32")


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    """API key 78, versions 1 to 2."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array_of(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array_of(ForgottenTopic)


class LeaderIdAndEpoch(Struct):
    """``responses[].partitions[].current_leader`` of `ShareFetchResponse`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Struct):
    """``responses[].partitions[].acquired_records[]`` of `ShareFetchResponse`."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Struct):
    """``responses[].partitions[]`` of `ShareFetchResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct_of(LeaderIdAndEpoch, default=LeaderIdAndEpoch)
    records: Records = record_data()
    acquired_records: list[AcquiredRecords] = array_of(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    """``responses[]`` of `ShareFetchResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `ShareFetchResponse`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    """API key 78, versions 1 to 2."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array_of(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint)
