"""ListPartitionReassignments (key 46), version 0.

Which partitions have replicas on the move, and how (KIP-455).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, reply_once
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
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


def _handle(parts: Parts, request: Request) -> None:
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


API = ApiHandler(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    0,
    0,
    _handle,
    lambda services: Parts(services.at_controller, services.controller),
)
