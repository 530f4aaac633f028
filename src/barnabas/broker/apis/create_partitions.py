"""CreatePartitions (key 37), versions 0 to 3.

More partitions for topics, each on its own (KIP-195); answered when they have leaders or
at the request's timeout.

Rights: ALTER on each topic.

Errors: NOT_CONTROLLER, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS
(also: more than 100,000 new replicas of a topic, or a znode that would be too large),
INVALID_REPLICA_ASSIGNMENT, REASSIGNMENT_IN_PROGRESS, INVALID_REQUEST (a topic named twice),
REQUEST_TIMED_OUT.
"""

from collections import Counter
from typing import NamedTuple

from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, keeper_failure, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.topics import Topics
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

__all__ = ["API"]


class Parts(NamedTuple):
    """What the handler uses."""

    at_controller: AtController
    topics: Topics
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.at_controller.answer(request, _grow(parts, request, request.message))


def _grow(parts: Parts, request: Request, message: CreatePartitionsRequest) -> Steps[None]:
    results: dict[str, CreatePartitionsTopicResult] = {}
    counts: dict[str, int] = {}
    asked: Counter[str] = Counter()
    for topic in message.topics:
        yield None
        asked[topic.name] += 1
    once = yield from list_of(name for name, times in asked.items() if times == 1)
    authorized = yield from parts.auth_helper.filter_by_authorized(
        request, AclOperation.ALTER, ResourceType.TOPIC, once
    )
    for topic in message.topics:
        yield None
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if asked[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            if topic.name not in authorized:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
            assignments = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
            counts[topic.name] = yield from parts.topics.grow(
                topic.name, topic.count, assignments, validate_only=message.validate_only
            )
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        except KeeperError as error:
            failure = keeper_failure(error)
            result.error_code, result.error_message = failure.code, failure.message

    def done(missing: set[str]) -> None:
        for name in missing:
            results[name].error_code = ErrorCode.REQUEST_TIMED_OUT
        reply_once(request, CreatePartitionsResponse(results=list(results.values())))

    if message.validate_only:
        done(set())
    elif message.timeout_ms <= 0:
        done(set(counts))
    else:
        request.waiter = parts.topics.when_led(counts, done, message.timeout_ms)


def _fail(message: CreatePartitionsRequest, _version: int, code: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in message.topics]
    )


API = ApiHandler(
    ApiKey.CREATE_PARTITIONS,
    0,
    3,
    _handle,
    lambda services: Parts(services.at_controller, services.topics, services.auth_helper),
    _fail,
    administrative=True,
)
