"""AssignReplicasToDirs (API key 73)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, uuid

__all__ = [
    "AssignReplicasToDirsRequest",
    "AssignReplicasToDirsRequestDirectoryData",
    "AssignReplicasToDirsRequestPartitionData",
    "AssignReplicasToDirsRequestTopicData",
    "AssignReplicasToDirsResponse",
    "AssignReplicasToDirsResponseDirectoryData",
    "AssignReplicasToDirsResponsePartitionData",
    "AssignReplicasToDirsResponseTopicData",
]


class AssignReplicasToDirsRequestPartitionData(Struct):
    """``directories[].topics[].partitions[]`` of `AssignReplicasToDirsRequest`."""

    partition_index: int = int32()


class AssignReplicasToDirsRequestTopicData(Struct):
    """``directories[].topics[]`` of `AssignReplicasToDirsRequest`."""

    topic_id: Uuid = uuid()
    partitions: list[AssignReplicasToDirsRequestPartitionData] = array_of(AssignReplicasToDirsRequestPartitionData)


class AssignReplicasToDirsRequestDirectoryData(Struct):
    """``directories[]`` of `AssignReplicasToDirsRequest`."""

    id: Uuid = uuid()
    topics: list[AssignReplicasToDirsRequestTopicData] = array_of(AssignReplicasToDirsRequestTopicData)


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    """API key 73, versions 0."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData] = array_of(AssignReplicasToDirsRequestDirectoryData)


class AssignReplicasToDirsResponsePartitionData(Struct):
    """``directories[].topics[].partitions[]`` of `AssignReplicasToDirsResponse`."""

    partition_index: int = int32()
    error_code: int = int16()


class AssignReplicasToDirsResponseTopicData(Struct):
    """``directories[].topics[]`` of `AssignReplicasToDirsResponse`."""

    topic_id: Uuid = uuid()
    partitions: list[AssignReplicasToDirsResponsePartitionData] = array_of(AssignReplicasToDirsResponsePartitionData)


class AssignReplicasToDirsResponseDirectoryData(Struct):
    """``directories[]`` of `AssignReplicasToDirsResponse`."""

    id: Uuid = uuid()
    topics: list[AssignReplicasToDirsResponseTopicData] = array_of(AssignReplicasToDirsResponseTopicData)


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    """API key 73, versions 0."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[AssignReplicasToDirsResponseDirectoryData] = array_of(AssignReplicasToDirsResponseDirectoryData)
