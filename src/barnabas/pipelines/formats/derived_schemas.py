"""Schemas of Avro, JSON Schema and Protobuf, made of the columns that a flow writes to a topic.

    column         Avro                          JSON Schema              Protobuf
    boolean        boolean                       boolean                  bool
    tinyint - int  int                           integer                  int32
    bigint         long                          integer                  int64
    float, double  float, double                 number; NaN as a text    float, double
    decimal(p,s)   bytes, decimal                a text with its digits   string with its digits
    string         string                        string                   string
    binary         bytes                         base64                   bytes
    date           int, date                     a text, date             string, 2026-01-31
    timestamp      long, timestamp-micros        a text, date-time        google.protobuf.Timestamp
    timestamp_ntz  long, local-timestamp-micros  a text without zone      string without zone
    array          array                         array                    repeated
    map            map; array of key and value   object, keys as texts    map
                   where keys are no texts
    struct         record                        object                   message

Every value may be null, parts of others too, because Spark seldom knows that one cannot; Protobuf
has no null within arrays and maps. So a column that is added is a change that readers with the old
and with the new schema understand. A name that the format does not allow is refused, never changed.

Kafka has no counterpart; Confluent's converters of Connect have AvroData, JsonSchemaData and
ProtobufData.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from barnabas.base.errors import BarnabasError

__all__ = ["UnwritableColumnError", "derive_avro", "derive_json_schema", "derive_protobuf"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_RULE = "letters of English, digits and _, no digit first"
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?$"
_LOCAL_TIME = r"^[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}$"
_TIMESTAMP = "google/protobuf/timestamp.proto"
_RESERVED = range(19_000, 20_000)
"""Numbers of fields that Protobuf keeps for itself."""
_MAP_KEYS = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean)


class UnwritableColumnError(BarnabasError):
    """A column cannot be written in the format or in its schema; known before the first row."""


def _no_type(path: str, kind: object, system: str) -> UnwritableColumnError:
    return UnwritableColumnError(f"column {path} is of the type {kind}, which has no counterpart in {system}: cast it")


def _check_name(path: str, name: str, system: str) -> None:
    if not _NAME.fullmatch(name):
        raise UnwritableColumnError(
            f"column {path}: {name!r} is no name in {system} ({_NAME_RULE}); rename it in the flow's SQL, as in "
            f"`{name}` as {re.sub('[^A-Za-z0-9_]', '_', name) or 'name'}"
        )


def _is_variant(field: pa.Field) -> bool:
    inner = field.type
    return pa.types.is_struct(inner) and any((each.metadata or {}).get(b"variant") for each in inner)


# Avro

_AVRO_INTS = (pa.types.is_int8, pa.types.is_int16, pa.types.is_int32)
_AVRO_SIMPLE = {pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean"}
_AVRO_SIMPLE |= {pa.string(): "string", pa.binary(): "bytes"}


def derive_avro(columns: pa.Schema, name: str) -> str:
    """The schema of a record with the columns."""
    space, _, short = name.rpartition(".")
    document = _AvroTypes().record(columns, short, "")
    return json.dumps({**document, "namespace": space} if space else document)


class _AvroTypes:
    """Types of columns; each record among them has a name of its own."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def record(self, fields: Iterable[pa.Field], name: str, path: str) -> dict[str, Any]:
        own_name = self._unused(name)
        found = []
        for each in fields:
            at = f"{path}.{each.name}" if path else each.name
            _check_name(at, each.name, "Avro")
            if _is_variant(each):
                raise _no_type(at, "variant", "Avro")
            kind = self._type(each.type, f"{name}_{each.name}", at)
            found.append({"name": each.name, "type": ["null", kind], "default": None})
        return {"type": "record", "name": own_name, "fields": found}

    def _unused(self, name: str) -> str:
        """The name, with underscores behind it until it is a new one."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _type(self, kind: pa.DataType, name: str, path: str) -> Any:
        if any(is_kind(kind) for is_kind in _AVRO_INTS):
            return "int"
        if kind in _AVRO_SIMPLE:
            return _AVRO_SIMPLE[kind]
        if pa.types.is_date32(kind):
            return {"type": "int", "logicalType": "date"}
        if pa.types.is_timestamp(kind):
            return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
        if pa.types.is_decimal128(kind):
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        if pa.types.is_list(kind):
            return {"type": "array", "items": ["null", self._type(kind.value_type, f"{name}_item", f"{path}[]")]}
        if pa.types.is_map(kind):
            value = ["null", self._type(kind.item_type, f"{name}_value", f"{path}[]")]
            if pa.types.is_string(kind.key_type):
                return {"type": "map", "values": value}
            key = self._type(kind.key_type, f"{name}_key", f"{path}[]")
            fields = [{"name": "key", "type": key}, {"name": "value", "type": value, "default": None}]
            entry = {"type": "record", "name": self._unused(f"{name}_entry"), "fields": fields}
            return {"type": "array", "items": entry}
        if pa.types.is_struct(kind):
            return self.record(kind, name, path)
        raise _no_type(path, kind, "Avro")


# JSON Schema


def derive_json_schema(columns: pa.Schema, name: str) -> str:
    """The schema of an object with the columns and no others, so that one may be added."""
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_json_object(columns, "")}
    return json.dumps(document, ensure_ascii=False)


def _json_object(fields: Iterable[pa.Field], path: str) -> dict[str, Any]:
    properties = {}
    for each in fields:
        at = f"{path}.{each.name}" if path else each.name
        if _is_variant(each):
            raise _no_type(at, "variant", "JSON Schema")
        properties[each.name] = _json_nullable(each.type, at)
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _json_nullable(kind: pa.DataType, path: str) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, *_json_types(kind, path)]}


def _json_types(kind: pa.DataType, path: str) -> list[dict[str, Any]]:
    if pa.types.is_integer(kind):
        return [{"type": "integer"}]
    if pa.types.is_floating(kind):
        return [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]
    if pa.types.is_boolean(kind):
        return [{"type": "boolean"}]
    if pa.types.is_string(kind):
        return [{"type": "string"}]
    if pa.types.is_binary(kind):
        return [{"type": "string", "contentEncoding": "base64"}]
    if pa.types.is_decimal128(kind):
        return [{"type": "string", "title": f"decimal({kind.precision},{kind.scale})", "pattern": _DECIMAL}]
    if pa.types.is_date32(kind):
        return [{"type": "string", "format": "date"}]
    if pa.types.is_timestamp(kind):
        return [{"type": "string", "format": "date-time"} if kind.tz else {"type": "string", "pattern": _LOCAL_TIME}]
    if pa.types.is_list(kind):
        return [{"type": "array", "items": _json_nullable(kind.value_type, f"{path}[]")}]
    if pa.types.is_map(kind):
        if pa.types.is_nested(kind.key_type):
            raise _no_type(path, kind, "JSON Schema")
        return [{"type": "object", "additionalProperties": _json_nullable(kind.item_type, f"{path}[]")}]
    if pa.types.is_struct(kind):
        return [_json_object(kind, path)]
    raise _no_type(path, kind, "JSON Schema")


# Protobuf

_OPTIONAL, _REPEATED, _MESSAGE = 1, 3, 11
_PROTOBUF = {pa.int8(): 5, pa.int16(): 5, pa.int32(): 5, pa.int64(): 3, pa.float32(): 2, pa.float64(): 1, pa.bool_(): 8}
_PROTOBUF |= {pa.string(): 9, pa.binary(): 12, pa.date32(): 9}


def derive_protobuf(columns: pa.Schema, name: str, latest: Any = None) -> Any:
    """The file (`FileDescriptorProto`) of a message with the columns.

    ``latest`` is the file of the subject's latest version: a column keeps the number that it has
    there, and the number of one that is gone is not given again."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    package, _, short = name.rpartition(".")
    file = FileDescriptorProto(name=f"{short}.proto", package=package, syntax="proto3")
    before = next((each for each in latest.message_type if each.name == short), None) if latest else None
    message = file.message_type.add(name=short)
    _Message(file, message, f".{name}", "").fill(columns, before)
    return file


