"""DescribeGroups (key 15), versions 0 to 6.

Groups with their members and assignments. A group that does not exist is Dead.

- 3: authorized operations (KIP-430).
- 4: static members (KIP-345).
- 6: GROUP_ID_NOT_FOUND for a group that does not exist (KIP-1043).

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID,
GROUP_ID_NOT_FOUND.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.groups.group import GroupState
from barnabas.broker.groups.queries import describe_group
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_SINCE_VERSION = 6  # KIP-1043; before that, a group that does not exist is Dead

# Bits by operation number: READ 3, DELETE 6, DESCRIBE 8. Without an authorizer
# everybody may do all of them.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory."""
    serve(parts.runner, request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Task[None]:
    message = request.message
    groups = []
    # A group is described once, however often it is named: answers must not outgrow
    # what the broker knows.
    for group_id in dict.fromkeys(message.groups):
        yield None
        group = yield from describe_group(parts.groups.coordinator, group_id)
        groups.append(group)
        if request.version >= _NOT_FOUND_SINCE_VERSION and group.group_state == GroupState.DEAD.value:
            group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            group.error_message = f"Group {group.group_id} not found."
        elif message.include_authorized_operations and not group.error_code:
            group.authorized_operations = _ALL_OPERATIONS
    request.reply(DescribeGroupsResponse(groups=groups))


def fail(message: DescribeGroupsRequest, _version: int, code: ErrorCode) -> DescribeGroupsResponse:
    """The response for a request that failed as a whole."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in message.groups]
    )


API = ApiHandler(ApiKey.DESCRIBE_GROUPS, 0, 6, handle, lambda services: Parts(services.runner, services.groups), fail)
