"""AlterConfigs (key 33), versions 0 to 2.

Replaces all dynamic configuration of a topic or broker. Any broker serves topics.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, broker_of
from barnabas.broker.apis.later import answer_later, keeper_failure, reply_once
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["API", "alter_all", "resource_results"]

Result = TypeVar("Result")

_Change = Callable[[Any], Callable[[Mapping[str, str]], dict[str, str]]]
"""Makes, of a request's resource, what turns its old texts into new ones; raises `KafkaError`."""


def _handle(services: Services, request: Request) -> None:
    answer_later(services, request, _alter(services, request, request.message))


def _alter(services: Services, request: Request, message: AlterConfigsRequest) -> Steps[None]:
    failures = yield from alter_all(services, message.resources, _replacement, validate_only=message.validate_only)
    results = resource_results(AlterConfigsResourceResponse, message.resources, failures)
    reply_once(request, AlterConfigsResponse(responses=results))


def _replacement(resource: Any) -> Callable[[Mapping[str, str]], dict[str, str]]:
    texts = {config.name: config.value for config in resource.configs if config.value is not None}
    return lambda _: texts


def alter_all(
    services: Services,
    resources: Sequence[Any],
    change: _Change,
    *,
    validate_only: bool,
    alter_loggers: Callable[[Any, bool], None] | None = None,
) -> Steps[list[KafkaError | None]]:
    """Alter each resource for itself; what went wrong with each, in order.

    ``alter_loggers`` takes a resource of type BROKER_LOGGER and whether to validate only; None where there are none.
    """
    failures: list[KafkaError | None] = []
    asked = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        failure: KafkaError | None = None
        try:
            if asked[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            nulls = [config.name for config in resource.configs if _is_null(config)]
            if nulls:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            if resource.resource_type == BROKER_LOGGER and alter_loggers is not None:
                _check_logger_broker(services, resource.resource_name)
                alter_loggers(resource, validate_only)
            else:
                yield from _alter_one(services, resource, change(resource), validate_only=validate_only)
        except KafkaError as error:
            failure = error
        except KeeperError as error:
            failure = keeper_failure(error)
        failures.append(failure)
    return failures


def resource_results(
    result_type: Callable[..., Result], resources: Sequence[Any], failures: Sequence[KafkaError | None]
) -> list[Result]:
    """What a response says of each resource; ``result_type`` is the struct that its API has for that."""
    return [
        result_type(
            error_code=failure.code if failure else ErrorCode.NONE,
            error_message=failure.message if failure else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, failure in zip(resources, failures, strict=True)
    ]


def _is_null(config: Any) -> bool:
    """Null is for deletion alone (operation 1)."""
    return config.value is None and getattr(config, "config_operation", 0) != 1


def _alter_one(
    services: Services, resource: Any, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool
) -> Steps[None]:
    if resource.resource_type == TOPIC:
        if not resource.resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if resource.resource_name not in services.metadata:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
            )
        yield from services.config_repository.alter_topic(resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        broker = broker_of(services, resource.resource_name, to_alter=True)
        yield from services.config_repository.alter_broker(broker, change, validate_only=validate_only)
    elif resource.resource_type == CLIENT_METRICS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS",
        )
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_logger_broker(services: Services, resource_name: str) -> None:
    """Refuse log levels of another broker; raises `KafkaError`."""
    if not resource_name.removeprefix("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
    if int(resource_name) != services.broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {services.broker_id}, but received {resource_name}",
        )


def _fail(message: AlterConfigsRequest, _version: int, code: ErrorCode) -> AlterConfigsResponse:
    failures = [KafkaError(code)] * len(message.resources)
    return AlterConfigsResponse(responses=resource_results(AlterConfigsResourceResponse, message.resources, failures))


API = ApiHandler(ApiKey.ALTER_CONFIGS, 0, 2, _handle, _fail)
