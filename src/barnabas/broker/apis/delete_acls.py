"""DeleteAcls (key 31), versions 1 to 3.

Removes the access control lists that match filters (KIP-140). There is no authorizer in this version.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

Errors: SECURITY_DISABLED, always, as of Kafka's brokers without an authorizer.
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
