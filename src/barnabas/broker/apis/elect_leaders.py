"""ElectLeaders (key 43), versions 0 to 2.

Preferred leaders, or unclean ones, on demand (KIP-460). Answered when this broker knows the new
leaders, so that a client that asks it next finds them, or at the request's timeout. A request for
all partitions leaves out those that need no election.

- 1: the kind of election; before, all are of preferred leaders.

Rights: ALTER on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, ELECTION_NOT_NEEDED,
PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION,
INVALID_TOPIC_EXCEPTION (a topic that is being deleted), INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task, done_here, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, LaterAnswers, reply_once, serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.delayed_elect_leader import wait_for_leaders
from barnabas.broker.controller.service import Controller
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

__all__ = ["API"]

_PREFERRED, _UNCLEAN = 0, 1
_TYPES_FROM_VERSION = 1


class Parts(NamedTuple):
    """What the handler uses."""

    monotonic_ms: Callable[[], int]
    runner: Runner
    later: LaterAnswers
    at_controller: AtController
    purgatory: Purgatory
    metadata: MetadataCache
    controller: Controller
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    parts.at_controller.do(request, lambda: _begin(parts, request))


def _begin(parts: Parts, request: Request) -> None:
    message: ElectLeadersRequest = request.message
    if _kind(request) not in (_PREFERRED, _UNCLEAN):
        request.fail(ErrorCode.INVALID_REQUEST)
    else:
        parts.later.answer(request, _elect(parts, request, message), message.timeout_ms)


def _kind(request: Request) -> int:
    kind: int = request.message.election_type
    return kind if request.version >= _TYPES_FROM_VERSION else _PREFERRED


def _elect(parts: Parts, request: Request, message: ElectLeadersRequest) -> Steps[None]:
    deadline_ms = request.received_ms + message.timeout_ms
    asked = None
    if message.topic_partitions is not None:
        asked = list(dict.fromkeys((yield from list_of(_named(message)))))
    yield from parts.controller.commands.await_failover()
    partitions = list(parts.controller.context.partitions()) if asked is None else asked
    results = yield from parts.controller.commands.elect_leaders(partitions, unclean=_kind(request) == _UNCLEAN)
    elected: dict[TopicPartition, int] = {}
    answers: dict[TopicPartition, KafkaError | None] = {}
    for topic_partition, result in results.items():
        if isinstance(result, int):
            elected[topic_partition] = result
        elif asked is not None or result.code is not ErrorCode.ELECTION_NOT_NEEDED:
            answers[topic_partition] = result

    def respond(waited_for: Mapping[TopicPartition, KafkaError | None]) -> None:
        serve(parts.runner, request, _respond(request, {**answers, **waited_for}))

    left_ms = max(deadline_ms - parts.monotonic_ms(), 0)
    request.waiter = wait_for_leaders(parts.metadata, parts.purgatory, elected, respond, left_ms)


def _named(message: ElectLeadersRequest) -> Iterator[TopicPartition]:
    return (
        TopicPartition(topic.topic, index) for topic in message.topic_partitions or () for index in topic.partitions
    )


def _respond(request: Request, answers: Mapping[TopicPartition, KafkaError | None]) -> Task[None]:
    results = yield from _results(answers)
    reply_once(request, ElectLeadersResponse(replica_election_results=results))


def _results(answers: Mapping[TopicPartition, KafkaError | None]) -> Task[list[ReplicaElectionResult]]:
    topics: dict[str, ReplicaElectionResult] = {}
    for (topic, index), error in answers.items():
        yield None
        entry = PartitionResult(partition_id=index)
        if error is not None:
            entry.error_code, entry.error_message = error.code, error.message
        topics.setdefault(topic, ReplicaElectionResult(topic=topic)).partition_result.append(entry)
    for result in topics.values():
        result.partition_result.sort(key=lambda each: each.partition_id)
    return sorted(topics.values(), key=lambda each: each.topic)


def _fail(message: ElectLeadersRequest, version: int, code: ErrorCode) -> ElectLeadersResponse:
    """For the request as a whole, and, as version 0 can say it only so, for each partition."""
    answers: dict[TopicPartition, KafkaError | None] = dict.fromkeys(_named(message), KafkaError(code))
    whole = code if version >= _TYPES_FROM_VERSION else ErrorCode.NONE
    return ElectLeadersResponse(error_code=whole, replica_election_results=done_here(_results(answers)))


API = ApiHandler(
    ApiKey.ELECT_LEADERS,
    0,
    2,
    _handle,
    lambda services: Parts(
        services.clock.monotonic_ms,
        services.runner,
        services.later,
        services.at_controller,
        services.purgatory,
        services.metadata,
        services.controller,
        services.auth_helper,
    ),
    _fail,
    administrative=True,
)
