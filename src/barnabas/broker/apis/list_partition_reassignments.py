"""ListPartitionReassignments (key 46), version 0.

Which partitions have replicas on the move, and how (KIP-455).

Rights: DESCRIBE on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

__all__ = ["API"]


class Parts(NamedTuple):
    """What the handler uses."""

    at_controller: AtController
    controller: Controller
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.DESCRIBE)
    parts.at_controller.answer(request, _list(parts, request, request.message))


def _list(parts: Parts, request: Request, message: ListPartitionReassignmentsRequest) -> Steps[None]:
    asked = None
    if message.topics is not None:
        names = (TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes)
        asked = set((yield from list_of(names)))
    topics: dict[str, OngoingTopicReassignment] = {}
    moves = yield from parts.controller.commands.list_reassignments(asked)
    for (name, index), assignment in moves.items():
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    reply_once(request, ListPartitionReassignmentsResponse(topics=list(topics.values())))


def _fail(
    message: ListPartitionReassignmentsRequest, _version: int, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """For the request as a whole. Apache's brokers repeat what it names, without replicas, except
    where another controller is to be asked."""
    topics = [] if code is ErrorCode.NOT_CONTROLLER else message.topics or []
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=code.message,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
            )
            for topic in topics
        ],
    )


API = ApiHandler(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    0,
    0,
    _handle,
    lambda services: Parts(services.at_controller, services.controller, services.auth_helper),
    _fail,
)
