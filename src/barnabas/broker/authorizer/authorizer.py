"""The decision whether a principal may do an operation on a resource (Kafka's `AclAuthorizer`).

A super user may do everything. For all others the patterns that match a resource count: the one
with its literal name, the literal ``*``, and each prefix of its name. Where no pattern matches,
``allow.everyone.if.no.acl.found`` decides. Otherwise an entry that denies decides first, then one
that allows; without either the operation is denied. An entry for the operation ALL is one for each
operation, and some operations imply DESCRIBE or DESCRIBE_CONFIGS (`IMPLYING_OPERATIONS`).

Entries are kept by the principal and host that they name, and there by the names of their
patterns: one bit field of the operations that they allow, one of those that they deny. Four such
pairs count for a client, with ``User:*`` and the host ``*`` in the place of either. So a decision
takes the same few look-ups whether it allows or denies, and however many entries there are.
Prefixes of a name are looked up by the lengths that prefixes have.

A pattern whose entries cannot be read (`UNREADABLE_ACLS`) denies everything to all but super users.

A pattern with very many entries is kept apart, by itself: its entries are replaced at once, as
those of any other, and they are prepared before in slices.

What was decided for a principal, host and resource is kept until an entry changes, all operations
in one bit field.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.base.tasks import Task, one_by_one
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

__all__ = ["NO_ACLS", "UNREADABLE_ACLS", "Authorizer", "VersionedAcls"]

_ALL_OPERATIONS = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
_IMPLYING = [(operation, sum(1 << other for other in others)) for operation, others in IMPLYING_OPERATIONS.items()]
_MAX_KEPT_DECISIONS = 16_384
_MAX_KEPT_CHARACTERS = 255
"""Of a name: clients without rights may ask for very many groups, each with 32,767 characters."""
_MANY_ENTRIES = 256
"""From here on the entries of a pattern are kept apart."""
_DENIED_BITS = 32
"""Where the bit field of denied operations begins, above that of the allowed ones."""


class VersionedAcls(NamedTuple):
    """The entries of a pattern, and the version of their znode."""

    entries: frozenset[AccessControlEntry]
    version: int
    """-1 while there is no znode."""


NO_ACLS = VersionedAcls(frozenset(), -1)
UNREADABLE_ACLS = VersionedAcls(
    frozenset((AccessControlEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, AclPermissionType.DENY),)), -1
)
"""In the place of entries that cannot be read: they may deny anything."""

_Bits = Mapping[tuple[str, str], int]
"""Bit fields by principal and host."""
_RightsKey = tuple[ResourceType, str, str]
"""A type of resources, a principal and a host."""


class _Rights:
    """What the entries for one principal and host say about the resources of a type: bit fields
    by the names of patterns."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, int] = {}
        self.prefixed: dict[str, int] = {}
        self.lengths: Counter[int] = Counter()
        """How many prefixes have a length."""

    def copy(self) -> "_Rights":
        """These rights as they are now, without the lengths."""
        copied = _Rights()
        copied.literal = self.literal.copy()
        copied.prefixed = self.prefixed.copy()
        return copied

    def bits_for(self, name: str) -> int:
        """What they say about one resource."""
        found = 0
        if self.literal:
            found = self.literal.get(name, 0) | self.literal.get(WILDCARD, 0)
        if self.prefixed:
            for length in self.lengths:
                found |= self.prefixed.get(name[:length], 0)
        return found

    def set_bits(self, pattern: ResourcePattern, bits: int) -> None:
        """A pattern has other entries; 0 for none."""
        is_prefix = pattern.pattern_type is PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        was_there = pattern.name in patterns
        if bits:
            patterns[pattern.name] = bits
        elif was_there:
            del patterns[pattern.name]
        if is_prefix and was_there != bool(bits):
            _count(self.lengths, len(pattern.name), 1 if bits else -1)


