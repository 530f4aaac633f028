"""Heartbeat (key 12), versions 0 to 4.

A member is alive; it learns whether it must rejoin.

- 3: static members (KIP-345).

Rights: READ on the group.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
REBALANCE_IN_PROGRESS.
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatResponse


class Parts(NamedTuple):
    """What the handler uses."""

    auth_helper: AuthHelper
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer at once."""
    message = request.message
    if not parts.auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    request.reply(HeartbeatResponse(error_code=parts.groups.heartbeat(message)))


API = ApiHandler(ApiKey.HEARTBEAT, 0, 4, handle, lambda services: Parts(services.auth_helper, services.groups))
