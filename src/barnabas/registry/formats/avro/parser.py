"""Parses schemas of Avro: JSON to types, held to the rules of the specification.

Apache's and fastavro's parsers were tried first: the one takes quadratic time for records of many
fields, the other leaves the shape of what it reads unchecked, neither resolves aliases, and both
lose the place of an error.

In Confluent's registry: `AvroSchemaProvider`, which asks `Schema.Parser` of Apache Avro.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

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
from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["Parser"]

_MAX_DEPTH: Final = 100
"""Types inside types; a recursive schema needs no more, for it uses names."""

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""JSON has no numbers for these."""

_ORDERS = frozenset({"ascending", "descending", "ignore"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"type", "name", "namespace", "fields", "items", "values", "size", "symbols", "doc", "aliases"})
_RESERVED_IN_ENUMS = frozenset({"type", "name", "namespace", "symbols", "doc", "aliases", "default"})
_RESERVED_IN_FIELDS = frozenset({"type", "name", "doc", "default", "order", "aliases"})

_Object = Mapping[str, object]


class Parser:
    """Parses one schema after another; each may use the names that those before it define."""

    def __init__(self, *, is_strict: bool = True) -> None:
        """A strict parser checks names and defaults, as for a schema that is new."""
        self.names: dict[str, NamedType] = {}
        self._is_strict = is_strict
        self._place: list[str] = []
        self._fields: list[tuple[str, RecordField]] = []

    def parse(self, value: object) -> AvroType:
        """The type that a JSON value describes. Raises InvalidSchemaError."""
        self._place.clear()
        self._fields.clear()
        parsed = self._type(value, "", 0)
        if self._is_strict:
            for place, field in self._fields:
                if not _fits(field.default, field.type):
                    raise InvalidSchemaError(f"at {place}: the default does not fit the type of the field")
        return parsed

    def _error(self, text: str) -> InvalidSchemaError:
        return InvalidSchemaError(f"at /{'/'.join(self._place)}: {text}")

    def _inside(self, step: str, value: object, namespace: str, depth: int) -> AvroType:
        self._place.append(step)
        parsed = self._type(value, namespace, depth)
        self._place.pop()
        return parsed

    def _type(self, value: object, namespace: str, depth: int) -> AvroType:
        if isinstance(value, str):
            return PrimitiveType(value, {}) if value in _PRIMITIVES else self._known(value, namespace)
        if depth > _MAX_DEPTH:
            raise self._error(f"types nest deeper than {_MAX_DEPTH}")
        if isinstance(value, list):
            return self._union(value, namespace, depth)
        if not isinstance(value, dict):
            raise self._error("a type is a name, an object or a list")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise self._error("an object that is a type needs the name of one as its type")
        if kind in _PRIMITIVES:
            return PrimitiveType(kind, _properties(value, _RESERVED))
        match kind:
            case "record" | "error":
                return self._record(value, namespace, depth)
            case "enum":
                return self._enum(value, namespace)
            case "fixed":
                return self._fixed(value, namespace)
            case "array":
                items = self._inside("items", self._needed(value, "items"), namespace, depth + 1)
                return ArrayType(kind, _properties(value, _RESERVED), items)
            case "map":
                values = self._inside("values", self._needed(value, "values"), namespace, depth + 1)
                return MapType(kind, _properties(value, _RESERVED), values)
            case _:
                return self._known(kind, namespace)

    def _known(self, name: str, namespace: str) -> AvroType:
        full_name = f"{namespace}.{name}" if namespace and "." not in name else name
        found = self.names.get(full_name)
        if found is None and not self._is_strict:  # as Apache's library did before 1.12
            found = self.names.get(name)
        if found is None:
            raise self._error(f"{full_name} is not a type, nor a name that is defined before")
        return found

    def _needed(self, value: _Object, key: str) -> object:
        if key not in value:
            raise self._error(f"{key} is missing")
        return value[key]

    def _text(self, value: _Object, key: str) -> str | None:
        """A string; another value counts as none, as in Apache's library."""
        text = value.get(key)
        return text if isinstance(text, str) else None

    def _texts(self, value: _Object, key: str) -> list[str]:
        texts = value.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._error(f"{key} is not a list of strings")
        return texts

    def _checked(self, name: str, what: str) -> str:
        if self._is_strict and not _NAME.fullmatch(name):
            raise self._error(f"{name!r} is no name of {what}: letters, digits and _, and no digit first")
        return name

    def _name(self, value: _Object, namespace: str) -> tuple[str, str]:
        name = self._text(value, "name")
        if not name:
            raise self._error("a record, enum or fixed needs a name")
        space = self._text(value, "namespace")
        if "." in name:
            space, name = name.rsplit(".", 1)
        elif space is None:
            space = namespace
        self._checked(name, "a type")
        for part in space.split(".") if space else ():
            self._checked(part, "a namespace")
        return name, space

    def _define(self, named: NamedType) -> None:
        name = named.full_name
        if name in _PRIMITIVES:
            raise self._error(f"{name} is the name of a primitive type")
        if name in self.names:
            raise self._error(f"{name} is defined already")
        self.names[name] = named

    def _aliases(self, value: _Object, namespace: str) -> list[str]:
        aliases = self._texts(value, "aliases")
        for alias in aliases:
            for part in alias.split("."):
                self._checked(part, "an alias")
        full_names = (f"{namespace}.{each}" if namespace and "." not in each else each for each in aliases)
        return list(dict.fromkeys(full_names))

    def _record(self, value: _Object, namespace: str, depth: int) -> RecordType:
        name, space = self._name(value, namespace)
        doc, aliases = self._text(value, "doc"), self._aliases(value, space)
        is_error = value["type"] == "error"
        record = RecordType("record", _properties(value, _RESERVED), name, space, aliases, doc, is_error)
        self._define(record)
        fields = self._needed(value, "fields")
        if not isinstance(fields, list):
            raise self._error("fields is not a list")
        names = set()
        for index, each in enumerate(fields):
            self._place += ("fields", str(index))
            field = self._field(each, space, depth)
            if field.name in names:
                raise self._error(f"the record has two fields {field.name}")
            names.add(field.name)
            record.fields.append(field)
            del self._place[-2:]
        return record

    def _field(self, value: object, namespace: str, depth: int) -> RecordField:
        if not isinstance(value, dict):
            raise self._error("a field is an object")
        name = self._text(value, "name")
        if not name:
            raise self._error("a field needs a name")
        self._checked(name, "a field")
        kind = self._inside("type", self._needed(value, "type"), namespace, depth + 1)
        order = (self._text(value, "order") or "ascending").lower()
        if order not in _ORDERS:
            raise self._error(f"{order!r} is no order of a field")
        aliases = list(dict.fromkeys(self._texts(value, "aliases")))
        default = _number_of_text(value.get("default", ABSENT), kind)
        doc, properties = self._text(value, "doc"), _properties(value, _RESERVED_IN_FIELDS)
        field = RecordField(name, kind, doc, default, order, aliases, properties)
        if default is not ABSENT:
            self._fields.append((f"/{'/'.join(self._place)}", field))
        return field

    def _enum(self, value: _Object, namespace: str) -> EnumType:
        name, space = self._name(value, namespace)
        doc, aliases = self._text(value, "doc"), self._aliases(value, space)
        if not isinstance(self._needed(value, "symbols"), list):
            raise self._error("symbols is not a list")
        symbols, default = self._texts(value, "symbols"), self._text(value, "default")
        if len(set(symbols)) != len(symbols):
            raise self._error("the enum has a symbol twice")
        for symbol in symbols:
            self._checked(symbol, "a symbol")
        if default is not None and default not in symbols:
            raise self._error(f"the default {default!r} is not a symbol of the enum")
        properties = _properties(value, _RESERVED_IN_ENUMS)
        enum = EnumType("enum", properties, name, space, aliases, doc, symbols, default)
        self._define(enum)
        return enum

    def _fixed(self, value: _Object, namespace: str) -> FixedType:
        name, space = self._name(value, namespace)
        doc, aliases = self._text(value, "doc"), self._aliases(value, space)
        size = self._needed(value, "size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
            raise self._error("size is not a number of bytes")
        fixed = FixedType("fixed", _properties(value, _RESERVED), name, space, aliases, doc, size)
        self._define(fixed)
        return fixed

    def _union(self, value: list[object], namespace: str, depth: int) -> UnionType:
        branches: list[AvroType] = []
        seen = set()
        for index, each in enumerate(value):
            branch = self._inside(str(index), each, namespace, depth + 1)
            if isinstance(branch, UnionType):
                raise self._error("a union stands directly inside a union")
            name = branch.full_name if isinstance(branch, NamedType) else branch.kind
            if name in seen:
                raise self._error(f"the union has {name} twice")
            seen.add(name)
            branches.append(branch)
        return UnionType("union", {}, branches)


def _properties(value: _Object, reserved: frozenset[str]) -> dict[str, object]:
    if value.keys() <= reserved:
        return {}
    return {key: each for key, each in value.items() if key not in reserved}


def _number_of_text(default: object, kind: AvroType) -> object:
    """Defaults of numbers may stand as strings, which are stored as numbers."""
    if isinstance(default, str) and kind.kind in {"float", "double"}:
        try:
            number = float(default)
        except ValueError:
            return default
        return number if math.isfinite(number) else default
    return default


def _is_integer(value: object, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits


def _fits(value: object, kind: AvroType) -> bool:
    """Whether a default is a value of a type, as JSON; a union takes those of any branch."""
    match kind:
        case UnionType():
            return any(_fits(value, branch) for branch in kind.branches)
        case ArrayType():
            return isinstance(value, list) and all(_fits(each, kind.items) for each in value)
        case MapType():
            return isinstance(value, dict) and all(_fits(each, kind.values) for each in value.values())
        case RecordType():
            return isinstance(value, dict) and all(
                _fits(value.get(field.name, field.default), field.type) for field in kind.fields
            )
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _is_integer(value, 31)
        case "long":
            return _is_integer(value, 63)
        case "float" | "double":
            return (isinstance(value, int | float) and not isinstance(value, bool)) or value in _NOT_NUMBERS
        case _:
            return isinstance(value, str)
