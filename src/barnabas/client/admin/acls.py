"""Access control lists over an `AdminConnection`: list, add, remove.

The words are those of Kafka's enums, in capitals.

In Kafka: `Admin.createAcls`, `AclBinding`, `AclBindingFilter`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ConfigurationError, refusal
from barnabas.security.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

__all__ = ["Acl", "AclFilter", "create_acls", "delete_acls", "describe_acls"]

Filter = TypeVar("Filter", DescribeAclsRequest, DeleteAclsFilter)

# The position of a word is its code on the wire.
_RESOURCES = tuple(word.name for word in ResourceType)
_PATTERNS = tuple(word.name for word in PatternType)
_OPERATIONS = (*(word.name for word in AclOperation), "TWO_PHASE_COMMIT")
"""The last one is of Kafka 4's brokers."""
_PERMISSIONS = tuple(word.name for word in AclPermissionType)


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry: whether ``principal`` (``User:name``) at ``host`` may do ``operation`` on
    the resources of a pattern."""

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "ALLOW"
    host: str = "*"
    pattern_type: str = "LITERAL"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which entries are meant; None and ANY match all."""

    resource_type: str = "ANY"
    resource_name: str | None = None
    principal: str | None = None
    operation: str = "ANY"
    permission: str = "ANY"
    host: str | None = None
    pattern_type: str = "ANY"


def describe_acls(connection: AdminConnection, wanted: AclFilter) -> list[Acl]:
    """The entries that match.

    Raises `RefusedError`, SECURITY_DISABLED where brokers have no authorizer."""
    response = connection.send(_filter(DescribeAclsRequest(), wanted), DescribeAclsResponse)
    if response.error_code:
        raise refusal(response.error_code, response.error_message)
    return [
        Acl(
            _word(_RESOURCES, resource.resource_type),
            resource.resource_name,
            acl.principal,
            _word(_OPERATIONS, acl.operation),
            _word(_PERMISSIONS, acl.permission_type),
            acl.host,
            _word(_PATTERNS, resource.pattern_type),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def create_acls(connection: AdminConnection, acls: Sequence[Acl]) -> None:
    """Add entries; raises the first refusal after all were tried."""
    creations = [
        AclCreation(
            resource_type=_code(_RESOURCES, acl.resource_type),
            resource_name=acl.resource_name,
            resource_pattern_type=_code(_PATTERNS, acl.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=_code(_OPERATIONS, acl.operation),
            permission_type=_code(_PERMISSIONS, acl.permission),
        )
        for acl in acls
    ]
    response = connection.send_to_controller(
        CreateAclsRequest(creations=creations),
        CreateAclsResponse,
        lambda answer: [one.error_code for one in answer.results],
    )
    for result in response.results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)


def delete_acls(connection: AdminConnection, wanted: AclFilter) -> list[Acl]:
    """Remove the entries that match; returns them."""
    response = connection.send_to_controller(
        DeleteAclsRequest(filters=[_filter(DeleteAclsFilter(), wanted)]),
        DeleteAclsResponse,
        lambda answer: [one.error_code for one in answer.filter_results],
    )
    removed = []
    for result in response.filter_results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)
        for acl in result.matching_acls:
            if acl.error_code:
                raise refusal(acl.error_code, acl.error_message)
            removed.append(
                Acl(
                    _word(_RESOURCES, acl.resource_type),
                    acl.resource_name,
                    acl.principal,
                    _word(_OPERATIONS, acl.operation),
                    _word(_PERMISSIONS, acl.permission_type),
                    acl.host,
                    _word(_PATTERNS, acl.pattern_type),
                )
            )
    return removed


def _filter(made: Filter, wanted: AclFilter) -> Filter:
    made.resource_type_filter = _code(_RESOURCES, wanted.resource_type)
    made.resource_name_filter = wanted.resource_name
    made.pattern_type_filter = _code(_PATTERNS, wanted.pattern_type)
    made.principal_filter = wanted.principal
    made.host_filter = wanted.host
    made.operation = _code(_OPERATIONS, wanted.operation)
    made.permission_type = _code(_PERMISSIONS, wanted.permission)
    return made


def _word(words: Sequence[str], code: int) -> str:
    return words[code] if 0 <= code < len(words) else "UNKNOWN"


def _code(words: Sequence[str], word: str) -> int:
    try:
        return words.index(word.upper().replace("-", "_"))
    except ValueError:
        raise ConfigurationError(f"{word} is unknown here: {', '.join(words[1:])} are expected") from None
