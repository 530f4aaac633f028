"""AlterPartitionReassignments (key 45), version 0.

Begins, replaces and cancels moves of replicas, each on its own (KIP-455). Answered when the orders
are written: the moves continue after that, and ListPartitionReassignments shows them.

Errors: NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
NO_REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION (the topic's znode would be too large),
REQUEST_TIMED_OUT.
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
from barnabas.wire.kafka.errors import KafkaError
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


def _handle(parts: Parts, request: Request) -> None:
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


def _responses(answers: dict[TopicPartition, KafkaError | None]) -> Steps[list[ReassignableTopicResponse]]:
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


API = ApiHandler(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    0,
    0,
    _handle,
    lambda services: Parts(services.at_controller, services.controller),
)
