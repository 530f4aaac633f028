"""The decision whether a principal may do an operation on a resource (Kafka's `AclAuthorizer`).

A super user may do everything. For all others the patterns that match a resource count: the one
with its literal name, the literal ``*``, and each prefix of its name. Where no pattern matches,
``allow.everyone.if.no.acl.found`` decides. Otherwise an entry that denies decides first, then one
that allows; without either the operation is denied. An entry for the operation ALL is one for each
operation, and some operations imply DESCRIBE or DESCRIBE_CONFIGS (`IMPLYING_OPERATIONS`).

The entries of a pattern are kept as two bit fields for each principal and host, of what they allow
and of what they deny. A decision takes four look-ups for each pattern, whether it allows or denies,
and however many entries there are. The patterns that are prefixes of a name are looked up by the
lengths that prefixes have.

What was decided for a principal, host and resource is kept until an entry changes, all operations
in one bit field.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.tasks import Task
from barnabas.security.acls import (
    IMPLYING_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

__all__ = ["NO_ACLS", "Authorizer", "VersionedAcls"]

_ALL_OPERATIONS = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
_IMPLYING = [(operation, sum(1 << other for other in others)) for operation, others in IMPLYING_OPERATIONS.items()]
_MAX_KEPT_DECISIONS = 16_384
_TYPES_OF_RESOURCES = [kind for kind in ResourceType if kind > ResourceType.ANY]


class VersionedAcls(NamedTuple):
    """The entries of a pattern, and the version of their znode."""

    entries: frozenset[AccessControlEntry]
    version: int
    """-1 while there is no znode."""


NO_ACLS = VersionedAcls(frozenset(), -1)

_Masks = dict[tuple[str, str], tuple[int, int]]
"""By principal and host: bit fields of the operations that are allowed, and of those denied."""

_Operated = tuple[str, str, AclOperation, AclPermissionType, PatternType]
"""An entry, and the type of its pattern."""


class _Patterns:
    """The patterns of one type of resources."""

    __slots__ = ("by_entry", "lengths", "literal", "prefix_counts", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Masks] = {}
        self.prefixed: dict[str, _Masks] = {}
        self.prefix_counts: dict[int, int] = {}
        self.lengths: list[int] = []
        """Those that prefixes have, in ascending order."""
        self.by_entry: dict[_Operated, set[str]] = {}
        """The names of the patterns that have an entry."""

    def matching(self, name: str) -> list[_Masks]:
        """The entries of all patterns that match a resource."""
        found = []
        literal = self.literal
        if literal:
            if (masks := literal.get(name)) is not None:
                found.append(masks)
            if name != WILDCARD and (masks := literal.get(WILDCARD)) is not None:
                found.append(masks)
        prefixed, longest = self.prefixed, len(name)
        for length in self.lengths:
            if length > longest:
                break
            if (masks := prefixed.get(name[:length])) is not None:
                found.append(masks)
        return found

    def replace(self, pattern: ResourcePattern, masks: _Masks) -> None:
        """The entries of a pattern are others; a pattern without entries is none."""
        is_prefix = pattern.pattern_type is PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        was_there = pattern.name in patterns
        if masks:
            patterns[pattern.name] = masks
        else:
            patterns.pop(pattern.name, None)
        if is_prefix and was_there != bool(masks):
            length = len(pattern.name)
            count = self.prefix_counts.get(length, 0) + (1 if masks else -1)
            if count:
                self.prefix_counts[length] = count
            else:
                del self.prefix_counts[length]
            self.lengths = sorted(self.prefix_counts)

    def names(
        self,
        who: Iterable[tuple[str, str]],
        operation: AclOperation,
        permission: AclPermissionType,
        pattern_type: PatternType,
    ) -> list[set[str]]:
        """The names of the patterns that allow, or deny, an operation or all of them."""
        return [
            names
            for principal, host in who
            for one in (operation, AclOperation.ALL)
            if (names := self.by_entry.get((principal, host, one, permission, pattern_type))) is not None
        ]


class Authorizer:
    """The entries of a cluster, as far as this broker knows them, and what follows of them."""

    def __init__(
        self, super_users: frozenset[str] = frozenset(), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._acls: dict[ResourcePattern, VersionedAcls] = {}
        self._patterns = {kind: _Patterns() for kind in _TYPES_OF_RESOURCES}
        self._decided: dict[tuple[str, str, ResourceType, str], int] = {}
        self._decided_by_type: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}

    # Decisions

    def authorize(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a principal at a host may do an operation on one resource."""
        allowed = self._decided.get((principal, host, resource_type, name))
        if allowed is None:
            allowed = self.authorized_operations(principal, host, resource_type, name)
        return bool(allowed >> operation & 1)

    def authorized_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """All that a principal at a host may do on one resource, as a bit field."""
        key = (principal, host, resource_type, name)
        allowed = self._decided.get(key)
        if allowed is None:
            allowed = self._decide(principal, host, resource_type, name)
            if len(self._decided) >= _MAX_KEPT_DECISIONS:
                self._decided.clear()
            self._decided[key] = allowed
        return allowed

    def _decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return _ALL_OPERATIONS
        matching = self._patterns[resource_type].matching(name)
        if not matching:
            return _ALL_OPERATIONS if self._allow_everyone else 0
        allowed = denied = 0
        for who in _who(principal, host):
            for masks in matching:
                found = masks.get(who)
                if found is not None:
                    allowed |= found[0]
                    denied |= found[1]
        if allowed >> AclOperation.ALL & 1:
            allowed = _ALL_OPERATIONS
        if denied >> AclOperation.ALL & 1:
            denied = _ALL_OPERATIONS
        for operation, implying in _IMPLYING:
            if allowed & implying:
                allowed |= 1 << operation
        return allowed & ~denied & _ALL_OPERATIONS

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there can be a resource of this type on which a principal may do an operation."""
        key = (principal, host, operation, resource_type)
        allowed = self._decided_by_type.get(key)
        if allowed is None:
            allowed = principal in self._super_users or self._decide_by_type(*key)
            if len(self._decided_by_type) >= _MAX_KEPT_DECISIONS:
                self._decided_by_type.clear()
            self._decided_by_type[key] = allowed
        return allowed

    def _decide_by_type(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        patterns = self._patterns[resource_type]
        who = _who(principal, host)

        def names(permission: AclPermissionType, pattern_type: PatternType) -> list[set[str]]:
            return patterns.names(who, operation, permission, pattern_type)

        denied = names(AclPermissionType.DENY, PatternType.LITERAL)
        if any(WILDCARD in found for found in denied):
            return False
        if self._allow_everyone:
            return True
        denied_prefixes = frozenset().union(*names(AclPermissionType.DENY, PatternType.PREFIXED))
        literals = names(AclPermissionType.ALLOW, PatternType.LITERAL)
        prefixes = names(AclPermissionType.ALLOW, PatternType.PREFIXED)
        if not denied and not denied_prefixes:
            return bool(literals or prefixes)
        if any(WILDCARD in found for found in literals):
            return True
        lengths = sorted(set(map(len, denied_prefixes)))

        def is_denied(name: str) -> bool:
            return any(name[:length] in denied_prefixes for length in lengths)

        if any(not is_denied(prefix) for found in prefixes for prefix in found):
            return True
        return any(not is_denied(name) for found in literals for name in found.difference(*denied))

    # Entries

    def acls_of(self, pattern: ResourcePattern) -> VersionedAcls | None:
        """The entries of a pattern; None if it has none here."""
        return self._acls.get(pattern)

    def patterns(self) -> Iterable[ResourcePattern]:
        """All patterns that have entries."""
        return self._acls.keys()

    def acls(self, wanted: AclBindingFilter) -> Task[list[AclBinding]]:
        """The entries that a filter matches."""
        found: list[AclBinding] = []
        patterns = wanted.pattern.patterns
        for pattern in list(self._acls) if patterns is None else patterns:
            acls = self._acls.get(pattern)
            if acls is not None and wanted.pattern.matches(pattern):
                found += [AclBinding(pattern, entry) for entry in acls.entries if wanted.entry.matches(entry)]
            yield None
        return found

    def update(self, pattern: ResourcePattern, acls: VersionedAcls) -> None:
        """The entries of a pattern are these now; from here on they decide."""
        self._decided.clear()
        self._decided_by_type.clear()
        before = self._acls.get(pattern, NO_ACLS).entries
        if acls.entries:
            self._acls[pattern] = acls
        else:
            self._acls.pop(pattern, None)
        if acls.entries == before:
            return
        patterns = self._patterns[pattern.resource_type]
        patterns.replace(pattern, _masks(acls.entries))
        for entry in before - acls.entries:
            names = patterns.by_entry[(*entry, pattern.pattern_type)]
            names.discard(pattern.name)
            if not names:
                del patterns.by_entry[(*entry, pattern.pattern_type)]
        for entry in acls.entries - before:
            patterns.by_entry.setdefault((*entry, pattern.pattern_type), set()).add(pattern.name)

    def configure(self, super_users: frozenset[str], *, allow_everyone_if_no_acl_found: bool) -> None:
        """Take other settings."""
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._decided.clear()
        self._decided_by_type.clear()


def _who(principal: str, host: str) -> Iterable[tuple[str, str]]:
    """The principals and hosts whose entries count."""
    return (principal, host), (principal, WILDCARD), (WILDCARD_PRINCIPAL, host), (WILDCARD_PRINCIPAL, WILDCARD)


def _masks(entries: Iterable[AccessControlEntry]) -> _Masks:
    masks: dict[tuple[str, str], tuple[int, int]] = {}
    for principal, host, operation, permission in entries:
        allowed, denied = masks.get((principal, host), (0, 0))
        if permission is AclPermissionType.ALLOW:
            allowed |= 1 << operation
        elif permission is AclPermissionType.DENY:
            denied |= 1 << operation
        masks[principal, host] = allowed, denied
    return masks
