"""AlterReplicaLogDirs (API key 34)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string

__all__ = [
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
]


class AlterReplicaLogDirTopic(Struct):
    """``dirs[].topics[]`` of `AlterReplicaLogDirsRequest`."""

    name: str = string()
    partitions: list[int] = array_of("int32")


class AlterReplicaLogDir(Struct):
    """``dirs[]`` of `AlterReplicaLogDirsRequest`."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array_of(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    """API key 34, versions 1 to 2."""

    dirs: list[AlterReplicaLogDir] = array_of(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """``results[].partitions[]`` of `AlterReplicaLogDirsResponse`."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """``results[]`` of `AlterReplicaLogDirsResponse`."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array_of(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    """API key 34, versions 1 to 2."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array_of(AlterReplicaLogDirTopicResult)
