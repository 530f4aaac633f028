"""Heartbeat (key 12), versions 0 to 4.

A member is alive; it learns whether it must rejoin.

- 3: static members (KIP-345).

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.heartbeat import HeartbeatResponse


def handle(groups: GroupService, request: Request) -> None:
    """Answer at once."""
    request.reply(HeartbeatResponse(error_code=groups.heartbeat(request.message)))


API = ApiHandler(ApiKey.HEARTBEAT, 0, 4, handle, lambda services: services.groups)
