"""ListGroups (key 16), versions 0 to 5.

The groups that this broker coordinates.

- 4: by state (KIP-518).
- 5: by type (KIP-848).

Rights: DESCRIBE on the cluster shows all groups; without it those are shown on which the client has
DESCRIBE.

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS (beside the groups that are loaded).
"""

from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.queries import list_groups
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.list_groups import ListedGroup, ListGroupsResponse


class Parts(NamedTuple):
    """What the handler uses."""

    broker_id: int
    runner: Runner
    auth_helper: AuthHelper
    first_updates: FirstUpdates
    metadata: MetadataCache
    replicas: ReplicaManager
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory, while loading with what is there. A broker that has just started waits to
    learn what it leads."""
    parts.first_updates.when_loaded(request, lambda: serve(parts.runner, request, _list(parts, request)))


def _list(parts: Parts, request: Request) -> Task[None]:
    coordinator = parts.groups.coordinator
    if not coordinator.is_active:
        request.reply(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[]))
        return
    message = request.message
    is_loading = _is_loading(parts)
    groups = yield from list_groups(coordinator, message.states_filter, message.types_filter)
    groups = yield from _visible(parts.auth_helper, request, groups)
    is_loading = is_loading or _is_loading(parts)  # it may have begun meanwhile
    request.reply(
        ListGroupsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE, groups=groups
        )
    )


def _visible(auth_helper: AuthHelper, request: Request, groups: list[ListedGroup]) -> Task[list[ListedGroup]]:
    """The groups that a client may see."""
    describe = AclOperation.DESCRIBE
    if auth_helper.authorize(request, describe, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
        return groups
    names = (group.group_id for group in groups)
    allowed = yield from auth_helper.filter_by_authorized(
        request, describe, ResourceType.GROUP, names, log_if_denied=False
    )
    visible = []
    for group in groups:
        if group.group_id in allowed:
            visible.append(group)
        yield None
    return visible


def _is_loading(parts: Parts) -> bool:
    """Whether groups of this broker are still to come: of a partition whose leadership has not
    reached it since its start, too."""
    return parts.groups.coordinator.is_loading or any(
        state.leader == parts.broker_id and parts.replicas.get(TopicPartition(OFFSETS_TOPIC, number)) is None
        for number, state in parts.metadata.partitions(OFFSETS_TOPIC).items()
    )


API = ApiHandler(
    ApiKey.LIST_GROUPS,
    0,
    5,
    handle,
    lambda services: Parts(
        services.broker_id,
        services.runner,
        services.auth_helper,
        services.first_updates,
        services.metadata,
        services.replicas,
        services.groups,
    ),
)
