"""DeleteTopics (key 20), versions 1 to 6.

The controller orders the deletion, and answers when the topics are gone or at the
request's timeout.

- 3: TOPIC_DELETION_DISABLED instead of INVALID_REQUEST.
- 6: topics named by id (KIP-516).

Rights: DELETE on each topic. The name of a topic that is given by its id is returned to clients
with DESCRIBE on it.

Errors: NOT_CONTROLLER, TOPIC_DELETION_DISABLED, TOPIC_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID
from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, LaterAnswers, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.topics import Topics
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ["API"]

_STATES_FROM_VERSION = 6
_DISABLED_FROM_VERSION = 3


class Parts(NamedTuple):
    """What the handler uses."""

    config: BrokerConfig
    later: LaterAnswers
    at_controller: AtController
    metadata: MetadataCache
    topics: Topics
    auth_helper: AuthHelper


def _asked(message: DeleteTopicsRequest, version: int) -> Iterable[DeleteTopicState]:
    if version >= _STATES_FROM_VERSION:
        return message.topics
    return (DeleteTopicState(name=name) for name in message.topic_names)


def _handle(parts: Parts, request: Request) -> None:
    parts.at_controller.do(request, lambda: _begin(parts, request))


def _begin(parts: Parts, request: Request) -> None:
    if not parts.config["delete.topic.enable"]:
        known = request.version >= _DISABLED_FROM_VERSION
        request.fail(ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
        return
    parts.later.answer(request, _delete(parts, request), request.message.timeout_ms)


def _delete(parts: Parts, request: Request) -> Steps[None]:
    results: list[DeletableTopicResult] = []
    for topic in _asked(request.message, request.version):
        name = topic.name
        yield None
        if name is not None and topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if topic.topic_id != ZERO_UUID:
            name = parts.metadata.topic_name(topic.topic_id)
        results.append(DeletableTopicResult(name=name, topic_id=topic.topic_id))
    to_delete = yield from _authorized(parts.auth_helper, request, results)
    failed: dict[str, KafkaError] = {}
    if to_delete:
        failed = yield from parts.topics.delete(list(to_delete))
    ordered = []
    for name, result in to_delete.items():
        yield None
        error = failed.pop(name, None)
        if error is None:
            ordered.append(name)
        else:
            result.error_code = error.code

    def done(missing: set[str]) -> None:
        for name in missing:
            to_delete[name].error_code = ErrorCode.REQUEST_TIMED_OUT
        reply_once(request, DeleteTopicsResponse(responses=results))

    timeout_ms = request.message.timeout_ms
    if timeout_ms <= 0:
        done(set(ordered))
    else:
        request.waiter = parts.topics.when_deleted(ordered, done, timeout_ms)


def _authorized(
    auth_helper: AuthHelper, request: Request, results: list[DeletableTopicResult]
) -> Steps[dict[str, DeletableTopicResult]]:
    """The results of the topics that the client may delete, by name; the others have their error.

    The error of a topic without rights does not depend on the other topics of the request: that it
    is named twice, once by id, would report the name of the id."""
    names = yield from list_of(result.name for result in results if result.name is not None)
    described = yield from auth_helper.filter_by_authorized(request, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    deleted = yield from auth_helper.filter_by_authorized(request, AclOperation.DELETE, ResourceType.TOPIC, names)
    to_delete: dict[str, DeletableTopicResult] = {}
    for result in results:
        yield None
        name, has_id = result.name, result.topic_id != ZERO_UUID
        if name is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if has_id else ErrorCode.INVALID_REQUEST
        elif has_id and name not in described:
            result.name = None
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in deleted:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name in to_delete:
            result.error_code = ErrorCode.INVALID_REQUEST
        else:
            to_delete[name] = result
    return to_delete


def _fail(message: DeleteTopicsRequest, version: int, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code)
            for topic in _asked(message, version)
        ]
    )


API = ApiHandler(
    ApiKey.DELETE_TOPICS,
    1,
    6,
    _handle,
    lambda services: Parts(
        services.config,
        services.later,
        services.at_controller,
        services.metadata,
        services.topics,
        services.auth_helper,
    ),
    _fail,
    administrative=True,
)
