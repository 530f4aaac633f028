"""DescribeConfigs (key 32), versions 1 to 4.

Values of topics, brokers and loggers (KIP-412), and where each comes from (KIP-226): see
`configuration.config_helper`.

- 1: synonyms.
- 3: types and documentation (KIP-569).

Rights: DESCRIBE_CONFIGS on each topic and group, and on the cluster for brokers and their loggers.
Refused resources come last in the response.

Errors: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
"""

from collections.abc import Collection
from typing import NamedTuple

from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.config_admin import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, broker_of
from barnabas.broker.configuration.config_helper import ConfigHelper
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import validate_topic_name
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

__all__ = ["API"]

_GROUP = 32  # a type of resources that has no settings here
_NAMES_A_READ = 32
"""Topics whose znodes are read in one round trip."""


class Parts(NamedTuple):
    """What the handler uses."""

    broker_id: int
    later: LaterAnswers
    first_updates: FirstUpdates
    metadata: MetadataCache
    configs: DynamicConfig
    config_repository: ConfigRepository
    config_helper: ConfigHelper
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    topics = [each.resource_name for each in request.message.resources if each.resource_type == TOPIC]
    parts.first_updates.when_topics_known(request, topics, lambda: parts.later.answer(request, _work(parts, request)))


def _work(parts: Parts, request: Request) -> Steps[None]:
    message: DescribeConfigsRequest = request.message
    # A resource is described once, however often it is named: its description is a thousand
    # times as long as its name.
    resources: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in message.resources:
        yield None
        resources[resource.resource_type, resource.resource_name] = resource
    refused = yield from _refused(parts.auth_helper, request, resources)
    for result in refused:
        yield None
        del resources[result.resource_type, result.resource_name]
    # Another broker may have changed a topic a moment ago: the znodes know, as they
    # do for Apache's brokers.
    names = []
    for kind, name in resources:
        yield None
        if kind == TOPIC and name in parts.metadata:
            names.append(name)
    for first in range(0, len(names), _NAMES_A_READ):
        yield from parts.config_repository.refresh(f"topics/{name}" for name in names[first : first + _NAMES_A_READ])
    results = []
    for resource in resources.values():
        results.append(_describe(parts, resource, message))
        yield None
    reply_once(request, DescribeConfigsResponse(results=results + refused))


def _refused(
    auth_helper: AuthHelper, request: Request, resources: Collection[tuple[int, str]]
) -> Steps[list[DescribeConfigsResult]]:
    """The results of resources whose configuration the client may not see."""
    refused: list[DescribeConfigsResult] = []
    if not auth_helper.is_enabled:
        return refused
    topics = yield from list_of(name for kind, name in resources if kind == TOPIC)
    operation = AclOperation.DESCRIBE_CONFIGS
    authorized = yield from auth_helper.filter_by_authorized(request, operation, ResourceType.TOPIC, topics)
    may_see_brokers: bool | None = None
    for kind, name in resources:
        yield None
        if kind == TOPIC:
            is_refused, error = name not in authorized, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif kind == _GROUP:
            is_refused = not auth_helper.authorize(request, operation, ResourceType.GROUP, name)
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
            if may_see_brokers is None:
                may_see_brokers = auth_helper.authorize(request, operation, ResourceType.CLUSTER, CLUSTER_NAME)
            is_refused, error = not may_see_brokers, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        else:
            continue  # there is nothing to see
        if is_refused:
            refused.append(
                DescribeConfigsResult(
                    error_code=error, error_message=error.message, resource_type=kind, resource_name=name
                )
            )
    return refused


def _describe(
    parts: Parts, resource: DescribeConfigsResource, message: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    keys = frozenset(resource.configuration_keys) if resource.configuration_keys else None
    synonyms, documentation = message.include_synonyms, message.include_documentation
    try:
        if resource.resource_type == TOPIC:
            validate_topic_name(resource.resource_name)
            if resource.resource_name not in parts.metadata:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            texts = parts.configs.topic_texts(resource.resource_name)
            result.configs = parts.config_helper.describe_topic(
                texts, keys, with_synonyms=synonyms, with_documentation=documentation
            )
        elif resource.resource_type == BROKER:
            broker = broker_of(parts.broker_id, resource.resource_name)
            result.configs = parts.config_helper.describe_broker(
                keys, per_broker=broker is not None, with_synonyms=synonyms, with_documentation=documentation
            )
        elif resource.resource_type == BROKER_LOGGER:
            result.configs = parts.config_helper.describe_loggers(resource.resource_name, keys)
        elif resource.resource_type == CLIENT_METRICS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters"
            )
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There are no configurations of resource type {resource.resource_type}"
            )
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _fail(message: DescribeConfigsRequest, _version: int, code: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=code.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in message.resources
        ]
    )


API = ApiHandler(
    ApiKey.DESCRIBE_CONFIGS,
    1,
    4,
    _handle,
    lambda services: Parts(
        services.broker_id,
        services.later,
        services.first_updates,
        services.metadata,
        services.configs,
        services.config_repository,
        services.config_helper,
        services.auth_helper,
    ),
    _fail,
)
