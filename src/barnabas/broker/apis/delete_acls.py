"""DeleteAcls (key 31), versions 1 to 3: deletes the ACLs that match filters.

- 2: the compact encoding.
- 3: user resources (delegation tokens, KIP-373).

Errors: SECURITY_DISABLED, always, as of Kafka's brokers without an authorizer. There is none in this version.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

__all__ = ["API"]


def _handle(_services: Services, request: Request) -> None:
    request.reply(_answer(request.message, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))


def _answer(message: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=text) for _ in message.filters]
    )


def _fail(message: DeleteAclsRequest, _version: int, code: ErrorCode) -> DeleteAclsResponse:
    return _answer(message, code, code.message)


API = ApiHandler(ApiKey.DELETE_ACLS, 1, 3, _handle, _fail)
