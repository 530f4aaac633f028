"""DescribeCluster (key 60), versions 0 to 1.

Cluster id, controller and live brokers (KIP-700).

- 1: brokers or controllers (KIP-919); a broker answers for brokers.

Errors: MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE.
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.metadata import CLUSTER_OPERATIONS
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import Request
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
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    request.reply(response)


API = ApiHandler(
    ApiKey.DESCRIBE_CLUSTER, 0, 1, _handle, lambda services: Parts(services.first_updates, services.metadata)
)
