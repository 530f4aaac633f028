"""Access control lists in the words of Kafka's tool: its options, and commands made of entries.

``--allow-principal User:ann --operation Read --topic orders`` stands for one `Acl`. ``--producer``
and ``--consumer`` stand for what a producer and a consumer need.

In Kafka: `AclCommand`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from barnabas.base.hints import did_you_mean
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.client.errors import ConfigurationError
from barnabas.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    is_principal,
    pascal_case,
)

__all__ = [
    "ACL_OPERATIONS",
    "AclOptions",
    "AclResource",
    "acl_commands",
    "acl_of_binding",
    "acls_of_options",
    "acls_of_words",
    "binding_filter_of",
    "binding_of_acl",
    "pattern_type_of",
    "principal_of",
    "resources_of",
    "sorted_by_resource",
]

Word = TypeVar("Word", bound=IntEnum)

ACL_OPERATIONS = {pascal_case(each): each for each in AclOperation if each > AclOperation.ANY}
"""The names that ``--operation`` takes."""
_BY_WORD = {each.name.replace("_", ""): each for each in ACL_OPERATIONS.values()}
_ALL = "All"
_OPTIONS = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
    ResourceType.DELEGATION_TOKEN: "delegation-token",
    ResourceType.USER: "user-principal",
}
_WRITER = (AclOperation.WRITE, AclOperation.DESCRIBE)


class AclResource(NamedTuple):
    """The resources that an option names."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        """As Kafka's tool prints it."""
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


_CLUSTER = AclResource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


@dataclass(slots=True)
class AclOptions:
    """What the options say, by their names."""

    topic: Sequence[str] = ()
    group: Sequence[str] = ()
    transactional_id: Sequence[str] = ()
    delegation_token: Sequence[str] = ()
    user_principal: Sequence[str] = ()
    allow_principal: Sequence[str] = ()
    deny_principal: Sequence[str] = ()
    allow_host: Sequence[str] = ()
    deny_host: Sequence[str] = ()
    operation: Sequence[str] = ()
    cluster: bool = False
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False
    resource_pattern_type: PatternType = PatternType.LITERAL

    @property
    def names(self) -> Mapping[ResourceType, Sequence[str]]:
        """The names of resources."""
        return {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.DELEGATION_TOKEN: self.delegation_token,
            ResourceType.USER: self.user_principal,
        }


_FLAGS = ("cluster", "producer", "consumer", "idempotent", "add")
_PATTERN_TYPE = "resource-pattern-type"
_VALUES = (
    *(*_OPTIONS.values(), "allow-principal", "deny-principal", "allow-host", "deny-host", "operation"),
    _PATTERN_TYPE,
)


def acls_of_words(words: Sequence[str]) -> list[Acl]:
    """The entries for which words of a command line stand, with or without ``--add``.

    Raises `ConfigurationError`."""
    values: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = option.removeprefix("--")
        if option == name or name not in (*_FLAGS, *_VALUES) or (equals and name in _FLAGS):
            hint = did_you_mean(name, (*_FLAGS, *_VALUES))
            raise ConfigurationError(f"{word} is none of the options of an access control list{hint}")
        given = value if equals or name in _FLAGS else next(rest, None)
        if given is None:
            raise ConfigurationError(f"{word} needs a value")
        values.setdefault(name, []).append(given)
    patterns = values.pop(_PATTERN_TYPE, [PatternType.LITERAL.name])
    flags = {name: True for name in _FLAGS if values.pop(name, None) and name != "add"}
    lists = {name.replace("-", "_"): given for name, given in values.items()}
    options = AclOptions(**lists, **flags, resource_pattern_type=pattern_type_of(patterns[-1]))  # type: ignore[arg-type]
    acls = [acl for each in acls_of_options(options).values() for acl in each]
    if not acls:
        raise ConfigurationError("--allow-principal or --deny-principal is missing")
    return acls


def pattern_type_of(text: str) -> PatternType:
    """A type of patterns by its name, in whatever case. Raises `ConfigurationError`."""
    found = PatternType.__members__.get(text.upper(), PatternType.UNKNOWN)
    if found is PatternType.UNKNOWN:
        raise ConfigurationError(f"{text}: literal, prefixed, any or match is expected")
    return found


def resources_of(given: AclOptions) -> list[AclResource]:
    """The resources that options name, each once."""
    kind = given.resource_pattern_type
    found = [
        AclResource(resource_type, name.strip(), kind) for resource_type, names in given.names.items() for name in names
    ]
    if kind is PatternType.LITERAL and (given.cluster or given.idempotent):
        found.insert(len(given.topic), _CLUSTER)
    return list(dict.fromkeys(found))


def acls_of_options(given: AclOptions) -> dict[AclResource, list[Acl]]:
    """The entries that options stand for, by resource.

    Lists are empty where no principal is named. Raises `ConfigurationError`."""
    found: dict[AclResource, list[Acl]] = {}
    for resource, operations in _operations(given).items():
        supported = {*SUPPORTED_OPERATIONS[resource.resource_type], AclOperation.ALL}
        if not supported.issuperset(operations):
            raise ConfigurationError(
                f"ResourceType {resource.resource_type.name} only supports operations "
                f"{', '.join(pascal_case(each) for each in sorted(supported))}"
            )
        found[resource] = [
            Acl(
                resource.resource_type.name,
                resource.name,
                principal,
                operation.name,
                permission,
                host,
                resource.pattern_type.name,
            )
            for permission, principals, hosts in _who(given)
            for principal in principals
            for operation in operations
            for host in hosts
        ]
    return found


