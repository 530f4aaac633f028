"""ListGroups (key 16): the groups that this broker coordinates, by state (KIP-518) and type (KIP-848)."""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.groups.queries import list_groups
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.list_groups import ListGroupsResponse


def handle(services: Services, request: Request) -> None:
    """Answer from memory, while loading with what is there."""
    coordinator = services.groups.coordinator
    if not coordinator.is_active:
        request.reply(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[]))
        return
    message = request.message
    request.reply(
        ListGroupsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE,
            groups=list_groups(coordinator, message.states_filter, message.types_filter),
        )
    )


API = ApiHandler(ApiKey.LIST_GROUPS, 0, 5, handle)
