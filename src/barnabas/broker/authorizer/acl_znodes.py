"""The znodes of access control lists: their paths and contents, as Apache Kafka writes them.

The entries of a literal pattern are in ``/kafka-acl/Topic/NAME``, those of a prefix in
``/kafka-acl-extended/prefixed/Topic/NAME``, with the type of the resource in Pascal case:

    {"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}

Who changes them leaves a sequential note, ``/kafka-acl-changes/acl_changes_0000000001`` with
``TOPIC:NAME``, or in ``/kafka-acl-extended-changes``

    {"version":1,"resourceType":"TOPIC","name":"NAME","patternType":"PREFIXED"}

In Kafka: `ZkAclStore`, `ZkAclChangeStore`, `ResourceZNode`, `AclEntry`.
"""

import json
from collections.abc import Iterable
from typing import Any, TypeGuard

from barnabas.base.tasks import Task
from barnabas.broker.cluster.znodes import ZnodeFormatError
from barnabas.coordination.core.paths import checked_path
from barnabas.security.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    is_principal,
    of_pascal_case,
    pascal_case,
)
from barnabas.wire.jute.errors import KeeperError

__all__ = [
    "ACL_CHANGE_PREFIX",
    "ACL_PATHS",
    "CHANGES",
    "MAX_ACLS_BYTES",
    "RESOURCE_TYPES",
    "acl_path",
    "decode_acls",
    "decode_change",
    "encode_acls",
    "encode_change",
    "has_znode",
]

_ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
"""Where the notes are, by the type of the pattern."""
ACL_CHANGE_PREFIX = "acl_changes_"
RESOURCE_TYPES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
MAX_ACLS_BYTES = 1_000_000
"""The most that the entries of a pattern may have. A coordination server ends the connection of a
request with more bytes than jute.maxbuffer, which is 1,048,575 unless it is changed."""
_VERSION = 1
_ENTRIES_A_STEP = 256


def acl_path(resource_type: ResourceType, pattern_type: PatternType, name: str | None = None) -> str:
    """Where the entries of a pattern are; without a name, where those of a type are."""
    path = f"{_ROOTS[pattern_type]}/{pascal_case(resource_type)}"
    return path if name is None else f"{path}/{name}"


def has_znode(pattern: ResourcePattern) -> bool:
    """Whether a pattern can have a znode: its name has to be one that a path may have."""
    try:
        checked_path(acl_path(pattern.resource_type, pattern.pattern_type, pattern.name))
    except KeeperError:
        return False
    return "/" not in pattern.name


ACL_PATHS = (
    "/kafka-acl-extended",
    *_ROOTS.values(),
    *(acl_path(kind, pattern_type) for pattern_type in _ROOTS for kind in RESOURCE_TYPES),
    *CHANGES.values(),
)
"""Persistent znodes that every broker with an authorizer makes sure of when it starts; those above
them come first."""


def encode_acls(entries: Iterable[AccessControlEntry]) -> Task[bytes]:
    """The entries of a pattern."""
    acls = []
    for entry in entries:
        acls.append(
            _encoded(
                {
                    "principal": entry.principal,
                    "permissionType": pascal_case(entry.permission_type),
                    "host": entry.host,
                    "operation": pascal_case(entry.operation),
                }
            )
        )
        yield None
    return b'{"acls":[%b],"version":%d}' % (b",".join(acls), _VERSION)


def decode_acls(path: str, data: bytes | None) -> Task[frozenset[AccessControlEntry]]:
    """The entries of a pattern; none where a znode is empty.

    Raises `ZnodeFormatError`: what cannot be read may deny something."""
    if not data:
        return frozenset()
    contents = _decoded(path, data)
    acls = contents.get("acls")
    if contents.get("version") != _VERSION or not isinstance(acls, list):
        raise ZnodeFormatError(f"{path}: these are no access control lists of version {_VERSION}")
    entries: set[AccessControlEntry] = set()
    for first in range(0, len(acls), _ENTRIES_A_STEP):
        entries.update(_entry(path, acl) for acl in acls[first : first + _ENTRIES_A_STEP])
        yield None
    return frozenset(entries)


def _entry(path: str, acl: Any) -> AccessControlEntry:
    try:
        principal, host = acl["principal"], acl["host"]
        operation = of_pascal_case(AclOperation, acl["operation"])
        permission = of_pascal_case(AclPermissionType, acl["permissionType"])
    except (TypeError, KeyError, AttributeError) as error:
        raise ZnodeFormatError(f"{path}: an access control list cannot be read: {error!r}") from error
    if not _is_text(principal) or not _is_text(host) or not is_principal(principal):
        raise ZnodeFormatError(f"{path}: an access control list does not name a principal as User:name, and a host")
    return AccessControlEntry(principal, host, operation, permission)


def encode_change(pattern: ResourcePattern) -> bytes:
    """The note that the entries of a pattern have changed."""
    kind = pattern.resource_type.name
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{kind}:{pattern.name}".encode()
    return _encoded(
        {
            "version": _VERSION,
            "resourceType": kind,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(path: str, data: bytes | None) -> ResourcePattern | None:
    """The pattern that a note names; None for a type of resources that is unknown here.

    Raises `ZnodeFormatError`."""
    kind: Any
    name: Any
    if path.startswith(f"{CHANGES[PatternType.LITERAL]}/"):
        try:
            kind, colon, name = (data or b"").decode().partition(":")
        except UnicodeDecodeError as error:
            raise ZnodeFormatError(f"{path}: a note is not in UTF-8") from error
        if not colon:
            raise ZnodeFormatError(f"{path}: a note is not of the form TYPE:NAME")
        pattern_type = PatternType.LITERAL
    else:
        contents = _decoded(path, data or b"")
        version, kind, name = contents.get("version"), contents.get("resourceType"), contents.get("name")
        is_prefix = contents.get("patternType") == PatternType.PREFIXED.name
        if version != _VERSION or not isinstance(kind, str) or not _is_text(name) or not is_prefix:
            raise ZnodeFormatError(f"{path}: a note does not name a pattern")
        pattern_type = PatternType.PREFIXED
    resource_type = ResourceType.__members__.get(kind.upper(), ResourceType.UNKNOWN)
    return ResourcePattern(resource_type, name, pattern_type) if resource_type in RESOURCE_TYPES else None


def _is_text(value: object) -> TypeGuard[str]:
    """Whether it is a text of whole characters: JSON may have half of one (``\\ud800``), which
    cannot be written again."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoded(contents: object) -> bytes:
    return json.dumps(contents, separators=(",", ":"), ensure_ascii=False).encode()


def _decoded(path: str, data: bytes) -> dict[str, Any]:
    try:
        contents = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ZnodeFormatError(f"{path}: this is no JSON") from error
    if not isinstance(contents, dict):
        raise ZnodeFormatError(f"{path}: this is no JSON object")
    return contents
