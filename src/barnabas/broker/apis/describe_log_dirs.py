"""DescribeLogDirs (key 35), versions 1 to 4.

Which partitions are in which log dir, and their sizes (KIP-113). A null topic list asks for
all partitions. A replica that moves from one dir to another is in both; the copy in its new
dir is marked as future.

- 3: an error of the whole response.
- 4: the disk's total and usable bytes (KIP-827).

Rights: DESCRIBE on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED; KAFKA_STORAGE_ERROR for a log dir that is offline.
"""

from typing import NamedTuple

from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.replication.log_dir_descriptions import LogDirDescription, describe_log_dirs
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    files: Files
    replicas: ReplicaManager
    log_dirs: LogDirs
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Describe each log dir."""
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.DESCRIBE)
    serve(parts.runner, request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Task[None]:
    message: DescribeLogDirsRequest = request.message
    wanted: set[TopicPartition] | None = None
    if message.topics is not None:
        wanted = set()
        for topic in message.topics:
            yield None  # it may be named without partitions
            for index in topic.partitions:
                wanted.add(TopicPartition(topic.topic, index))
                yield None
    described = yield from describe_log_dirs(parts.replicas, parts.log_dirs, parts.files, wanted)
    response = DescribeLogDirsResponse(results=[])
    for log_dir in described:
        result = yield from _result(log_dir)
        response.results.append(result)
    request.reply(response)


def _result(log_dir: LogDirDescription) -> Task[DescribeLogDirsResult]:
    if log_dir.is_offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path, topics=[])
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in log_dir.replicas:
        yield None
        name = replica.topic_partition.topic
        topics.setdefault(name, DescribeLogDirsTopic(name=name)).partitions.append(
            DescribeLogDirsPartition(
                partition_index=replica.topic_partition.partition,
                partition_size=replica.size_bytes,
                offset_lag=replica.offset_lag,
                is_future_key=replica.is_future,
            )
        )
    return DescribeLogDirsResult(
        log_dir=log_dir.path,
        topics=list(topics.values()),
        total_bytes=log_dir.total_bytes,
        usable_bytes=log_dir.usable_bytes,
    )


API = ApiHandler(
    ApiKey.DESCRIBE_LOG_DIRS,
    1,
    4,
    handle,
    lambda services: Parts(services.runner, services.files, services.replicas, services.log_dirs, services.auth_helper),
)
