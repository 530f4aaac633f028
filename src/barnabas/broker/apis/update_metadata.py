"""UpdateMetadata (key 6), versions 5 to 8.

The controller reports to every broker which brokers are alive and which replica leads each
partition. This is all that a broker knows of the cluster, so all responses of Metadata and
the like rest on it.

- 5: the broker epoch (KIP-380), and states grouped by topic.
- 7: topic ids (KIP-516).
- 8: whether the controller is a KRaft controller.

Errors: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.
"""

from barnabas.base.tasks import Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.control_requests import check_epochs
from barnabas.broker.apis.first_updates import FIRST_UPDATES
from barnabas.broker.apis.later import serve_in_order
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(services: Services, request: Request) -> None:
    """Update the cache, in the order of the controller's requests."""
    serve_in_order(services, request, _update(services, request))


def _update(services: Services, request: Request) -> Task[None]:
    message: UpdateMetadataRequest = request.message
    check_epochs(services, message.broker_epoch, message.controller_epoch)
    services.metadata.update(message)
    services.purgatory.check_and_complete(FIRST_UPDATES)
    request.reply(UpdateMetadataResponse())
    yield None


API = ApiHandler(ApiKey.UPDATE_METADATA, 5, 8, handle, inter_broker=True)
