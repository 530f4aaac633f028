"""LeaveGroup (key 13), versions 0 to 5.

Members leave, or an administrator removes them.

- 3: several members at once, by member id or group instance id (KIP-345).
- 5: the reason (KIP-800).

Rights: READ on the group.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leave_group import LeaveGroupResponse, MemberIdentity

_SEVERAL_SINCE_VERSION = 3


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer at once; the others rebalance meanwhile."""
    message = request.message
    if not parts.auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
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


API = ApiHandler(
    ApiKey.LEAVE_GROUP,
    0,
    5,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.groups),
)
