"""Heartbeat (key 12): a member is alive; it learns whether it must rejoin."""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.heartbeat import HeartbeatResponse


def handle(services: Services, request: Request) -> None:
    """Answer at once."""
    request.reply(HeartbeatResponse(error_code=services.groups.heartbeat(request.message)))


API = ApiHandler(ApiKey.HEARTBEAT, 0, 4, handle)
