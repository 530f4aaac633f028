"""Decides whether one schema of Avro reads what another one wrote, and says why not.

The rules are those of the specification's schema resolution; kinds, places and words of what is
found are those of ``SchemaCompatibility`` in Apache's library for Java, from which Confluent's
registry makes its messages. Apache's library for Python has these rules too, but it answers with
sets of places and of words that no longer belong together, does not resolve the namespaces of
aliases, and takes quadratic time for large unions.

In Confluent's registry: `AvroSchema.isBackwardCompatible`, by Avro's `SchemaCompatibility`.
"""

from typing import NamedTuple

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

__all__ = ["Incompatibility", "find_incompatibilities"]

_READ_BY = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""The primitive types that a reader's type promotes, by the reader's."""


class Incompatibility(NamedTuple):
    """A place in the reader's schema, as a JSON pointer, that cannot read what was written."""

    kind: str
    location: str
    message: str


_Found = dict[Incompatibility, None]
"""What was found, in its order and each once: a type that is used twice is compared once."""

_Place = tuple[str, ...]


def find_incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Why a reader's type does not read what was written with the writer's; empty if it does.

    Raises RecursionError when the types nest too deeply."""
    return list(_Comparison().compare(reader, writer, ()))


class _Comparison:
    """Compares pairs of types, each once. A pair that is being compared counts as compatible."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], _Found] = {}

    def compare(self, reader: AvroType, writer: AvroType, place: _Place) -> _Found:
        if isinstance(reader, PrimitiveType) and isinstance(writer, PrimitiveType):
            if reader.kind == writer.kind or writer.kind in _READ_BY.get(reader.kind, ()):
                return {}
            return _type_mismatch(reader, writer, place)
        pair = (id(reader), id(writer))
        known = self._found.get(pair)
        if known is None:
            self._found[pair] = {}
            known = self._found[pair] = self._calculate(reader, writer, place)
        return known

    def _calculate(self, reader: AvroType, writer: AvroType, place: _Place) -> _Found:
        if isinstance(writer, UnionType):
            return self._written_union(reader, writer, place)
        if isinstance(reader, UnionType):
            if any(not self.compare(branch, writer, ()) for branch in reader.candidates(writer)):
                return {}
            return _lacking(writer, place)
        if isinstance(reader, ArrayType) and isinstance(writer, ArrayType):
            return self.compare(reader.items, writer.items, (*place, "items"))
        if isinstance(reader, MapType) and isinstance(writer, MapType):
            return self.compare(reader.values, writer.values, (*place, "values"))
        if isinstance(reader, RecordType) and isinstance(writer, RecordType):
            return _name_mismatch(reader, writer, place) | self._records(reader, writer, place)
        if isinstance(reader, EnumType) and isinstance(writer, EnumType):
            return _name_mismatch(reader, writer, place) | _missing_symbols(reader, writer, place)
        if isinstance(reader, FixedType) and isinstance(writer, FixedType):
            return _name_mismatch(reader, writer, place) | _size_mismatch(reader, writer, place)
        return _type_mismatch(reader, writer, place)

    def _written_union(self, reader: AvroType, writer: UnionType, place: _Place) -> _Found:
        found: _Found = {}
        for index, branch in enumerate(writer.branches):
            here = (*place, str(index))
            unread = self.compare(reader, branch, here)
            if unread and isinstance(reader, UnionType):
                unread = _lacking(branch, here)
            found |= unread
        return found

    def _records(self, reader: RecordType, writer: RecordType, place: _Place) -> _Found:
        found: _Found = {}
        for index, field in enumerate(reader.fields):
            here = (*place, "fields", str(index))
            written = _written_field(field, writer)
            if written is not None:
                found |= self.compare(field.type, written.type, (*here, "type"))
            elif field.default is not ABSENT:
                continue
            elif isinstance(field.type, EnumType) and field.type.default is not None:
                found |= _type_mismatch(field.type, writer, (*here, "type"))
            else:
                found |= _one("READER_FIELD_MISSING_DEFAULT_VALUE", here, field.name)
        return found


def _written_field(field: RecordField, writer: RecordType) -> RecordField | None:
    for name in (field.name, *field.aliases):
        written = writer.by_name.get(name)
        if written is not None:
            return written
    return None


def _one(kind: str, place: _Place, message: str) -> _Found:
    location = "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in place)
    return {Incompatibility(kind, location, message): None}


def _type_mismatch(reader: AvroType, writer: AvroType, place: _Place) -> _Found:
    message = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    return _one("TYPE_MISMATCH", place, message)


def _lacking(writer: AvroType, place: _Place) -> _Found:
    return _one("MISSING_UNION_BRANCH", place, f"reader union lacking writer type: {writer.kind.upper()}")


def _name_mismatch(reader: NamedType, writer: NamedType, place: _Place) -> _Found:
    """Namespaces may differ, as in Apache's library; an alias is the writer's full name."""
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return {}
    return _one("NAME_MISMATCH", (*place, "name"), f"expected: {writer.full_name}")


def _missing_symbols(reader: EnumType, writer: EnumType, place: _Place) -> _Found:
    missing = set(writer.symbols).difference(reader.symbols)
    if not missing or reader.default is not None:
        return {}
    return _one("MISSING_ENUM_SYMBOLS", (*place, "symbols"), f"[{', '.join(sorted(missing))}]")


def _size_mismatch(reader: FixedType, writer: FixedType, place: _Place) -> _Found:
    if reader.size == writer.size:
        return {}
    return _one("FIXED_SIZE_MISMATCH", (*place, "size"), f"expected: {writer.size}, found: {reader.size}")
