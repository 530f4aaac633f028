"""DeleteRecords (key 21), versions 0 to 2.

Moves the log start offset of partitions (KIP-107). An offset of -1 stands for the high watermark.
The response waits until every living replica begins there, or for the request's timeout, and has
the low watermark: the least log start offset among them.

Rights: DELETE on each topic.

Errors: TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION (an internal topic),
OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only compacted), UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.delayed_delete_records import LowWatermark, delete_records
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    purgatory: Purgatory
    metadata: MetadataCache
    replicas: ReplicaManager


def handle(parts: Parts, request: Request) -> None:
    """Move the log start offsets, then wait for the replicas."""
    serve(parts.runner, request, _delete(parts, request))


def _delete(parts: Parts, request: Request) -> Task[None]:
    message: DeleteRecordsRequest = request.message
    names = (topic.name for topic in message.topics)
    allowed = yield from parts.auth_helper.filter_by_authorized(request, AclOperation.DELETE, ResourceType.TOPIC, names)
    wanted = []
    for topic in message.topics:
        yield None  # it may be named without partitions
        if topic.name not in allowed:
            continue
        for partition in topic.partitions:
            yield None
            wanted.append((TopicPartition(topic.name, partition.partition_index), partition.offset))

    def respond(outcomes: Mapping[TopicPartition, LowWatermark]) -> None:
        serve(parts.runner, request, _respond(request, allowed, outcomes))

    waiter = yield from delete_records(
        parts.replicas, parts.metadata, parts.purgatory, wanted, respond, message.timeout_ms
    )
    request.wait_in(waiter)


def _respond(request: Request, allowed: Container[str], outcomes: Mapping[TopicPartition, LowWatermark]) -> Task[None]:
    topics = []
    for topic in request.message.topics:
        yield None
        results = []
        is_allowed = topic.name in allowed
        for partition in topic.partitions:
            yield None
            outcome: LowWatermark = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if is_allowed:
                outcome = outcomes[TopicPartition(topic.name, partition.partition_index)]
            is_error = isinstance(outcome, ErrorCode)
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index,
                    low_watermark=-1 if is_error else outcome,
                    error_code=outcome if is_error else ErrorCode.NONE,
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    request.reply(DeleteRecordsResponse(topics=topics))


def fail(message: DeleteRecordsRequest, _: int, code: ErrorCode) -> DeleteRecordsResponse:
    """An error of the whole request, for each partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=wanted.partition_index, low_watermark=-1, error_code=code
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.DELETE_RECORDS,
    0,
    2,
    handle,
    lambda services: Parts(
        services.runner, services.auth_helper, services.purgatory, services.metadata, services.replicas
    ),
    fail,
    administrative=True,
)
