"""CreateAcls (key 30), versions 1 to 3.

Adds access control lists (KIP-140). There is no authorizer in this version.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

Errors: SECURITY_DISABLED, always, as of Kafka's brokers without an authorizer.
"""

from barnabas.broker.apis.acls import without_authorizer
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

__all__ = ["API"]


def _answer(message: CreateAclsRequest, code: ErrorCode, text: str) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=text) for _ in message.creations]
    )


API = without_authorizer(ApiKey.CREATE_ACLS, "No Authorizer is configured.", _answer)
