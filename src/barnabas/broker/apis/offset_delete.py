"""OffsetDelete (key 47), version 0.

Removes offsets of a group for topics to which no member subscribes (KIP-496); answered when the
tombstones are committed.

Rights: DELETE on the group, READ on each topic.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC,
TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_delete import OffsetDeleteRequest


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    first_updates: FirstUpdates
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer when the tombstones are committed."""
    names = [topic.name for topic in request.message.topics]
    parts.first_updates.when_topics_known(request, names, lambda: serve(parts.runner, request, _delete(parts, request)))


def _delete(parts: Parts, request: Request) -> Task[None]:
    message: OffsetDeleteRequest = request.message
    if not parts.auth_helper.authorize(request, AclOperation.DELETE, ResourceType.GROUP, message.group_id):
        request.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    names = (topic.name for topic in message.topics)
    allowed = yield from parts.auth_helper.filter_by_authorized(request, AclOperation.READ, ResourceType.TOPIC, names)
    yield from parts.groups.delete_offsets(message, allowed, request.reply)


API = ApiHandler(
    ApiKey.OFFSET_DELETE,
    0,
    0,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.first_updates, services.groups),
    administrative=True,
)
