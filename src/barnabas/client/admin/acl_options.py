"""Access control lists in the words of Kafka's tool: its options, and commands made of entries.

``--allow-principal User:ann --operation Read --topic orders`` stands for one `Acl`. ``--producer``
and ``--consumer`` stand for what a producer and a consumer need.

In Kafka: `AclCommand`.
"""

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, NoReturn, TypeVar

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
    "AclResource",
    "acl_commands",
    "acl_of_binding",
    "acls_of_options",
    "acls_of_text",
    "add_acl_options",
    "binding_filter_of",
    "binding_of_acl",
    "principal_of",
    "resources_of",
    "sorted_by_resource",
]

Word = TypeVar("Word", bound=IntEnum)

_OPERATIONS = {pascal_case(each): each for each in AclOperation if each > AclOperation.ANY}
"""The names that ``--operation`` takes."""
_BY_WORD = {each.name.replace("_", ""): each for each in _OPERATIONS.values()}
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


def add_acl_options(parser: argparse.ArgumentParser) -> None:
    """The options that name resources, principals, hosts and operations."""

    def names(option: str, text: str) -> None:
        parser.add_argument(f"--{option}", action="append", default=[], metavar="NAME", help=text)

    names("topic", "a topic, or '*' for all; may be repeated")
    names("group", "a consumer group, or '*' for all; may be repeated")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    names("transactional-id", "a transactional id, or '*' for all; may be repeated")
    names("delegation-token", "a delegation token, or '*' for all; may be repeated")
    names("user-principal", "a user as a resource, for the operations CreateTokens and DescribeTokens")
    parser.add_argument(
        "--resource-pattern-type",
        type=pattern_type,
        default=PatternType.LITERAL,
        metavar="TYPE",
        help="how the names are meant: literal, prefixed; with --list and --remove also any (a pattern of whatever type with "
        "this name) or match (all patterns that match this name) (default: literal)",
    )
    principals = "as TYPE:NAME, such as User:ann; 'User:*' is everybody; may be repeated"
    parser.add_argument("--allow-principal", action="append", default=[], metavar="P", help=f"who may, {principals}")
    parser.add_argument(
        "--deny-principal",
        action="append",
        default=[],
        metavar="P",
        help=f"who may not, whatever else allows it, {principals}",
    )
    hosts = "an address, or '*' (default: *); may be repeated"
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="HOST", help=f"from where they may: {hosts}"
    )
    parser.add_argument(
        "--deny-host", action="append", default=[], metavar="HOST", help=f"from where they may not: {hosts}"
    )
    parser.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="OPERATION",
        help=f"what they do: {', '.join(_OPERATIONS)} (default: All); may be repeated",
    )
    parser.add_argument(
        "--producer", action="store_true", help="what a producer needs: Write, Describe and Create on the topics"
    )
    parser.add_argument(
        "--consumer",
        action="store_true",
        help="what a consumer needs: Read and Describe on the topics, Read on the groups",
    )
    parser.add_argument(
        "--idempotent",
        action="store_true",
        help="with --producer: IdempotentWrite on the cluster, for brokers before 2.8",
    )


def pattern_type(text: str) -> PatternType:
    """The type of ``--resource-pattern-type``. Raises `argparse.ArgumentTypeError`."""
    try:
        return PatternType[text.upper()] if text.upper() != PatternType.UNKNOWN.name else _no_pattern_type(text)
    except KeyError:
        _no_pattern_type(text)


def _no_pattern_type(text: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"{text}: literal, prefixed, any or match is expected")


def resources_of(given: argparse.Namespace) -> list[AclResource]:
    """The resources that options name, each once."""
    kind: PatternType = given.resource_pattern_type
    found = [
        AclResource(resource_type, name.strip(), kind)
        for resource_type, option in _OPTIONS.items()
        for name in getattr(given, option.replace("-", "_"))
    ]
    if kind is PatternType.LITERAL and (given.cluster or given.idempotent):
        found.insert(len(given.topic), _CLUSTER)
    return list(dict.fromkeys(found))


def acls_of_options(given: argparse.Namespace) -> dict[AclResource, list[Acl]]:
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


def _operations(given: argparse.Namespace) -> dict[AclResource, list[AclOperation]]:
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
            f"--operation {text}: there is no such operation{did_you_mean(text, _OPERATIONS)}; they are {', '.join(_OPERATIONS)}"
        )
    return found


def _who(given: argparse.Namespace) -> Iterable[tuple[str, list[str], list[str]]]:
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


class _Words(argparse.ArgumentParser):
    """Raises `ConfigurationError`."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(message)


def acls_of_text(text: str) -> list[Acl]:
    """The entries for which options in one text stand: ``--allow-principal User:ann --operation
    Read --topic orders``.

    Raises `ConfigurationError`."""
    parser = _Words(prog="acls", add_help=False, allow_abbrev=False)
    add_acl_options(parser)
    parser.add_argument("--add", action="store_true")
    try:
        acls = [acl for each in acls_of_options(parser.parse_args(shlex.split(text))).values() for acl in each]
    except (ConfigurationError, ValueError) as error:
        raise ConfigurationError(f"{text}: {error}") from None
    if not acls:
        raise ConfigurationError(f"{text}: --allow-principal or --deny-principal is missing")
    return acls


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
