"""``barnabas acls --suggest``: the access control lists that somebody needs, from audit logs.

Their lines say what was asked for, allowed or denied. They are those of
`barnabas.broker.authorizer.audit_log`, as text or JSON, or of Apache Kafka's
``kafka-authorizer.log``. What is allowed has lines where the level of ``kafka.authorizer.logger``
is DEBUG; what is denied always. Where a right to the cluster was used, because it was there, that
one is suggested. `barnabas.testing.Cluster` with ``record_acls`` asks for the narrower ones.

Kafka has no counterpart.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.client.admin.acl_options import acl_of_binding
from barnabas.client.admin.acls import Acl
from barnabas.security.acls import AclOperation, ResourceType, of_pascal_case
from barnabas.security.needed_acls import NeededAcls

__all__ = ["suggested_acls"]

_LINE = re.compile(
    r"Principal = (?P<principal>.+?) is (?:Allowed|Denied) Operation = (?P<operation>\w+) from host = \S+ on resource = "
    r"(?P<kind>\w+):(?P<pattern>\w+):(?P<name>.*) for request = \w+ with resourceRefCount = \d+"
)
_ANY = "UNKNOWN"
"""The type of the pattern in a line about any resource of a type."""


class _Asked(NamedTuple):
    principal: str
    operation: AclOperation
    resource_type: ResourceType
    pattern: str
    name: str


def suggested_acls(paths: Sequence[str], principals: Collection[str], *, folds_prefixes: bool) -> list[Acl]:
    """The smallest set for what principals asked for, or all of them if none is named.

    Raises `BarnabasError` for files that cannot be read, or have no such line."""
    needed, count = NeededAcls(), 0
    for asked in _all_lines(paths):
        count += 1
        if principals and asked.principal not in principals:
            continue
        if asked.pattern == _ANY:
            needed.note_any(asked.principal, asked.operation, asked.resource_type)
        else:
            needed.note(asked.principal, asked.operation, asked.resource_type, asked.name)
    if not count:
        raise BarnabasError(
            f"{', '.join(paths)}: there is no line of an authorizer; what is allowed has lines at the level DEBUG of "
            "kafka.authorizer.logger (barnabas configs --alter --broker-logger ID --add-config kafka.authorizer.logger=DEBUG)"
        )
    return [acl_of_binding(binding) for binding in needed.bindings(folds_prefixes=folds_prefixes)]


def _all_lines(paths: Sequence[str]) -> Iterator[_Asked]:
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from _lines(file)
        except OSError as error:
            raise BarnabasError(f"cannot read {path}: {error.strerror}") from None


def _lines(lines: Iterable[str]) -> Iterator[_Asked]:
    for line in lines:
        if line.startswith("{"):
            try:
                found = json.loads(line)
                texts = [
                    found[key] for key in ("principal", "operation", "resourceType", "patternType", "resourceName")
                ]
            except (ValueError, KeyError, TypeError):
                continue
        elif match := _LINE.search(line):
            texts = [match[key] for key in ("principal", "operation", "kind", "pattern", "name")]
        else:
            continue
        if not all(isinstance(text, str) for text in texts):
            continue
        principal, operation, kind, pattern, name = texts
        asked = _Asked(
            principal, of_pascal_case(AclOperation, operation), of_pascal_case(ResourceType, kind), pattern, name
        )
        if asked.operation is not AclOperation.UNKNOWN and asked.resource_type is not ResourceType.UNKNOWN:
            yield asked
