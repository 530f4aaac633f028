"""SyncGroup (key 14), versions 0 to 5.

The leader of a group sends the assignment, and every member gets its own; answered when the
assignment is committed.

- 3: static members (KIP-345).
- 5: a member says which protocol it believes was chosen (KIP-559).

Rights: READ on the group.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS; UNKNOWN_SERVER_ERROR for assignments of more
than 16 MiB, or more than one record of ``__consumer_offsets`` may have, and for a request of more
than 16.5 MiB.
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.member_responses import sync_error
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

_MAX_REQUEST_BYTES = (16 << 20) + (1 << 19)
"""The assignments (`barnabas.broker.groups.membership`), and room for the names beside them."""
_PROTOCOL_SINCE_VERSION = 5  # KIP-559: from then on a member must say what it believes was chosen


class Parts(NamedTuple):
    """What the handler uses."""

    auth_helper: AuthHelper
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer when the leader's assignment is committed."""
    message = request.message
    if request.version >= _PROTOCOL_SINCE_VERSION and None in (message.protocol_type, message.protocol_name):
        request.reply(sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not parts.auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.reply(sync_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    else:
        parts.groups.sync(message, request.reply)


API = ApiHandler(
    ApiKey.SYNC_GROUP,
    0,
    5,
    handle,
    lambda services: Parts(services.auth_helper, services.groups),
    max_request_bytes=_MAX_REQUEST_BYTES,
    too_large=ErrorCode.UNKNOWN_SERVER_ERROR,  # as for assignments that the log refuses
)
