"""DescribeCluster (key 60), versions 0 to 1.

Cluster id, controller and live brokers (KIP-700).

- 1: brokers or controllers (KIP-919); a broker answers for brokers.

Rights: none. What a client may do on the cluster (KIP-430) is reported to those with DESCRIBE on
it; others get 0.

Errors: MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE.
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import Request
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["API"]

_BROKERS, _CONTROLLERS = 1, 2  # kinds of endpoints (KIP-919)


class Parts(NamedTuple):
    """What the handler uses."""

    first_updates: FirstUpdates
    metadata: MetadataCache
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    message: DescribeClusterRequest = request.message
    if message.endpoint_type != _BROKERS:
        controllers = message.endpoint_type == _CONTROLLERS
        request.reply(
            DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if controllers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
                "CONTROLLER"
                if controllers
                else f"Unsupported endpoint type {message.endpoint_type}",
                cluster_id=parts.metadata.cluster_id,
                endpoint_type=message.endpoint_type,
            )
        )
        return
    parts.first_updates.when_loaded(request, lambda: _describe(parts, request), lambda: parts.metadata.has_brokers)


def _describe(parts: Parts, request: Request) -> None:
    response = DescribeClusterResponse(
        cluster_id=parts.metadata.cluster_id,
        controller_id=parts.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in parts.metadata.describe_brokers(request.client.listener)
        ],
    )
    if request.message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _authorized_operations(parts.auth_helper, request)
    request.reply(response)


def _authorized_operations(auth_helper: AuthHelper, request: Request) -> int:
    if not auth_helper.authorize(request, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return auth_helper.authorized_operations(request, ResourceType.CLUSTER, CLUSTER_NAME)


API = ApiHandler(
    ApiKey.DESCRIBE_CLUSTER,
    0,
    1,
    _handle,
    lambda services: Parts(services.first_updates, services.metadata, services.auth_helper),
)