class Authorizer:
    """The entries of a cluster, as far as this broker knows them, and what follows of them."""

    def __init__(
        self, super_users: frozenset[str] = frozenset(), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self.version = 0
        """Counts the changes of entries and settings."""
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._acls: dict[ResourcePattern, VersionedAcls] = {}
        self._rights: dict[_RightsKey, _Rights] = {}
        self._large_patterns: dict[ResourcePattern, _Bits] = {}
        """The patterns with very many entries, which are not in the rights."""
        self.unreadable: set[ResourcePattern] = set()
        """The patterns whose entries cannot be read."""
        self._prefix_lengths: Counter[int] = Counter()
        self._decided: dict[tuple[str, str, ResourceType, str], int] = {}
        self._decided_by_type: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}

    def configure(self, super_users: frozenset[str], *, allow_everyone_if_no_acl_found: bool) -> None:
        """Take other settings."""
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._clear_decisions()

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
            if len(name) <= _MAX_KEPT_CHARACTERS:
                if len(self._decided) >= _MAX_KEPT_DECISIONS:
                    self._decided.clear()
                self._decided[key] = allowed
        return allowed

    def _decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return _ALL_OPERATIONS
        found = 0
        for rights in self._rights_of(principal, host, resource_type):
            found |= rights.bits_for(name)
        if self._large_patterns:
            for pattern in self._matching(resource_type, name):
                bits = self._large_patterns.get(pattern)
                if bits is not None:
                    found |= _bits_of(bits, principal, host)
        if not found:
            return _ALL_OPERATIONS if self._allow_everyone and not self._has_acls(resource_type, name) else 0
        allowed = _expanded(found)
        for operation, implying in _IMPLYING:
            if allowed & implying:
                allowed |= 1 << operation
        return allowed & ~_expanded(found >> _DENIED_BITS) & _ALL_OPERATIONS

    def _has_acls(self, resource_type: ResourceType, name: str) -> bool:
        """Whether any pattern matches a resource."""
        return any(pattern in self._acls for pattern in self._matching(resource_type, name))

    def _matching(self, resource_type: ResourceType, name: str) -> Iterator[ResourcePattern]:
        """The patterns that can match a resource."""
        for literal in (name, WILDCARD):
            yield ResourcePattern(resource_type, literal, PatternType.LITERAL)
        for length in self._prefix_lengths:
            yield ResourcePattern(resource_type, name[:length], PatternType.PREFIXED)

    def _rights_of(self, principal: str, host: str, resource_type: ResourceType) -> list[_Rights]:
        rights = self._rights
        return [
            found
            for who in (
                (resource_type, principal, host),
                (resource_type, principal, WILDCARD),
                (resource_type, WILDCARD_PRINCIPAL, host),
                (resource_type, WILDCARD_PRINCIPAL, WILDCARD),
            )
            if (found := rights.get(who)) is not None
        ]

    def is_super_user(self, principal: str) -> bool:
        """Whether a principal may do everything."""
        return principal in self._super_users

    def _rights_on_large_patterns(self, principal: str, host: str, resource_type: ResourceType) -> _Rights:
        """What the patterns with very many entries say about the resources of a type."""
        rights = _Rights()
        for pattern, bits in self._large_patterns.items():
            if pattern.resource_type is resource_type:
                rights.set_bits(pattern, _bits_of(bits, principal, host))
        return rights

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Task[bool]:
        """Whether there can be a resource of this type on which a principal may do an operation
        (KIP-679). Operations that imply it do not count.

        The entries that there are when the task begins decide."""
        key = (principal, host, operation, resource_type)
        allowed = self._decided_by_type.get(key)
        if allowed is None:
            version = self.version
            allowed = principal in self._super_users or (yield from self._decide_by_type(*key))
            if version == self.version:
                if len(self._decided_by_type) >= _MAX_KEPT_DECISIONS:
                    self._decided_by_type.clear()
                self._decided_by_type[key] = allowed
        return allowed

    def _decide_by_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Task[bool]:
        all_rights = self._rights_of(principal, host, resource_type)
        if self._large_patterns:
            all_rights.append(self._rights_on_large_patterns(principal, host, resource_type))
        allowing = 1 << operation | 1 << AclOperation.ALL
        denying = allowing << _DENIED_BITS
        if any(rights.literal.get(WILDCARD, 0) & denying for rights in all_rights):
            return False
        if self._allow_everyone or any(rights.literal.get(WILDCARD, 0) & allowing for rights in all_rights):
            return True
        all_rights = [rights.copy() for rights in all_rights]  # others change meanwhile
        denied_prefixes: set[str] = set()
        lengths: set[int] = set()
        for rights in all_rights:
            for prefix, bits in rights.prefixed.items():
                if bits & denying:
                    denied_prefixes.add(prefix)
                    lengths.add(len(prefix))
                yield None

        def is_open(name: str) -> bool:
            """Whether no prefix of a name, itself included, is denied."""
            return not any(name[:length] in denied_prefixes for length in lengths)

        for rights in all_rights:
            for prefix, bits in rights.prefixed.items():
                if bits & allowing and is_open(prefix):
                    return True
                yield None
            for name, bits in rights.literal.items():
                is_denied = any(other.literal.get(name, 0) & denying for other in all_rights)
                if bits & allowing and not is_denied and is_open(name):
                    return True
                yield None
        return False

    # Entries

    def acls_of(self, pattern: ResourcePattern) -> VersionedAcls | None:
        """The entries of a pattern; None if it has none here, or they cannot be read."""
        return None if pattern in self.unreadable else self._acls.get(pattern)

    def patterns(self) -> Iterable[ResourcePattern]:
        """All patterns that have entries, or whose entries cannot be read."""
        return self._acls.keys()

    def acls(self, wanted: AclBindingFilter) -> Task[list[AclBinding]]:
        """The entries that a filter matches."""
        found: list[AclBinding] = []
        patterns = wanted.pattern.patterns
        for pattern in one_by_one(self._acls if patterns is None else patterns):
            acls = self.acls_of(pattern)
            if acls is not None and wanted.pattern.matches(pattern):
                for entry in acls.entries:
                    if wanted.entry.matches(entry):
                        found.append(AclBinding(pattern, entry))
                    yield None
            yield None
        return found

    def update_in_slices(self, pattern: ResourcePattern, acls: VersionedAcls) -> Task[None]:
        """As `update`, for entries that may be very many."""
        bits: dict[tuple[str, str], int] = {}
        if len(acls.entries) >= _MANY_ENTRIES:
            for entry in acls.entries:
                _add_bit(bits, entry)
                yield None
        self.update(pattern, acls, bits)

    def update(self, pattern: ResourcePattern, acls: VersionedAcls, bits: _Bits | None = None) -> None:
        """The entries of a pattern are these from now on. ``bits`` are theirs, if they are many."""
        if acls is UNREADABLE_ACLS:
            self.unreadable.add(pattern)
        else:
            self.unreadable.discard(pattern)
        before = self._acls.get(pattern, NO_ACLS).entries
        if acls.entries:
            self._acls[pattern] = acls
        elif before:
            del self._acls[pattern]
        if acls.entries == before:
            return
        self._clear_decisions()
        if pattern.pattern_type is PatternType.PREFIXED and bool(before) != bool(acls.entries):
            _count(self._prefix_lengths, len(pattern.name), 1 if acls.entries else -1)
        if not bits:
            bits = {}
            for entry in acls.entries:
                _add_bit(bits, entry)
        self._large_patterns.pop(pattern, None)
        if len(acls.entries) >= _MANY_ENTRIES:
            self._large_patterns[pattern] = bits
            bits = {}
        if len(before) >= _MANY_ENTRIES:
            before = frozenset()
        self._put(pattern, bits, {*bits, *((entry.principal, entry.host) for entry in before)})

    def _put(self, pattern: ResourcePattern, bits: _Bits, holders: Iterable[tuple[str, str]]) -> None:
        """Replace the rights on a pattern, of all who had or have some."""
        for principal, host in holders:
            who = (pattern.resource_type, principal, host)
            rights = self._rights.get(who)
            if rights is None:
                rights = self._rights[who] = _Rights()
            rights.set_bits(pattern, bits.get((principal, host), 0))
            if not rights.literal and not rights.prefixed:
                del self._rights[who]

    def _clear_decisions(self) -> None:
        self.version += 1
        self._decided.clear()
        self._decided_by_type.clear()


def _expanded(bits: int) -> int:
    """A bit field in which ALL is each operation."""
    return _ALL_OPERATIONS if bits >> AclOperation.ALL & 1 else bits & _ALL_OPERATIONS


def _add_bit(bits: dict[tuple[str, str], int], entry: AccessControlEntry) -> None:
    """Add an entry to the bit fields of its pattern.

    What another version wrote, with an operation or permission that is unknown here, has no bit
    that counts."""
    principal, host, operation, permission = entry
    if permission is AclPermissionType.ALLOW:
        bit = 1 << operation
    else:
        bit = 1 << operation + _DENIED_BITS if permission is AclPermissionType.DENY else 0
    key = (principal, host)
    bits[key] = bits.get(key, 0) | bit


def _bits_of(bits: _Bits, principal: str, host: str) -> int:
    """What the entries of one pattern say to a principal at a host."""
    return (
        bits.get((principal, host), 0)
        | bits.get((principal, WILDCARD), 0)
        | bits.get((WILDCARD_PRINCIPAL, host), 0)
        | bits.get((WILDCARD_PRINCIPAL, WILDCARD), 0)
    )


def _count(counts: Counter[int], key: int, change: int) -> None:
    counts[key] += change
    if not counts[key]:
        del counts[key]
