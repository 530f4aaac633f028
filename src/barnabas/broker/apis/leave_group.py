"""LeaveGroup (key 13): members leave, or an administrator removes them (several at once since v3, KIP-345)."""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.leave_group import LeaveGroupResponse, MemberIdentity

_SEVERAL_SINCE_VERSION = 3


def handle(services: Services, request: Request) -> None:
    """Answer at once; the others rebalance meanwhile."""
    message = request.message
    if request.version >= _SEVERAL_SINCE_VERSION:
        services.groups.leave(message, request.reply)
        return

    def reply(response: LeaveGroupResponse) -> None:
        if not response.error_code:
            response.error_code = response.members[0].error_code
        response.members = []
        request.reply(response)

    message.members = [MemberIdentity(member_id=message.member_id)]
    services.groups.leave(message, reply)


API = ApiHandler(ApiKey.LEAVE_GROUP, 0, 5, handle)
