"""LeaveGroup (key 13), versions 0 to 5.

Members leave, or an administrator removes them.

- 3: several members at once, by member id or group instance id (KIP-345).
- 5: the reason (KIP-800).

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.leave_group import LeaveGroupResponse, MemberIdentity

_SEVERAL_SINCE_VERSION = 3


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer at once; the others rebalance meanwhile."""
    message = request.message
    if request.version >= _SEVERAL_SINCE_VERSION:
        serve(parts.runner, request, parts.groups.leave(message, request.reply))
        return

    def reply(response: LeaveGroupResponse) -> None:
        if not response.error_code:
            response.error_code = response.members[0].error_code
        response.members = []
        request.reply(response)

    message.members = [MemberIdentity(member_id=message.member_id)]
    serve(parts.runner, request, parts.groups.leave(message, reply))


API = ApiHandler(ApiKey.LEAVE_GROUP, 0, 5, handle, lambda services: Parts(services.runner, services.groups))
