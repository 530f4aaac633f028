"""Heartbeat (key 12): a member is alive; it learns whether it must rejoin."""

from barnabas.broker.requests.api_handler import ApiHandler
from barnabas.broker.requests.request import Node, Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.heartbeat import HeartbeatResponse


def handle(node: Node, request: Request) -> None:
    """Answer at once."""
    request.reply(HeartbeatResponse(error_code=node.groups.heartbeat(request.message)))


API = ApiHandler(ApiKey.HEARTBEAT, 0, 4, handle)
