"""The smallest set of access control lists under which what a program did is allowed.

What was asked for is noted: a principal, an operation and a resource each time. Of the operations
on one resource those that another one implies need no entry: who may read a topic may describe it.
Where it is enough to have a right to any resource of a type, as for a producer that is idempotent,
an entry is made only if no other has that right. What is only looked at in a list of all needs an
entry if something else is done with it: a program that lists topics sees those of others, too.
Names with a common beginning can be folded into one prefix. A name with a slash is one, because no
broker keeps an entry for it.

Kafka has no counterpart.
"""

import re
from collections.abc import Iterable, Sequence

from barnabas.security.acls import (
    CLUSTER_NAME,
    IMPLYING_OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

__all__ = ["NeededAcls"]

_ANY_NAME = ""
"""For a right to any resource of a type; no resource has this name."""
_FIRST_PART = re.compile(r"[._-]*[^._-]+[._-]")
_SEPARATORS = "._-"
_Need = tuple[str, ResourceType, str, AclOperation]


class NeededAcls:
    """What principals asked for; threads may note at the same time."""

    def __init__(self) -> None:
        self._needs: set[_Need] = set()
        self._listed: set[_Need] = set()

    def note(self, principal: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """An operation on a resource."""
        self._needs.add((principal, resource_type, name, operation))

    def note_any(self, principal: str, operation: AclOperation, resource_type: ResourceType) -> None:
        """An operation on any resource of a type."""
        self._needs.add((principal, resource_type, _ANY_NAME, operation))

    def note_listed(self, principal: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """An operation on a resource that is left out of a list where it is not allowed."""
        self._listed.add((principal, resource_type, name, operation))

    def bindings(self, *, folds_prefixes: bool = False) -> list[AclBinding]:
        """The entries, in a stable order; all of them allow, from all hosts."""
        needs = list(self._needs)
        operations: dict[tuple[str, ResourceType, str], set[AclOperation]] = {}
        for principal, resource_type, name, operation in needs:
            if name != _ANY_NAME:
                operations.setdefault((principal, resource_type, name), set()).add(operation)
        for principal, resource_type, name, operation in list(self._listed):
            if (principal, resource_type, name) in operations:
                operations[principal, resource_type, name].add(operation)
        for principal, resource_type, name, operation in needs:
            if name == _ANY_NAME and not any(
                key[:2] == (principal, resource_type) and operation in found for key, found in operations.items()
            ):
                key, instead = _instead_of_any(principal, resource_type, operation)
                operations.setdefault(key, set()).add(instead)
        least = {key: _least(found) for key, found in operations.items()}
        patterns = _folded(least) if folds_prefixes else [(_literal(key), key[0], each) for key, each in least.items()]
        return sorted(
            {
                AclBinding(pattern, AccessControlEntry(principal, WILDCARD, operation, AclPermissionType.ALLOW))
                for pattern, principal, found in patterns
                for operation in found
            }
        )


_Key = tuple[str, ResourceType, str]


def _instead_of_any(principal: str, resource_type: ResourceType, operation: AclOperation) -> tuple[_Key, AclOperation]:
    """The least right that stands for a right to any resource of a type."""
    if (resource_type, operation) == (ResourceType.TOPIC, AclOperation.WRITE):
        # Only the start of an idempotent producer asks so.
        return (principal, ResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE
    return (principal, resource_type, WILDCARD), operation


def _least(operations: set[AclOperation]) -> frozenset[AclOperation]:
    """Those that no other one implies."""
    return frozenset(each for each in operations if operations.isdisjoint(IMPLYING_OPERATIONS.get(each, ())))


def _literal(key: _Key) -> ResourcePattern:
    return _storable(key[1], key[2], PatternType.LITERAL)


def _storable(resource_type: ResourceType, name: str, pattern_type: PatternType) -> ResourcePattern:
    """The narrowest pattern that brokers keep: a name with a slash would be two znodes."""
    begin, slash, _ = name.partition("/")
    if not slash:
        return ResourcePattern(resource_type, name, pattern_type)
    if not begin:
        return ResourcePattern(resource_type, WILDCARD, PatternType.LITERAL)
    return ResourcePattern(resource_type, begin, PatternType.PREFIXED)


def _folded(
    least: dict[_Key, frozenset[AclOperation]],
) -> Iterable[tuple[ResourcePattern, str, frozenset[AclOperation]]]:
    """Names of one type that begin alike, and of which the same is wanted, as one prefix."""
    groups: dict[tuple[str, ResourceType, frozenset[AclOperation], str], list[str]] = {}
    for (principal, resource_type, name), operations in least.items():
        part = None if resource_type is ResourceType.CLUSTER else _FIRST_PART.match(name)
        groups.setdefault((principal, resource_type, operations, part[0] if part else name), []).append(name)
    for (principal, resource_type, operations, _), names in groups.items():
        if len(names) == 1:
            yield _storable(resource_type, names[0], PatternType.LITERAL), principal, operations
        else:
            yield _storable(resource_type, _common(names), PatternType.PREFIXED), principal, operations


def _common(names: Sequence[str]) -> str:
    """The longest common beginning that ends with a separator."""
    first, last = min(names), max(names)
    length = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    while first[length - 1] not in _SEPARATORS:
        length -= 1
    return first[:length]
