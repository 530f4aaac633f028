"""DeleteAcls (key 31), versions 1 to 3.

Removes the access control lists that match filters (KIP-140). There is no authorizer
in this version.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

Errors: SECURITY_DISABLED, always, as of Kafka's brokers without an authorizer.
"""

from barnabas.broker.apis.acls import without_authorizer
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

__all__ = ["API"]


def _answer(message: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    results = [DeleteAclsFilterResult(error_code=code, error_message=text) for _ in message.filters]
    return DeleteAclsResponse(filter_results=results)


API = without_authorizer(ApiKey.DELETE_ACLS, "No Authorizer is configured.", _answer)
