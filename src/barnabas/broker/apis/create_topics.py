"""CreateTopics (key 19), versions 2 to 7.

The controller writes the topics, and answers when they have leaders or at the request's timeout.

- 4: -1 stands for the default number of partitions and replicas (KIP-464).
- 5: the new topic's settings in the response (KIP-525).
- 7: the topic id (KIP-516).

Rights: CREATE on the cluster, or on each topic. A client without DESCRIBE_CONFIGS on a topic does
not receive its settings, partitions and id, but TOPIC_AUTHORIZATION_FAILED as the error of its
settings.

Errors: NOT_CONTROLLER, TOPIC_AUTHORIZATION_FAILED, TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION,
INVALID_PARTITIONS (also: more than 100,000 replicas in all, or a znode that would be too large),
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST (a topic
named twice), POLICY_VIOLATION (more than 10,000 topics), REQUEST_TIMED_OUT.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from barnabas.base.tasks import Runner, Task, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, LaterAnswers, reply_once, serve
from barnabas.broker.apis.request_sizes import LIMIT_OF_ALL
from barnabas.broker.authorizer.auth_helper import EVERY_NAME, AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.config_helper import ConfigHelper
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import MAX_REPLICAS_A_REQUEST, MAX_TOPICS_A_REQUEST, CreationPlan
from barnabas.broker.topics.topics import Topics
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ["API"]

_CONFIGS_FROM_VERSION = 5
_METADATA_TOPIC = "__cluster_metadata"


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    later: LaterAnswers
    at_controller: AtController
    config_helper: ConfigHelper
    topics: Topics
    controller: Controller
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.at_controller.do(request, lambda: _begin(parts, request))


def _begin(parts: Parts, request: Request) -> None:
    if parts.controller.context.has_read_znodes:
        serve(parts.runner, request, _plan(parts, request))
    else:
        parts.later.answer(request, _plan_after_failover(parts, request), request.message.timeout_ms)


def _plan_after_failover(parts: Parts, request: Request) -> Steps[None]:
    yield from parts.controller.commands.await_failover()
    serve(parts.runner, request, _plan(parts, request))


def _plan(parts: Parts, request: Request) -> Task[None]:
    message: CreateTopicsRequest = request.message
    names: dict[str, int] = {}
    for topic in message.topics:
        yield None
        names[topic.name] = names.get(topic.name, 0) + 1
    may_create, may_describe = yield from _authorized(parts.auth_helper, request, names)
    results: dict[str, CreatableTopicResult] = {}
    plans: list[CreationPlan] = []
    existing = parts.topics.existing()
    replicas_left = MAX_REPLICAS_A_REQUEST
    for topic in message.topics:
        yield None
        result = results[topic.name] = CreatableTopicResult(name=topic.name, error_message=None)
        if topic.name not in may_describe and topic.name != _METADATA_TOPIC:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refusal = _refusal(message, topic.name, times=names[topic.name], is_authorized=topic.name in may_create)
        if refusal is not None:
            result.error_code, result.error_message = refusal.code, refusal.message
            continue
        try:
            plan = yield from parts.topics.plan(topic, existing, replicas_left)
            replicas_left -= sum(map(len, plan.assignment.values()))
            plans.append(plan)
        except KafkaError as error:
            _failed(result, error)
    if message.validate_only or not plans:
        _describe(parts, plans, results, request.version)
        topics = []
        for topic in message.topics:
            yield None
            topics.append(results[topic.name])
        reply_once(request, CreateTopicsResponse(topics=topics))
        return
    parts.later.answer(request, _create(parts, request, plans, results), message.timeout_ms)


def _refusal(message: CreateTopicsRequest, name: str, *, times: int, is_authorized: bool) -> KafkaError | None:
    """Why a topic is not even planned."""
    if len(message.topics) > MAX_TOPICS_A_REQUEST:
        text = f"The request names more than {MAX_TOPICS_A_REQUEST} topics: split it."
        return KafkaError(ErrorCode.POLICY_VIOLATION, text)
    if name == _METADATA_TOPIC:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {_METADATA_TOPIC} is prohibited.")
    if times > 1:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
    if not is_authorized:
        return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    return None


def _authorized(
    auth_helper: AuthHelper, request: Request, named: Iterable[str]
) -> Task[tuple[Container[str], Container[str]]]:
    """The topics that the client may create, and those whose configuration it may see."""
    names = yield from list_of(name for name in named if name != _METADATA_TOPIC)
    may_create = EVERY_NAME
    if not auth_helper.authorize(request, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
        may_create = yield from auth_helper.filter_by_authorized(
            request, AclOperation.CREATE, ResourceType.TOPIC, names
        )
    may_describe = yield from auth_helper.filter_by_authorized(
        request, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, log_if_denied=False
    )
    return may_create, may_describe


def _create(
    parts: Parts, request: Request, plans: list[CreationPlan], results: dict[str, CreatableTopicResult]
) -> Steps[None]:
    failed = yield from parts.topics.create(plans)
    for name, error in failed.items():
        _failed(results[name], error)
    created = {plan.name: plan for plan in plans if results[plan.name].error_code == ErrorCode.NONE}

    def done(missing: set[str]) -> None:
        for name in missing:
            _failed(results[name], KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        _describe(parts, [plan for name, plan in created.items() if name not in missing], results, request.version)
        reply_once(request, CreateTopicsResponse(topics=[results[topic.name] for topic in request.message.topics]))

    counts = {name: len(plan.assignment) for name, plan in created.items()}
    timeout_ms = request.message.timeout_ms
    if timeout_ms <= 0:
        done(set(created))
    else:
        request.waiter = parts.topics.when_led(counts, done, timeout_ms)


def _failed(result: CreatableTopicResult, error: KafkaError) -> None:
    """A topic that the client may create is not created: there is nothing to describe."""
    result.error_code, result.error_message = error.code, error.message
    result.topic_config_error_code = ErrorCode.NONE


def _describe(
    parts: Parts, plans: Iterable[CreationPlan], results: dict[str, CreatableTopicResult], version: int
) -> None:
    """Fill in what was created.

    Topics of equal configuration, most often none, share its description."""
    described: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
    for plan in plans:
        result = results[plan.name]
        if result.topic_config_error_code != ErrorCode.NONE:
            continue
        result.topic_id = plan.topic_id
        if version < _CONFIGS_FROM_VERSION:
            continue
        result.num_partitions = len(plan.assignment)
        result.replication_factor = len(plan.assignment[0])
        key = tuple(sorted(plan.configs.items()))
        if key not in described:
            described[key] = _config_entries(parts, plan)
        result.configs = described[key]


def _config_entries(parts: Parts, plan: CreationPlan) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.config_source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in parts.config_helper.describe_topic(
            plan.configs, None, with_synonyms=False, with_documentation=False
        )
    ]


def _fail(message: CreateTopicsRequest, _version: int, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=code.message)
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.CREATE_TOPICS,
    2,
    7,
    _handle,
    lambda services: Parts(
        services.runner,
        services.later,
        services.at_controller,
        services.config_helper,
        services.topics,
        services.controller,
        services.auth_helper,
    ),
    _fail,
    max_request_bytes=LIMIT_OF_ALL,
    administrative=True,
)
