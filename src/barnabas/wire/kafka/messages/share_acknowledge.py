"""ShareAcknowledge (API key 79)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, int64, string, struct_of, uuid

__all__ = [
    "AcknowledgePartition",
    "AcknowledgeTopic",
    "AcknowledgementBatch",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareAcknowledgeTopicResponse",
]


class AcknowledgementBatch(Struct):
    """``topics[].partitions[].acknowledgement_batches[]`` of `ShareAcknowledgeRequest`."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array_of("int8")


class AcknowledgePartition(Struct):
    """``topics[].partitions[]`` of `ShareAcknowledgeRequest`."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array_of(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    """``topics[]`` of `ShareAcknowledgeRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[AcknowledgePartition] = array_of(AcknowledgePartition)


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    """API key 79, versions 1 to 2."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array_of(AcknowledgeTopic)


class LeaderIdAndEpoch(Struct):
    """``responses[].partitions[].current_leader`` of `ShareAcknowledgeResponse`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Struct):
    """``responses[].partitions[]`` of `ShareAcknowledgeResponse`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct_of(LeaderIdAndEpoch, default=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    """``responses[]`` of `ShareAcknowledgeResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array_of(PartitionData)


class NodeEndpoint(Struct):
    """``node_endpoints[]`` of `ShareAcknowledgeResponse`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    """API key 79, versions 1 to 2."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array_of(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint)
