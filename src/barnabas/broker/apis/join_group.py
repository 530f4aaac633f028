"""JoinGroup (key 11): become or stay a member of a group; answered when the generation begins."""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.join_group import JoinGroupResponse

_PROTOCOL_NAME_IS_NULLABLE_SINCE_VERSION = 7


def handle(services: Services, request: Request) -> None:
    """Answer when the member is in a generation, or cannot be."""

    def reply(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and request.version < _PROTOCOL_NAME_IS_NULLABLE_SINCE_VERSION:
            response.protocol_name = ""
        request.reply(response)

    services.groups.join(request.message, request.version, request.client_id or "", f"/{request.client.host}", reply)


API = ApiHandler(ApiKey.JOIN_GROUP, 0, 9, handle)
