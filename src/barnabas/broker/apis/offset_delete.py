"""OffsetDelete (key 47): forget offsets of a group that nobody in it subscribes to (KIP-496)."""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey


def handle(services: Services, request: Request) -> None:
    """Answer when the tombstones are committed."""
    services.groups.delete_offsets(request.message, request.reply)


API = ApiHandler(ApiKey.OFFSET_DELETE, 0, 0, handle)
