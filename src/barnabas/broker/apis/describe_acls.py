"""DescribeAcls (key 29), versions 1 to 3.

The access control lists that match a filter (KIP-140). There is no authorizer in this version.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

Errors: SECURITY_DISABLED, always, as of Kafka's brokers without an authorizer.
"""

from barnabas.broker.apis.api_handler import ApiHandler, no_parts
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsResponse

__all__ = ["API"]


def _handle(_: None, request: Request) -> None:
    request.reply(
        DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    )


API = ApiHandler(ApiKey.DESCRIBE_ACLS, 1, 3, _handle, no_parts)
