"""AlterReplicaLogDirs (key 34), versions 1 to 2.

Has replicas of this broker moved to other log dirs, or made there (KIP-113). NONE means that the
move has begun, or that the replica is there already; DescribeLogDirs shows its progress. The dir
requested last counts: a request for the one that the replica is in cancels its move.

Rights: ALTER on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, REPLICA_NOT_AVAILABLE (there is no replica here yet; it will
be made in that dir), LOG_DIR_NOT_FOUND, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION,
KAFKA_STORAGE_ERROR.
"""

import logging
from typing import NamedTuple

from barnabas.base.excerpts import Tally
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.broker.storage.service import StorageService
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

logger = logging.getLogger(__name__)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    storage: StorageService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Begin, redirect or cancel each move."""
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    serve(parts.runner, request, _alter_all(parts, request))


def _alter_all(parts: Parts, request: Request) -> Task[None]:
    message: AlterReplicaLogDirsRequest = request.message
    wanted: dict[TopicPartition, str] = {}
    for log_dir in message.dirs:
        for named in log_dir.topics:
            for index in named.partitions:
                yield None
                wanted[TopicPartition(named.name, index)] = log_dir.path
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    refused: Tally[ErrorCode] = Tally()
    for topic_partition, path in wanted.items():
        yield None
        topic = results.get(topic_partition.topic)
        if topic is None:
            topic = results[topic_partition.topic] = AlterReplicaLogDirTopicResult(
                topic_name=topic_partition.topic, partitions=[]
            )
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(
                partition_index=topic_partition.partition, error_code=_alter(parts, topic_partition, path, refused)
            )
        )
    for _, replicas, why in refused.lines():
        logger.warning("%s: no move to another log dir: %s", replicas, why)
    request.reply(AlterReplicaLogDirsResponse(results=list(results.values())))


def _alter(parts: Parts, topic_partition: TopicPartition, path: str, refused: Tally[ErrorCode]) -> ErrorCode:
    try:
        parts.storage.move(topic_partition, path)
    except KafkaError as error:
        refused.add(error.code, f"{topic_partition} to {path}", error)
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE


def fail(message: AlterReplicaLogDirsRequest, _: int, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """An error of the whole request, for each partition."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for log_dir in message.dirs
            for topic in log_dir.topics
        ]
    )


API = ApiHandler(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    1,
    2,
    handle,
    lambda services: Parts(services.runner, services.storage, services.auth_helper),
    fail,
    administrative=True,
)
