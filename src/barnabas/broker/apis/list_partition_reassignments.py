"""ListPartitionReassignments (API key 46, KIP-455): which partitions' replicas are being moved, and how."""

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import answer_later, reply_once
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

__all__ = ["API"]


def _handle(node: Services, request: Request) -> None:
    if not node.controller.is_active:
        request.fail(ErrorCode.NOT_CONTROLLER)
        return
    answer_later(node, request, lambda: _list(node, request, request.message), request.message.timeout_ms)


async def _list(node: Services, request: Request, message: ListPartitionReassignmentsRequest) -> None:
    asked = None
    if message.topics is not None:
        asked = {TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for (name, index), assignment in (await node.controller.reassignments(asked)).items():
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    reply_once(request, ListPartitionReassignmentsResponse(topics=list(topics.values())))


API = ApiHandler(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, _handle)
