"""SyncGroup (key 14): the leader hands in the assignment, every member gets its own."""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.groups.membership import sync_error
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

_PROTOCOL_SINCE_VERSION = 5  # KIP-559: from then on a member must say what it believes was chosen


def handle(services: Services, request: Request) -> None:
    """Answer when the leader's assignment is committed."""
    message = request.message
    if request.version >= _PROTOCOL_SINCE_VERSION and None in (message.protocol_type, message.protocol_name):
        request.reply(sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        services.groups.sync(message, request.reply)


API = ApiHandler(ApiKey.SYNC_GROUP, 0, 5, handle)
