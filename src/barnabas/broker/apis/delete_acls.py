"""DeleteAcls (key 31), versions 1 to 3.

Removes the access control lists that match filters (KIP-140). It needs ALTER of the cluster.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

An entry that several filters match is in the result of the first.

Errors: SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED; of an entry, or of a
filter where entries cannot be read, REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR.
"""

from barnabas.base.tasks import list_of
from barnabas.broker.apis.acls import NO_AUTHORIZER, AclParts, error_fields, filter_of, is_malformed
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import reply_once
from barnabas.broker.authorizer.acl_store import AclBindingDeleteResult
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

__all__ = ["API"]


def _handle(parts: AclParts, request: Request) -> None:
    parts.later.answer(request, _delete(parts, request))


def _delete(parts: AclParts, request: Request) -> Steps[None]:
    message: DeleteAclsRequest = request.message
    for wanted in message.filters:
        if is_malformed(wanted):
            request.fail(ErrorCode.INVALID_REQUEST)
            return
        yield None
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    if parts.acls is None:
        reply_once(request, _answer(message, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
        return
    filters = yield from list_of(map(filter_of, message.filters))
    results = []
    for failure, bindings in (yield from parts.acls.delete(filters)):
        matching = yield from list_of(map(_matching_acl, bindings))
        code, text = _outcome(failure)
        results.append(DeleteAclsFilterResult(error_code=code, error_message=text, matching_acls=matching))
        yield None
    reply_once(request, DeleteAclsResponse(filter_results=results))


def _matching_acl(deleted: AclBindingDeleteResult) -> DeleteAclsMatchingAcl:
    (pattern, entry), failure = deleted
    code, text = _outcome(failure)
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=text,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _outcome(failure: KafkaError | KeeperError | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if failure is None else error_fields(failure)


def _answer(message: DeleteAclsRequest, code: ErrorCode, text: str | None) -> DeleteAclsResponse:
    results = [DeleteAclsFilterResult(error_code=code, error_message=text) for _ in message.filters]
    return DeleteAclsResponse(filter_results=results)


def _fail(message: DeleteAclsRequest, _version: int, code: ErrorCode) -> DeleteAclsResponse | None:
    if code is ErrorCode.INVALID_REQUEST:
        return None  # a malformed one closes the connection
    return _answer(message, *error_fields(KafkaError(code)))


API = ApiHandler(ApiKey.DELETE_ACLS, 1, 3, _handle, AclParts.of, _fail, administrative=True)
