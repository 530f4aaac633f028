"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Sets, deletes, appends to and subtracts from single settings of a topic or broker (KIP-339), and sets the levels of
loggers (KIP-412).

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.broker.apis.alter_configs import alter_all, resource_results
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.describe_configs import TOPIC
from barnabas.broker.apis.later import answer_later, reply_once
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_loggers import alter_log_levels
from barnabas.broker.configuration.definitions import DEFINITIONS
from barnabas.broker.configuration.operations import AlterConfigOp, change_texts
from barnabas.broker.requests.request import Request
from barnabas.log.settings import TOPIC_SETTINGS
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["API"]


def _handle(services: Services, request: Request) -> None:
    answer_later(services, request, _alter(services, request, request.message))


def _alter(services: Services, request: Request, message: IncrementalAlterConfigsRequest) -> Steps[None]:
    failures = yield from alter_all(
        services, message.resources, _operations, validate_only=message.validate_only, alter_loggers=_alter_loggers
    )
    results = resource_results(AlterConfigsResourceResponse, message.resources, failures)
    reply_once(request, IncrementalAlterConfigsResponse(responses=results))


def _operations(resource: Any) -> Callable[[Mapping[str, str]], dict[str, str]]:
    definitions = TOPIC_SETTINGS if resource.resource_type == TOPIC else DEFINITIONS
    return lambda texts: change_texts(texts, _operations_of(resource), definitions)


def _operations_of(resource: Any) -> list[AlterConfigOp]:
    return [(config.name, config.config_operation, config.value) for config in resource.configs]


def _alter_loggers(resource: Any, validate_only: bool) -> None:
    alter_log_levels(_operations_of(resource), validate_only=validate_only)


def _fail(message: IncrementalAlterConfigsRequest, _version: int, code: ErrorCode) -> IncrementalAlterConfigsResponse:
    failures = [KafkaError(code)] * len(message.resources)
    return IncrementalAlterConfigsResponse(
        responses=resource_results(AlterConfigsResourceResponse, message.resources, failures)
    )


API = ApiHandler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, _handle, _fail)
