"""CreateAcls (key 30), versions 1 to 3.

Adds access control lists (KIP-140). It needs ALTER of the cluster.

- 1: prefixed resource patterns (KIP-290).
- 3: resources of type user (KIP-373).

Errors: SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST for
a name that cannot be and for what this version does not know, UNKNOWN_SERVER_ERROR for a principal
without a type, REQUEST_TIMED_OUT.
"""

from collections.abc import Iterator, Sequence

from barnabas.base.tasks import list_of
from barnabas.broker.apis.acls import NO_AUTHORIZER, AclParts, error_fields
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import reply_once
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    of_code,
)
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

__all__ = ["API"]


def _handle(parts: AclParts, request: Request) -> None:
    parts.later.answer(request, _create(parts, request))


def _create(parts: AclParts, request: Request) -> Steps[None]:
    message: CreateAclsRequest = request.message
    for creation in message.creations:
        if 0 in (
            creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
        ):  # fmt: skip
            request.fail(ErrorCode.INVALID_REQUEST)
            return
        yield None
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    if parts.acls is None:
        reply_once(request, _answer(message, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
        return
    bindings = yield from list_of(_bindings(message))
    valid: list[AclBinding] = []
    failures: list[KafkaError | KeeperError | None] = []
    for binding in bindings:
        failure = _wrong_name(binding.pattern)
        failures.append(failure)
        if failure is None:
            valid.append(binding)
        yield None
    created = iter((yield from parts.acls.create(valid)))
    results = yield from list_of(_result(next(created) if failure is None else failure) for failure in failures)
    reply_once(request, CreateAclsResponse(results=results))


def _bindings(message: CreateAclsRequest) -> Iterator[AclBinding]:
    """Raises `KafkaError` for an entry that stands for several, as a filter may."""
    for creation in message.creations:
        binding = _binding(creation)
        pattern, entry = binding
        if (
            pattern.resource_type is ResourceType.ANY
            or pattern.pattern_type in (PatternType.ANY, PatternType.MATCH)
            or entry.operation is AclOperation.ANY
            or entry.permission_type is AclPermissionType.ANY
        ):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        yield binding


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            of_code(ResourceType, creation.resource_type),
            creation.resource_name,
            of_code(PatternType, creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            of_code(AclOperation, creation.operation),
            of_code(AclPermissionType, creation.permission_type),
        ),
    )


def _wrong_name(pattern: ResourcePattern) -> KafkaError | None:
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    return None


def _result(failure: KafkaError | KeeperError | None) -> AclCreationResult:
    if failure is None:
        return AclCreationResult()
    code, text = error_fields(failure)
    return AclCreationResult(error_code=code, error_message=text)


def _answer(message: CreateAclsRequest, code: ErrorCode, text: str | None) -> CreateAclsResponse:
    results: Sequence[AclCreationResult] = [
        AclCreationResult(error_code=code, error_message=text) for _ in message.creations
    ]
    return CreateAclsResponse(results=list(results))


def _fail(message: CreateAclsRequest, _version: int, code: ErrorCode) -> CreateAclsResponse | None:
    if code is ErrorCode.INVALID_REQUEST:
        return None  # a malformed one closes the connection
    return _answer(message, *error_fields(KafkaError(code)))


API = ApiHandler(ApiKey.CREATE_ACLS, 1, 3, _handle, AclParts.of, _fail, administrative=True)
