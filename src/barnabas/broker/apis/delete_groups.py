"""DeleteGroups (key 42), versions 0 to 2.

Ends groups that have no members, with their offsets (KIP-229); answered when the
tombstones are committed.

Rights: DELETE on each group.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer when the tombstones are committed."""
    serve(parts.runner, request, _delete(parts, request))


def _delete(parts: Parts, request: Request) -> Task[None]:
    message: DeleteGroupsRequest = request.message
    allowed = yield from parts.auth_helper.filter_by_authorized(
        request, AclOperation.DELETE, ResourceType.GROUP, message.groups_names
    )
    yield from parts.groups.delete_groups(message, allowed, request.reply)


def fail(message: DeleteGroupsRequest, _version: int, code: ErrorCode) -> DeleteGroupsResponse:
    """The response for a request that failed as a whole."""
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in message.groups_names]
    )


API = ApiHandler(
    ApiKey.DELETE_GROUPS,
    0,
    2,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.groups),
    fail,
    administrative=True,
)
