"""What a schema of Avro consists of.

The names are those of the specification. A named type stands once, and every use of its name is
the same object, so a recursive schema is a graph. Types are compared by identity.

In Confluent's registry: `Schema` of Apache Avro.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

__all__ = [
    "ABSENT",
    "ArrayType",
    "AvroType",
    "EnumType",
    "FixedType",
    "MapType",
    "NamedType",
    "PrimitiveType",
    "RecordField",
    "RecordType",
    "UnionType",
]

ABSENT: Final = object()
"""No default: null is one."""


@dataclass(eq=False)
class AvroType:
    """A type, with the properties that the specification does not know (and ``logicalType``)."""

    kind: str
    properties: dict[str, object]


@dataclass(eq=False)
class PrimitiveType(AvroType):
    """null, boolean, int, long, float, double, bytes or string."""


@dataclass(eq=False)
class ArrayType(AvroType):
    """A list of items of one type."""

    items: AvroType


@dataclass(eq=False)
class MapType(AvroType):
    """Values of one type, by strings."""

    values: AvroType


@dataclass(eq=False)
class NamedType(AvroType):
    """A type with a name, a namespace ("" for none), and aliases, which are full names."""

    name: str
    namespace: str
    aliases: list[str]
    doc: str | None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(eq=False)
class RecordField:
    """A field; ``default`` is ABSENT when there is none."""

    name: str
    type: AvroType
    doc: str | None
    default: object
    order: str
    aliases: list[str]
    properties: dict[str, object]


@dataclass(eq=False)
class RecordType(NamedType):
    """A record, or an error of a protocol, which reads and is read like one."""

    is_error: bool = False
    fields: list[RecordField] = field(default_factory=list)

    @cached_property
    def by_name(self) -> dict[str, RecordField]:
        return {each.name: each for each in self.fields}


@dataclass(eq=False)
class EnumType(NamedType):
    """An enumeration; a default stands for symbols that a reader does not know."""

    symbols: list[str]
    default: str | None


@dataclass(eq=False)
class FixedType(NamedType):
    """A fixed number of bytes."""

    size: int


@dataclass(eq=False)
class UnionType(AvroType):
    """One of several types. At most one branch is of each kind without a name."""

    branches: list[AvroType]

    @cached_property
    def _named(self) -> dict[tuple[str, str], list[AvroType]]:
        found: dict[tuple[str, str], list[AvroType]] = {}
        for branch in self.branches:
            if isinstance(branch, NamedType):
                for name in (branch.name, *branch.aliases):
                    found.setdefault((branch.kind, name), []).append(branch)
        return found

    @cached_property
    def _unnamed(self) -> list[AvroType]:
        return [branch for branch in self.branches if not isinstance(branch, NamedType)]

    def candidates(self, written: AvroType) -> list[AvroType]:
        """The branches that may read a type. A named type is read only by its name or alias."""
        if not isinstance(written, NamedType):
            return self._unnamed
        key = (written.kind, written.name)
        found = list(self._named.get(key, ()))
        if written.full_name != written.name:
            found.extend(self._named.get((written.kind, written.full_name), ()))
        return found
