"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Where an epoch ended in the leader's log, so that a reader can see whether its log diverged
(KIP-101, KIP-279). The response has the largest epoch not above the requested one and its end
offset; -1 and -1 where the log knows none.

- 2: the leader epoch that the reader knows (KIP-320).
- 3: the replica id.

Rights: CLUSTER_ACTION, which followers have, or DESCRIBE on each topic.

Errors: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
"""

from collections.abc import Container
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import EVERY_NAME, AuthHelper
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    replicas: ReplicaManager


def handle(parts: Parts, request: Request) -> None:
    """Ask each partition's epoch cache."""
    serve(parts.runner, request, _look_up(parts, request))


def _look_up(parts: Parts, request: Request) -> Task[None]:
    message: OffsetForLeaderEpochRequest = request.message
    allowed = yield from _allowed(parts.auth_helper, request)
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in message.topics:
        if topics:
            yield None  # it may be named without partitions
        answers: list[EpochEndOffset] = []
        is_allowed = topic.topic in allowed
        for wanted in topic.partitions:
            if answers:
                yield None
            name = TopicPartition(topic.topic, wanted.partition)
            answer = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = parts.replicas.partition(name)
                log = partition.readable_log(wanted.current_leader_epoch, only_leader=True)
                answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(wanted.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    request.reply(OffsetForLeaderEpochResponse(topics=topics))


def _allowed(auth_helper: AuthHelper, request: Request) -> Task[Container[str]]:
    action = AclOperation.CLUSTER_ACTION
    if auth_helper.authorize(request, action, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
        return EVERY_NAME
    names = (topic.topic for topic in request.message.topics)
    return (yield from auth_helper.filter_by_authorized(request, AclOperation.DESCRIBE, ResourceType.TOPIC, names))


def fail(message: OffsetForLeaderEpochRequest, _: int, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    """An error of the whole request, for each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=wanted.partition, error_code=code, leader_epoch=-1, end_offset=-1)
                    for wanted in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    2,
    4,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.replicas),
    fail,
)