class _Message:
    """A message of a file that is being made."""

    def __init__(self, file: Any, message: Any, full_name: str, path: str) -> None:
        self._file, self._message, self._full_name, self._path = file, message, full_name, path

    def fill(self, fields: Iterable[pa.Field], before: Any) -> None:
        """Add the fields, with the numbers that they had before, and the next ones."""
        fields = list(fields)
        known = {each.name: each.number for each in before.field} if before else {}
        numbers = self._numbers(known, before)
        for each in fields:
            at = f"{self._path}.{each.name}" if self._path else each.name
            _check_name(at, each.name, "Protobuf")
            if _is_variant(each):
                raise _no_type(at, "variant", "Protobuf")
            number = known[each.name] if each.name in known else next(numbers)
            self._add(each.name, number, each.type, at, before)
        # Oneofs that stand for optional fields are declared behind all others; there are none.
        for each in self._message.field:
            if each.proto3_optional:
                each.oneof_index = len(self._message.oneof_decl)
                self._message.oneof_decl.add(name=f"_{each.name}")
        if before:
            self._reserve(before, {each.name for each in fields})

    def _numbers(self, known: Mapping[str, int], before: Any) -> Iterator[int]:
        reserved = [range(each.start, each.end) for each in before.reserved_range] if before else []
        number = max([0, *known.values(), *(each.stop - 1 for each in reserved)])
        while True:
            number += 1
            if number not in _RESERVED:
                yield number

    def _reserve(self, before: Any, names: set[str]) -> None:
        self._message.reserved_range.extend(before.reserved_range)
        self._message.reserved_name.extend(each for each in before.reserved_name if each not in names)
        for each in before.field:
            if each.name not in names:
                self._message.reserved_range.add(start=each.number, end=each.number + 1)
                self._message.reserved_name.append(each.name)

    def _add(self, name: str, number: int, kind: pa.DataType, path: str, before: Any) -> None:
        field = self._message.field.add(name=name, number=number, label=_OPTIONAL)
        if pa.types.is_map(kind):
            self._add_map(field, kind, path, before)
            return
        if pa.types.is_list(kind):
            field.label = _REPEATED
            kind = kind.value_type
        else:
            field.proto3_optional = True
        self._set_type(field, name, kind, path, before)

    def _add_map(self, field: Any, kind: pa.DataType, path: str, before: Any) -> None:
        if not any(is_kind(kind.key_type) for is_kind in _MAP_KEYS):
            raise _no_type(path, kind, "Protobuf")
        entry_name = f"{_camel(field.name)}Entry"
        entry = self._message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        inner = _Message(self._file, entry, f"{self._full_name}.{entry_name}", path)
        for number, (name, part) in enumerate((("key", kind.key_type), ("value", kind.item_type)), 1):
            # Types of values stand beside the entry, as protoc does it.
            target = entry.field.add(name=name, number=number, label=_OPTIONAL)
            (inner if name == "key" else self)._set_type(target, field.name, part, f"{path}[]", before)
        field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f"{self._full_name}.{entry_name}"

    def _set_type(self, field: Any, name: str, kind: pa.DataType, path: str, before: Any) -> None:
        if kind in _PROTOBUF:
            field.type = _PROTOBUF[kind]
        elif pa.types.is_decimal128(kind) or (pa.types.is_timestamp(kind) and not kind.tz):
            field.type = _PROTOBUF[pa.string()]
        elif pa.types.is_timestamp(kind):
            field.type, field.type_name = _MESSAGE, ".google.protobuf.Timestamp"
            if _TIMESTAMP not in self._file.dependency:
                self._file.dependency.append(_TIMESTAMP)
        elif pa.types.is_struct(kind):
            type_name = _camel(name)
            field.type, field.type_name = _MESSAGE, f"{self._full_name}.{type_name}"
            nested = self._message.nested_type.add(name=type_name)
            was = next((each for each in before.nested_type if each.name == type_name), None) if before else None
            _Message(self._file, nested, field.type_name, path).fill(kind, was)
        else:
            raise _no_type(path, kind, "Protobuf")


def _camel(name: str) -> str:
    """The name of a field as that of a type, as protoc makes it for maps."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "_"
