"""JoinGroup (key 11), versions 0 to 9.

Become or stay a member of a group; answered when the generation begins.

- 1: the rebalance timeout.
- 4: a new member gets its id first, and joins with it (KIP-394).
- 5: static members (KIP-345).
- 7: the protocol type in the response (KIP-559).
- 8: the reason for joining (KIP-800).
- 9: whether the leader may leave the assignment as it is (KIP-814).

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID,
INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED,
FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED; INVALID_REQUEST for more than 100 protocols or 1 MiB of
metadata, or a request of more than 4 MiB.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.join_group import JoinGroupResponse

_MAX_REQUEST_BYTES = 4 << 20
"""1 MiB of metadata and names (`barnabas.broker.groups.coordinator`), and room for
names that are not ASCII."""
_PROTOCOL_NAME_IS_NULLABLE_SINCE_VERSION = 7


def handle(groups: GroupService, request: Request) -> None:
    """Answer when the member is in a generation, or cannot be."""

    def reply(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and request.version < _PROTOCOL_NAME_IS_NULLABLE_SINCE_VERSION:
            response.protocol_name = ""
        request.reply(response)

    groups.join(request.message, request.version, request.client_id or "", f"/{request.client.host}", reply)


API = ApiHandler(
    ApiKey.JOIN_GROUP,
    0,
    9,
    handle,
    lambda services: services.groups,
    max_request_bytes=_MAX_REQUEST_BYTES,
    too_large=ErrorCode.INVALID_REQUEST,
)
