"""The rights that a request needs, and the states of an access control list that are tried with it:
everything, nothing, each right missing or denied, patterns, hosts, principals, and names that only
look alike."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.create_acls import AclCreation
from barnabas.wire.kafka.schema import Message
from support.acl_sides import PRINCIPAL, Side, facts

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
OTHER_HOST = "10.1.2.3"
_IMPLYING = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class Right(NamedTuple):
    """An operation on some resources of a type."""

    resource_type: ResourceType
    operation: AclOperation
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource_type.name}"

    def entries(self, permission: AclPermissionType = ALLOW, **changes: Any) -> list[AclCreation]:
        """One for each resource."""
        return [self._entry(name, permission, changes) for name in self.names]

    def _entry(self, name: str, permission: AclPermissionType, changes: dict[str, Any]) -> AclCreation:
        facts = {
            "resource_type": self.resource_type,
            "resource_name": name,
            "resource_pattern_type": PatternType.LITERAL,
            "principal": PRINCIPAL,
            "host": WILDCARD,
            "operation": self.operation,
            "permission_type": permission,
        }
        return AclCreation(**{**facts, **changes})

    def renamed(self, change: Callable[[str], str]) -> "Right":
        """The same right on resources of other names; the cluster has but one."""
        if self.resource_type is ResourceType.CLUSTER:
            return self
        return self._replace(names=tuple(map(change, self.names)))


def topic(operation: AclOperation, *names: str) -> Right:
    return Right(ResourceType.TOPIC, operation, names)


def group(operation: AclOperation, *names: str) -> Right:
    return Right(ResourceType.GROUP, operation, names)


def transactional_id(operation: AclOperation, *names: str) -> Right:
    return Right(ResourceType.TRANSACTIONAL_ID, operation, names)


def cluster(operation: AclOperation) -> Right:
    return Right(ResourceType.CLUSTER, operation, (CLUSTER_NAME,))


@dataclass(frozen=True)
class Question:
    """A request of an API, and the rights that it needs to be served in full."""

    api: ApiKey
    make: Callable[[Side, int], Message]
    rights: tuple[Right, ...] = ()
    first: int = 0
    last: int = 99
    prepare: Callable[[Side], None] = field(default=lambda _: None)
    """Called before each time that it is asked."""

    @property
    def name(self) -> str:
        return self.make.__name__.replace("_", " ")


class State(NamedTuple):
    """The entries of an access control list, in a word."""

    name: str
    entries: list[AclCreation]


def basic_states(question: Question) -> Iterator[State]:
    """All rights, none, each one alone and each one missing."""
    rights = question.rights
    yield State("none", [])
    if not rights:
        return
    yield State("all", _of(rights))
    for right in rights if len(rights) > 1 else ():
        yield State(f"without {right}", _of([other for other in rights if other != right]))
    for right in rights if len(rights) > 2 else ():
        yield State(f"only {right}", _of([right]))


def further_states(question: Question) -> Iterator[State]:
    """Denials, patterns, implied operations, hosts, principals and names that look alike."""
    rights = question.rights
    every = _of(rights)
    for right in rights:
        yield State(f"denied {right}", every + right.entries(DENY))
        yield State(f"denied ALL {right.resource_type.name}", every + right.entries(DENY, operation=AclOperation.ALL))
        yield State(f"denied {right} to all", every + right.entries(DENY, principal="User:*"))
        yield State(f"denied {right} elsewhere", every + right.entries(DENY, host=OTHER_HOST))
        yield State(f"denied {right} to others", every + right.entries(DENY, principal="User:bob"))
        for implying in _IMPLYING.get(right.operation, ()):
            others = _of([other for other in rights if other != right])
            implied = right.entries(operation=implying)
            yield State(f"{implying.name} for {right}", others + implied)
            yield State(f"{implying.name} for {right}, denied", others + implied + right.entries(DENY))
            yield State(f"{right}, denied {implying.name}", every + right.entries(DENY, operation=implying))
    yield from _of_principals(rights)
    yield from _of_patterns(rights)
    yield from _of_names(rights)


def _of_principals(rights: Sequence[Right]) -> Iterator[State]:
    for word, changes in {
        "ALL": {"operation": AclOperation.ALL},
        "everybody": {"principal": "User:*"},
        "this host": {"host": "127.0.0.1"},
        "another host": {"host": OTHER_HOST},
        "another user": {"principal": "User:bob"},
        "in capitals": {"principal": PRINCIPAL.upper()},
        "another type": {"principal": PRINCIPAL.replace("User", "Role")},
        "a longer name": {"principal": PRINCIPAL + "a"},
    }.items():
        yield State(f"to {word}", _of(rights, **changes))


def _of_patterns(rights: Sequence[Right]) -> Iterator[State]:
    prefixed = {"resource_pattern_type": PatternType.PREFIXED}
    anything = [right.renamed(lambda _: WILDCARD) for right in rights]
    beginnings = [right.renamed(lambda name: name[:2]) for right in rights]
    yield State("on the wildcard", _of(anything))
    yield State("on the wildcard, denied names", _of(anything) + _of(rights, DENY))
    yield State("denied the wildcard", _of(rights) + _of(anything, DENY))
    if any(right.resource_type is not ResourceType.CLUSTER for right in rights):
        yield State("on prefixes", _of(beginnings, **prefixed))
        yield State("on whole names as prefixes", _of(rights, **prefixed))
        yield State("on prefixes, denied names", _of(beginnings, **prefixed) + _of(rights, DENY))
        yield State("denied prefixes", _of(rights) + _of(beginnings, DENY, **prefixed))
        yield State("denied longer prefixes", _of(beginnings, **prefixed) + _of(rights, DENY, **prefixed))
        yield State("on a prefix that is a star", _of(anything, **prefixed))


def _of_names(rights: Sequence[Right]) -> Iterator[State]:
    if all(right.resource_type is ResourceType.CLUSTER for right in rights):
        return
    for word, change in _ALIKE.items():
        alike = [right.renamed(change) for right in rights]
        yield State(f"on names {word}", _of(alike))
        yield State(f"denied names {word}", _of(rights) + _of(alike, DENY))


def _full_width(name: str) -> str:
    return chr(ord(name[0]) + 0xFEE0) + name[1:]


_ALIKE: dict[str, Callable[[str], str]] = {
    "in capitals": str.upper,
    "with a full-width letter": _full_width,
    "in the other normal form": lambda name: (
        unicodedata.normalize("NFD", name) if unicodedata.normalize("NFD", name) != name else name + "\u0301"
    ),
    "that are longer": lambda name: name + "1",
    "that are shorter": lambda name: name[:-1],
    "with a space": lambda name: name + " ",
}


def _of(rights: Sequence[Right], permission: AclPermissionType = ALLOW, **changes: Any) -> list[AclCreation]:
    """The entries of several rights, each once."""
    found: dict[str, AclCreation] = {}
    for right in rights:
        for entry in right.entries(permission, **changes):
            found.setdefault(repr(facts(entry)), entry)
    return list(found.values())
