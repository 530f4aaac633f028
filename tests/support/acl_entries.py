"""An authorizer with a few entries, for one client: what each test lets it do."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.authorizer import NO_ACLS, Authorizer, VersionedAcls
from barnabas.broker.requests.request import ANONYMOUS
from barnabas.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

__all__ = ["Right", "auth_helper", "on_cluster", "on_group", "on_topic", "on_transactional_id"]


class Right(NamedTuple):
    """An operation that is allowed, or denied, to every client without a login."""

    operation: AclOperation
    resource_type: ResourceType
    name: str
    permission: AclPermissionType = AclPermissionType.ALLOW
    pattern_type: PatternType = PatternType.LITERAL


def on_cluster(*operations: AclOperation) -> list[Right]:
    return [Right(operation, ResourceType.CLUSTER, CLUSTER_NAME) for operation in operations]


def on_topic(name: str, *operations: AclOperation) -> list[Right]:
    return [Right(operation, ResourceType.TOPIC, name) for operation in operations]


def on_group(name: str, *operations: AclOperation) -> list[Right]:
    return [Right(operation, ResourceType.GROUP, name) for operation in operations]


def on_transactional_id(name: str, *operations: AclOperation) -> list[Right]:
    return [Right(operation, ResourceType.TRANSACTIONAL_ID, name) for operation in operations]


def auth_helper(rights: Iterable[Right] = ()) -> AuthHelper:
    """With an authorizer that has these entries."""
    authorizer = Authorizer()
    for right in rights:
        pattern = ResourcePattern(right.resource_type, right.name, right.pattern_type)
        entry = AccessControlEntry(ANONYMOUS, WILDCARD, right.operation, right.permission)
        known = authorizer.acls_of(pattern) or NO_ACLS
        authorizer.update(pattern, VersionedAcls(known.entries | {entry}, known.version + 1))
    return AuthHelper(authorizer)
