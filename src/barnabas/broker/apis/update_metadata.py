"""UpdateMetadata (key 6), versions 5 to 8.

The controller reports to every broker which brokers are alive and which replica leads each
partition. This is all that a broker knows of the cluster, so all responses of Metadata and
the like rest on it.

- 5: the broker epoch (KIP-380), and states grouped by topic.
- 7: topic ids (KIP-516).
- 8: whether the controller is a KRaft controller.

Rights: CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.
"""

from typing import NamedTuple

from barnabas.base.tasks import Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.control_requests import ControlRequests, error_response
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class Parts(NamedTuple):
    """What the handler uses."""

    first_updates: FirstUpdates
    control_requests: ControlRequests
    metadata: MetadataCache


def handle(parts: Parts, request: Request) -> None:
    """Update the cache, in the order of the controller's requests."""
    parts.control_requests.serve(request, _update(parts, request))


def _update(parts: Parts, request: Request) -> Task[None]:
    message: UpdateMetadataRequest = request.message
    parts.control_requests.check_epochs(message.broker_epoch, message.controller_epoch)
    parts.metadata.update(message)
    parts.first_updates.received()
    request.reply(UpdateMetadataResponse())
    yield None


API = ApiHandler(
    ApiKey.UPDATE_METADATA,
    5,
    8,
    handle,
    lambda services: Parts(services.first_updates, services.control_requests, services.metadata),
    error_response,
    inter_broker=True,
)
