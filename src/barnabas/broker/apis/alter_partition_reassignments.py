"""AlterPartitionReassignments (key 45), version 0.

Begins, replaces and cancels moves of replicas, each on its own (KIP-455). Answered when the orders
are written: the moves continue after that, and ListPartitionReassignments shows them.

Rights: ALTER on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION,
INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION (the topic's znode would
be too large), REQUEST_TIMED_OUT.
"""

from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task, done_here, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

__all__ = ["API"]


class Parts(NamedTuple):
    """What the handler uses."""

    at_controller: AtController
    controller: Controller
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    parts.at_controller.answer(request, _alter(parts, request, request.message))


def _alter(parts: Parts, request: Request, message: AlterPartitionReassignmentsRequest) -> Steps[None]:
    named = yield from list_of(
        (TopicPartition(topic.name, entry.partition_index), entry.replicas)
        for topic in message.topics
        for entry in topic.partitions
    )
    answers = yield from parts.controller.commands.alter_reassignments(dict(named))
    responses = yield from _responses(answers)
    reply_once(request, AlterPartitionReassignmentsResponse(responses=responses))


def _responses(answers: dict[TopicPartition, KafkaError | None]) -> Task[list[ReassignableTopicResponse]]:
    """Takes the answers out one by one: to free 99,000 errors at once takes 20 ms."""
    topics: dict[str, ReassignableTopicResponse] = {}
    for topic, index in list(answers):
        yield None
        error = answers.pop(TopicPartition(topic, index))
        entry = ReassignablePartitionResponse(partition_index=index)
        if error is not None:
            entry.error_code, entry.error_message = error.code, error.message
        topics.setdefault(topic, ReassignableTopicResponse(name=topic)).partitions.append(entry)
    return list(topics.values())


def _fail(
    message: AlterPartitionReassignmentsRequest, _version: int, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """For the request as a whole, and for each partition: Java's client counts them, except where
    it asks another controller."""
    error = KafkaError(code)
    answers: dict[TopicPartition, KafkaError | None] = {}
    if code is not ErrorCode.NOT_CONTROLLER:
        answers = {
            TopicPartition(topic.name, entry.partition_index): error
            for topic in message.topics
            for entry in topic.partitions
        }
    responses = done_here(_responses(answers))
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=error.message, responses=responses)


API = ApiHandler(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    0,
    0,
    _handle,
    lambda services: Parts(services.at_controller, services.controller, services.auth_helper),
    _fail,
    administrative=True,
)
