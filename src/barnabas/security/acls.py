"""Access control lists: who may do which operation on which resources, from which host.

An entry (`AccessControlEntry`) belongs to a pattern of resources (`ResourcePattern`); the two
together are an `AclBinding`. The numbers of the enums are those of the wire, and their names in
Pascal case are those of znodes and of audit lines.

In Kafka: the packages `org.apache.kafka.common.acl` and `.resource`, `SecurityUtils`, and the
tables of `AclEntry` (KIP-11, KIP-290, KIP-373, KIP-430).
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

__all__ = [
    "ACL_AUTHORIZER",
    "CLUSTER_NAME",
    "IMPLYING_OPERATIONS",
    "SUPPORTED_BITS",
    "SUPPORTED_OPERATIONS",
    "WILDCARD",
    "WILDCARD_PRINCIPAL",
    "AccessControlEntry",
    "AccessControlEntryFilter",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "PatternType",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "is_principal",
    "of_code",
    "of_pascal_case",
    "pascal_case",
]

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The value of ``authorizer.class.name`` for access control lists in ZooKeeper."""
WILDCARD = "*"
"""As a literal name: all resources. As a host: all hosts."""
WILDCARD_PRINCIPAL = "User:*"
"""All principals, of whatever type."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class ResourceType(IntEnum):
    """What kind of thing is protected."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern's name is compared with the names of resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What somebody does with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermissionType(IntEnum):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


Words = TypeVar("Words", ResourceType, PatternType, AclOperation, AclPermissionType)


def of_code(words: type[Words], code: int) -> Words:
    """The member with a number of the wire; UNKNOWN for others."""
    try:
        return words(code)
    except ValueError:
        return words(0)


def pascal_case(word: IntEnum) -> str:
    """As znodes and audit lines have it: ``DescribeConfigs``."""
    return _PASCAL_CASE[type(word)][word]


def of_pascal_case(words: type[Words], name: str) -> Words:
    """The member with this name, in whatever case; UNKNOWN for others."""
    found = _MEMBERS[words].get(name)
    if found is None:
        found = _MEMBERS[words].get(name.upper(), words(0))
    return words(found)


_ENUMS: tuple[type[IntEnum], ...] = (ResourceType, PatternType, AclOperation, AclPermissionType)
_PASCAL_CASE = {
    words: {word: "".join(part.capitalize() for part in word.name.split("_")) for word in words} for words in _ENUMS
}
_MEMBERS: dict[type[IntEnum], dict[str, IntEnum]] = {
    words: {form: word for word, name in names.items() for form in (name, name.upper())}
    for words, names in _PASCAL_CASE.items()
}


def is_principal(text: str) -> bool:
    """Whether a text names a principal: ``User:alice``. Either part may be empty."""
    return ":" in text


class ResourcePattern(NamedTuple):
    """The resources of a type whose name is ``name``, or begins with it (PREFIXED); those of the
    literal name ``*`` are all."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType


class AccessControlEntry(NamedTuple):
    """Whether a principal may do an operation from a host."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBinding(NamedTuple):
    """An entry, and the resources that it is for."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class ResourcePatternFilter(NamedTuple):
    """Which patterns are meant."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    """None for all."""
    pattern_type: PatternType = PatternType.ANY
    """MATCH means all patterns that ``name`` as a resource would match."""

    def matches(self, pattern: ResourcePattern) -> bool:
        """Whether a pattern is meant."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type in (PatternType.ANY, pattern.pattern_type):
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)

    @property
    def patterns(self) -> tuple[ResourcePattern, ...] | None:
        """The few patterns that can be meant; None for a filter that may match any number."""
        if self.resource_type is ResourceType.UNKNOWN or self.pattern_type is PatternType.UNKNOWN:
            return ()
        if self.resource_type is ResourceType.ANY or self.name is None or self.pattern_type is PatternType.MATCH:
            return None
        if self.pattern_type is PatternType.ANY:
            types: tuple[PatternType, ...] = (PatternType.LITERAL, PatternType.PREFIXED)
        else:
            types = (self.pattern_type,)
        return tuple(ResourcePattern(self.resource_type, self.name, pattern_type) for pattern_type in types)


class AccessControlEntryFilter(NamedTuple):
    """Which entries are meant; None and ANY match all."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, entry: AccessControlEntry) -> bool:
        """Whether an entry is meant."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


class AclBindingFilter(NamedTuple):
    """Which bindings are meant."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()


_Operation = AclOperation

IMPLYING_OPERATIONS: Mapping[AclOperation, tuple[AclOperation, ...]] = {
    _Operation.DESCRIBE: (_Operation.READ, _Operation.WRITE, _Operation.DELETE, _Operation.ALTER),
    _Operation.DESCRIBE_CONFIGS: (_Operation.ALTER_CONFIGS,),
}
"""By operation: to be allowed one of these allows it, too. To be denied one does not deny it."""

SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        *(_Operation.READ, _Operation.WRITE, _Operation.CREATE, _Operation.DELETE, _Operation.ALTER),
        *(_Operation.DESCRIBE, _Operation.DESCRIBE_CONFIGS, _Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (_Operation.READ, _Operation.DELETE, _Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        *(_Operation.CREATE, _Operation.ALTER, _Operation.DESCRIBE, _Operation.CLUSTER_ACTION),
        *(_Operation.DESCRIBE_CONFIGS, _Operation.ALTER_CONFIGS, _Operation.IDEMPOTENT_WRITE),
    ),
    ResourceType.TRANSACTIONAL_ID: (_Operation.WRITE, _Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (_Operation.DESCRIBE,),
    ResourceType.USER: (_Operation.CREATE_TOKENS, _Operation.DESCRIBE_TOKENS),
}
"""What can be done with a resource, by its type."""
SUPPORTED_BITS: Mapping[ResourceType, int] = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}
"""The same as the bit fields of KIP-430."""
