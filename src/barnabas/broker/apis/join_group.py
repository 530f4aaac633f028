"""JoinGroup (key 11), versions 0 to 9.

Become or stay a member of a group; answered when the generation begins.

- 1: the rebalance timeout.
- 4: a new member gets its id first, and joins with it (KIP-394).
- 5: static members (KIP-345).
- 7: the protocol type in the response (KIP-559).
- 8: the reason for joining (KIP-800).
- 9: whether the leader may leave the assignment as it is (KIP-814).

Rights: READ on the group.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL,
UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED; INVALID_REQUEST
for more than 100 protocols or 1 MiB of metadata, or a request of more than 4 MiB.
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.member_responses import join_error
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.join_group import JoinGroupResponse

_MAX_REQUEST_BYTES = 4 << 20
"""1 MiB of metadata and names (`barnabas.broker.groups.coordinator`), and room for
names that are not ASCII."""
_PROTOCOL_NAME_IS_NULLABLE_SINCE_VERSION = 7


class Parts(NamedTuple):
    """What the handler uses."""

    auth_helper: AuthHelper
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer when the member is in a generation, or cannot be."""
    message = request.message

    def reply(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and request.version < _PROTOCOL_NAME_IS_NULLABLE_SINCE_VERSION:
            response.protocol_name = ""
        request.reply(response)

    if not parts.auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        reply(join_error("", ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    parts.groups.join(message, request.version, request.client_id or "", f"/{request.client.host}", reply)


API = ApiHandler(
    ApiKey.JOIN_GROUP,
    0,
    9,
    handle,
    lambda services: Parts(services.auth_helper, services.groups),
    max_request_bytes=_MAX_REQUEST_BYTES,
    too_large=ErrorCode.INVALID_REQUEST,
)
