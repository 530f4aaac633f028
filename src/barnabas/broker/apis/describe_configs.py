"""DescribeConfigs (key 32), versions 1 to 4.

Values of topics, brokers and loggers (KIP-412), and where each comes from (KIP-226): see
`configuration.config_helper`.

- 1: synonyms.
- 3: types and documentation (KIP-569).

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import when_topics_known
from barnabas.broker.apis.later import answer_later, reply_once
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.config_admin import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, broker_of
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import validate_topic_name
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

__all__ = ["API"]

_A_TURN = 32
"""Resources after which others have their turn: a topic with its settings takes 100 us."""


def _handle(services: Services, request: Request) -> None:
    topics = [each.resource_name for each in request.message.resources if each.resource_type == TOPIC]
    when_topics_known(services, request, topics, lambda: answer_later(services, request, _work(services, request)))


def _work(services: Services, request: Request) -> Steps[None]:
    message: DescribeConfigsRequest = request.message
    # A resource is described once, however often it is named: its description is a thousand
    # times as long as its name.
    resources: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in message.resources:
        yield None
        resources[resource.resource_type, resource.resource_name] = resource
    # Another broker may have changed a topic a moment ago: the znodes know, as they
    # do for Apache's brokers.
    names = []
    for kind, name in resources:
        yield None
        if kind == TOPIC and name in services.metadata:
            names.append(name)
    for first in range(0, len(names), _A_TURN):
        yield from services.config_repository.refresh(f"topics/{name}" for name in names[first : first + _A_TURN])
    results = []
    for resource in resources.values():
        results.append(_describe(services, resource, message))
        if len(results) % _A_TURN == 0:
            yield None
    reply_once(request, DescribeConfigsResponse(results=results))


def _describe(
    services: Services, resource: DescribeConfigsResource, message: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    keys = frozenset(resource.configuration_keys) if resource.configuration_keys else None
    synonyms, documentation = message.include_synonyms, message.include_documentation
    try:
        if resource.resource_type == TOPIC:
            validate_topic_name(resource.resource_name)
            if resource.resource_name not in services.metadata:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            texts = services.configs.topic_texts(resource.resource_name)
            result.configs = services.config_helper.describe_topic(
                texts, keys, with_synonyms=synonyms, with_documentation=documentation
            )
        elif resource.resource_type == BROKER:
            broker = broker_of(services.broker_id, resource.resource_name)
            result.configs = services.config_helper.describe_broker(
                keys, per_broker=broker is not None, with_synonyms=synonyms, with_documentation=documentation
            )
        elif resource.resource_type == BROKER_LOGGER:
            result.configs = services.config_helper.describe_loggers(resource.resource_name, keys)
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


API = ApiHandler(ApiKey.DESCRIBE_CONFIGS, 1, 4, _handle, _fail)
