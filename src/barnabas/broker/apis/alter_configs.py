"""AlterConfigs (key 33), versions 0 to 2.

Replaces all dynamic configuration of a topic or broker. Any broker serves topics.

Rights: ALTER_CONFIGS on each topic, and on the cluster for brokers.

Errors: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
INVALID_CONFIG, INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import LaterAnswers, keeper_failure, reply_once
from barnabas.broker.apis.request_sizes import LIMIT_OF_ALL
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.config_admin import TOPIC, ConfigAdmin, ResourceChange
from barnabas.broker.configuration.operations import SET
from barnabas.broker.requests.request import Request
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["API", "Parts", "alter_resources", "resource_results", "when_resources_known"]

Result = TypeVar("Result")


class Parts(NamedTuple):
    """What the handlers of AlterConfigs and IncrementalAlterConfigs use."""

    later: LaterAnswers
    first_updates: FirstUpdates
    config_admin: ConfigAdmin
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    when_resources_known(parts, request, _alter(parts, request, request.message))


def _alter(parts: Parts, request: Request, message: AlterConfigsRequest) -> Steps[None]:
    def change(resource: AlterConfigsResource) -> Steps[ResourceChange]:
        operations = yield from list_of((config.name, SET, config.value) for config in resource.configs)
        return ResourceChange(resource.resource_type, resource.resource_name, operations, replaces_all=True)

    failures = yield from alter_resources(parts, request, change)
    results = yield from list_of(resource_results(AlterConfigsResourceResponse, message.resources, failures))
    reply_once(request, AlterConfigsResponse(responses=results))


def alter_resources(
    parts: Parts, request: Request, change: Callable[[Any], Steps[ResourceChange]]
) -> Steps[list[KafkaError | KeeperError | None]]:
    """Alter what a request of either API names; what went wrong with each resource, in order."""
    message, authorize = request.message, parts.auth_helper.authorize
    changes = []
    for resource in message.resources:
        yield None
        changes.append((yield from change(resource)))

    def is_authorized(resource_type: int, name: str) -> bool:
        if resource_type == TOPIC:
            return authorize(request, AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, name)
        return authorize(request, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)

    return (yield from parts.config_admin.alter(changes, is_authorized, validate_only=message.validate_only))


def when_resources_known(parts: Parts, request: Request, steps: Steps[None]) -> None:
    """Perform ``steps``, which answer ``request``, as soon as this broker knows the topics that it
    names."""
    topics = [resource.resource_name for resource in request.message.resources if resource.resource_type == TOPIC]
    parts.first_updates.when_topics_known(request, topics, lambda: parts.later.answer(request, steps))


def resource_results(
    result_type: Callable[..., Result],
    resources: Sequence[Any],
    failures: Sequence[KafkaError | KeeperError | None],
) -> Iterator[Result]:
    """The results of a response, one for each resource.

    ``result_type`` is the struct of its API."""
    for resource, failure in zip(resources, failures, strict=True):
        error = keeper_failure(failure) if isinstance(failure, KeeperError) else failure
        yield result_type(
            error_code=error.code if error else ErrorCode.NONE,
            error_message=error.message if error else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )


def _fail(message: AlterConfigsRequest, _version: int, code: ErrorCode) -> AlterConfigsResponse:
    failures = [KafkaError(code)] * len(message.resources)
    results = resource_results(AlterConfigsResourceResponse, message.resources, failures)
    return AlterConfigsResponse(responses=list(results))


API = ApiHandler(
    ApiKey.ALTER_CONFIGS,
    0,
    2,
    _handle,
    lambda services: Parts(services.later, services.first_updates, services.config_admin, services.auth_helper),
    _fail,
    max_request_bytes=LIMIT_OF_ALL,
    administrative=True,
)
