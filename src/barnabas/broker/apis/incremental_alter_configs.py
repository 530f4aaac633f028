"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Sets, deletes, appends to and subtracts from single settings of a topic or broker (KIP-339), and
sets the levels of loggers (KIP-412).

Rights: ALTER_CONFIGS on each topic, and on the cluster for brokers and their loggers.

Errors: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
INVALID_CONFIG, INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from barnabas.base.tasks import list_of
from barnabas.broker.apis.alter_configs import Parts, alter_resources, resource_results, when_resources_known
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import reply_once
from barnabas.broker.apis.request_sizes import LIMIT_OF_ALL
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.config_admin import ResourceChange
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["API"]


def _handle(parts: Parts, request: Request) -> None:
    when_resources_known(parts, request, _alter(parts, request, request.message))


def _alter(parts: Parts, request: Request, message: IncrementalAlterConfigsRequest) -> Steps[None]:
    def change(resource: AlterConfigsResource) -> Steps[ResourceChange]:
        operations = yield from list_of(
            (config.name, config.config_operation, config.value) for config in resource.configs
        )
        return ResourceChange(resource.resource_type, resource.resource_name, operations, replaces_all=False)

    failures = yield from alter_resources(parts, request, change)
    results = yield from list_of(resource_results(AlterConfigsResourceResponse, message.resources, failures))
    reply_once(request, IncrementalAlterConfigsResponse(responses=results))


def _fail(message: IncrementalAlterConfigsRequest, _version: int, code: ErrorCode) -> IncrementalAlterConfigsResponse:
    failures = [KafkaError(code)] * len(message.resources)
    return IncrementalAlterConfigsResponse(
        responses=list(resource_results(AlterConfigsResourceResponse, message.resources, failures))
    )


API = ApiHandler(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    0,
    1,
    _handle,
    lambda services: Parts(services.later, services.first_updates, services.config_admin, services.auth_helper),
    _fail,
    max_request_bytes=LIMIT_OF_ALL,
    administrative=True,
)
