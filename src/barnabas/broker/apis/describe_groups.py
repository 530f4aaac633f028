"""DescribeGroups (key 15), versions 0 to 6.

Groups with their members and assignments. A group that does not exist is Dead.

- 3: authorized operations (KIP-430).
- 4: static members (KIP-345).
- 6: GROUP_ID_NOT_FOUND for a group that does not exist (KIP-1043).

Rights: DESCRIBE on each group.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.group import GroupState
from barnabas.broker.groups.queries import describe_group
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_SINCE_VERSION = 6  # KIP-1043; before that, a group that does not exist is Dead


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory."""
    serve(parts.runner, request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Task[None]:
    message = request.message
    auth_helper = parts.auth_helper
    allowed = yield from auth_helper.filter_by_authorized(
        request, AclOperation.DESCRIBE, ResourceType.GROUP, message.groups
    )
    groups = []
    # A group is described once, however often it is named: answers must not outgrow
    # what the broker knows.
    for group_id in dict.fromkeys(message.groups):
        yield None
        if group_id not in allowed:
            groups.append(_refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        group = yield from describe_group(parts.groups.coordinator, group_id)
        groups.append(group)
        if request.version >= _NOT_FOUND_SINCE_VERSION and group.group_state == GroupState.DEAD.value:
            group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            group.error_message = f"Group {group.group_id} not found."
        elif message.include_authorized_operations and not group.error_code:
            group.authorized_operations = auth_helper.authorized_operations(request, ResourceType.GROUP, group_id)
    request.reply(DescribeGroupsResponse(groups=groups))


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code)


def fail(message: DescribeGroupsRequest, _version: int, code: ErrorCode) -> DescribeGroupsResponse:
    """The response for a request that failed as a whole."""
    return DescribeGroupsResponse(groups=[_refused(group_id, code) for group_id in message.groups])


API = ApiHandler(
    ApiKey.DESCRIBE_GROUPS,
    0,
    6,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.groups),
    fail,
)
