"""UpdateMetadata: the controller tells every broker who is alive and who leads what.

Versions 5 to 8. This is all that a broker knows of the cluster, so all answers of Metadata and the like rest on it.
"""

from barnabas.broker.apis.metadata import FIRST_NEWS
from barnabas.broker.requests.api_handler import ApiHandler
from barnabas.broker.requests.request import Node, Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(node: Node, request: Request) -> None:
    """Take the news into the cache."""
    message: UpdateMetadataRequest = request.message
    node.check_controller(message.broker_epoch, message.controller_epoch)
    node.metadata_updated(message)
    node.parked.changed(FIRST_NEWS)
    request.reply(UpdateMetadataResponse())


API = ApiHandler(ApiKey.UPDATE_METADATA, 5, 8, handle, inter_broker=True)
