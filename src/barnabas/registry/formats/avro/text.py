"""Writes types of Avro as text, in the order of Apache's library for Java.

Confluent's registry stores what that library writes, so a schema gets the same text, and hence the
same id, whichever order and whitespace a client uses.

In Confluent's registry: `AvroSchema.canonicalString`.
"""

from collections.abc import Iterable

from barnabas.registry.formats.avro.types import (
    ABSENT,
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordField,
    RecordType,
    UnionType,
)
from barnabas.registry.formats.json_text import sorted_keys, write_json

__all__ = ["canonical_text", "normalized_text"]

_KINDS = frozenset(
    [
        "null",
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "bytes",
        "string",
        "array",
        "map",
        "union",
        "record",
        "enum",
        "fixed",
    ]
)
_LOGICAL = ("logicalType", "precision", "scale")


def canonical_text(kind: AvroType, known: Iterable[str] = ()) -> str:
    """The text of a type; full names that are ``known`` are used and not defined in it."""
    return write_json(_Writer(known, is_normal=False).type(kind, ""))


def normalized_text(kind: AvroType, known: Iterable[str] = ()) -> str:
    """The same with properties and aliases sorted, and without empty docs."""
    return write_json(_Writer(known, is_normal=True).type(kind, ""))


class _Writer:
    def __init__(self, known: Iterable[str], *, is_normal: bool) -> None:
        self._known = set(known)
        self._is_normal = is_normal

    def type(self, kind: AvroType, namespace: str) -> object:
        match kind:
            case UnionType():
                return [self.type(branch, namespace) for branch in kind.branches]
            case NamedType():
                return self._named(kind, namespace)
            case ArrayType():
                return {"type": "array", "items": self.type(kind.items, namespace)} | self._properties(kind.properties)
            case MapType():
                values = self.type(kind.values, namespace)
                return {"type": "map", "values": values} | self._properties(kind.properties)
            case PrimitiveType(kind=name, properties=properties):
                return {"type": name} | self._properties(properties) if properties else name
        raise AssertionError(kind)

    def _named(self, kind: NamedType, namespace: str) -> object:
        if kind.full_name in self._known:
            return _qualified(kind.full_name, namespace)
        self._known.add(kind.full_name)
        is_error = isinstance(kind, RecordType) and kind.is_error
        written: dict[str, object] = {"type": "error" if is_error else kind.kind, "name": kind.name}
        if kind.namespace != namespace:
            written["namespace"] = kind.namespace
        if kind.doc is not None and not (self._is_normal and not kind.doc):
            written["doc"] = kind.doc
        match kind:
            case RecordType():
                written["fields"] = [self._field(field, kind.namespace) for field in kind.fields]
            case EnumType():
                written["symbols"] = kind.symbols
                if kind.default is not None:
                    written["default"] = kind.default
            case FixedType():
                written["size"] = kind.size
        written |= self._properties(kind.properties)
        if kind.aliases:
            written["aliases"] = [_qualified(alias, kind.namespace) for alias in self._sorted(kind.aliases)]
        return written

    def _field(self, field: RecordField, namespace: str) -> object:
        written: dict[str, object] = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.default is not ABSENT:
            written["default"] = sorted_keys(field.default) if self._is_normal else field.default
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = self._sorted(field.aliases)
        return written | self._properties(field.properties)

    def _sorted(self, aliases: list[str]) -> list[str]:
        return sorted(aliases) if self._is_normal else aliases

    def _properties(self, properties: dict[str, object]) -> dict[str, object]:
        if not self._is_normal or not properties:
            return properties
        names = [name for name in _LOGICAL if "logicalType" in properties and name in properties]
        names += sorted(properties.keys() - set(names))
        return {name: sorted_keys(properties[name]) for name in names}


def _qualified(full_name: str, namespace: str) -> str:
    """A name as it is used inside a namespace: short, if that means the same."""
    space, _, name = full_name.rpartition(".")
    return name if space == namespace and name not in _KINDS else full_name