def _operations(given: AclOptions) -> dict[AclResource, list[AclOperation]]:
    """What is to be done with each resource."""
    resources = resources_of(given)
    if not resources:
        raise ConfigurationError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    if not given.producer and not given.consumer:
        wanted = [_operation(text) for text in given.operation or [_ALL]]
        return {resource: list(dict.fromkeys(wanted)) for resource in resources}
    found: dict[AclResource, list[AclOperation]] = {}

    def add(resource_type: ResourceType, *operations: AclOperation) -> None:
        for resource in resources:
            if resource.resource_type is resource_type:
                found[resource] = list(dict.fromkeys([*found.get(resource, []), *operations]))

    if given.producer:
        add(ResourceType.TOPIC, *_WRITER, AclOperation.CREATE)
        add(ResourceType.TRANSACTIONAL_ID, *_WRITER)
        if given.idempotent:
            found[_CLUSTER] = [AclOperation.IDEMPOTENT_WRITE]
    if given.consumer:
        add(ResourceType.TOPIC, AclOperation.READ, AclOperation.DESCRIBE)
        add(ResourceType.GROUP, AclOperation.READ)
    return found


def _operation(text: str) -> AclOperation:
    found = _BY_WORD.get(text.strip().upper().replace("_", ""))
    if found is None:
        raise ConfigurationError(
            f"--operation {text}: there is no such operation{did_you_mean(text, ACL_OPERATIONS)}; they are {', '.join(ACL_OPERATIONS)}"
        )
    return found


def _who(given: AclOptions) -> Iterable[tuple[str, Sequence[str], Sequence[str]]]:
    """The permission, the principals and their hosts."""
    for permission, principals, hosts in (
        ("ALLOW", given.allow_principal, given.allow_host),
        ("DENY", given.deny_principal, given.deny_host),
    ):
        named = list(dict.fromkeys(principal_of(text) for text in principals))
        yield permission, named, list(dict.fromkeys(host.strip() for host in hosts)) or [WILDCARD]


def principal_of(text: str) -> str:
    """A principal as entries have it. Raises `ConfigurationError`."""
    principal = text.strip()
    if not is_principal(principal):
        raise ConfigurationError(
            f"expected a string in format principalType:principalName but got {principal}: User:{principal or 'ann'}, perhaps"
        )
    return principal


def acl_commands(acls: Iterable[Acl]) -> list[list[str]]:
    """The arguments of commands that add entries, in a stable order.

    Entries that differ in their operation share a command."""
    operations: dict[tuple[str, ...], list[str]] = {}
    for acl in acls:
        key = (acl.principal, acl.permission, acl.host, acl.resource_type, acl.pattern_type, acl.resource_name)
        operations.setdefault(key, []).append(acl.operation)
    commands = []
    for principal, permission, host, resource_type, pattern, name in sorted(operations):
        words = ["--add", f"--{permission.lower()}-principal", principal]
        if host != WILDCARD:
            words += [f"--{permission.lower()}-host", host]
        key = (principal, permission, host, resource_type, pattern, name)
        for operation in sorted(set(operations[key])):
            words += ["--operation", pascal_case(AclOperation[operation])]
        kind = ResourceType[resource_type]
        words += ["--cluster"] if kind is ResourceType.CLUSTER else [f"--{_OPTIONS[kind]}", name]
        if pattern != PatternType.LITERAL.name:
            words += ["--resource-pattern-type", pattern.lower()]
        commands.append(words)
    return commands


def sorted_by_resource(acls: Sequence[Acl]) -> Mapping[AclResource, list[Acl]]:
    """Entries by their resource, both in a stable order."""
    found: dict[AclResource, list[Acl]] = {}
    for acl in acls:
        resource = AclResource(ResourceType[acl.resource_type], acl.resource_name, PatternType[acl.pattern_type])
        found.setdefault(resource, []).append(acl)
    return {
        resource: sorted(found[resource], key=lambda acl: (acl.principal, acl.host, acl.permission, acl.operation))
        for resource in sorted(found)
    }


def binding_of_acl(acl: Acl) -> AclBinding:
    """The same as brokers have it. Raises `ConfigurationError` for words that are not there."""
    return AclBinding(
        ResourcePattern(
            _word(ResourceType, acl.resource_type), acl.resource_name, _word(PatternType, acl.pattern_type)
        ),
        AccessControlEntry(
            principal_of(acl.principal),
            acl.host,
            _word(AclOperation, acl.operation),
            _word(AclPermissionType, acl.permission),
        ),
    )


def binding_filter_of(wanted: AclFilter) -> AclBindingFilter:
    """The same as brokers have it. Raises `ConfigurationError` for words that are not there."""
    return AclBindingFilter(
        ResourcePatternFilter(
            _word(ResourceType, wanted.resource_type), wanted.resource_name, _word(PatternType, wanted.pattern_type)
        ),
        AccessControlEntryFilter(
            wanted.principal,
            wanted.host,
            _word(AclOperation, wanted.operation),
            _word(AclPermissionType, wanted.permission),
        ),
    )


def acl_of_binding(binding: AclBinding) -> Acl:
    """The reverse of `binding_of_acl`."""
    pattern, entry = binding
    return Acl(
        pattern.resource_type.name,
        pattern.name,
        entry.principal,
        entry.operation.name,
        entry.permission_type.name,
        entry.host,
        pattern.pattern_type.name,
    )


def _word(words: type[Word], text: str) -> Word:
    try:
        return words[text.upper().replace("-", "_")]
    except KeyError:
        expected = [each.name for each in words if each.name not in ("UNKNOWN", "ANY", "MATCH")]
        raise ConfigurationError(
            f"{text} is unknown here{did_you_mean(text, expected)}: {', '.join(expected)} are expected"
        ) from None
