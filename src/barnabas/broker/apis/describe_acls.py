"""DescribeAcls (key 29), versions 1 to 3.

The access control lists that match a filter (KIP-140). It needs DESCRIBE of the cluster.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

Errors: SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR
where an entry has an operation or a permission that is unknown here.
"""

import logging
from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.acls import error_fields, filter_of, is_malformed
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourcePattern
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

__all__ = ["API"]

logger = logging.getLogger(__name__)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    serve(parts.runner, request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Task[None]:
    message: DescribeAclsRequest = request.message
    if is_malformed(message):
        request.fail(ErrorCode.INVALID_REQUEST)
        return
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.DESCRIBE)
    authorizer = parts.auth_helper.authorizer
    if authorizer is None:
        request.reply(
            DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
            )
        )
        return
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for pattern, entry in (yield from authorizer.acls(filter_of(message))):
        if not entry.operation or not entry.permission_type:
            logger.error("An access control list of %s has an operation or permission that is unknown here", pattern)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        )
        yield None
    request.reply(DescribeAclsResponse(resources=list(resources.values())))


def _fail(_message: DescribeAclsRequest, _version: int, code: ErrorCode) -> DescribeAclsResponse | None:
    if code is ErrorCode.INVALID_REQUEST:
        return None  # a malformed one closes the connection
    error_code, text = error_fields(KafkaError(code))
    return DescribeAclsResponse(error_code=error_code, error_message=text)


API = ApiHandler(
    ApiKey.DESCRIBE_ACLS, 1, 3, _handle, lambda services: Parts(services.runner, services.auth_helper), _fail
)
