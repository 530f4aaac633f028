"""Rows as values of Avro and Protobuf, in the schema of a topic: a plan is made of columns and
schema, and refuses what would lose something before the first row; the rest is looked at in each.

A value is never rounded, cut or dropped. A column must stand in the schema. Its type must hold all
values of the column's; where only some values fit (milliseconds, an enum, a field that must not be
null), one that does not ends the flow, with its column.

Kafka has no counterpart; Confluent's converters of Connect have AvroData and ProtobufData.
"""

import datetime
import io
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.formats.derived_schemas import UnwritableColumnError

__all__ = ["UnwritableRowError", "avro_encoder", "encoded_rows", "json_checker", "protobuf_encoder"]

Convert = Callable[[Any], Any]
EncodeRow = Callable[[dict[str, Any]], bytes]
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  # of times without a zone
_MICROS = 1_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of the years 1 to 9999, which are those of Protobuf's Timestamp."""
_TIMES = ("date", "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


class UnwritableRowError(BarnabasError):
    """A row does not fit the schema of its topic."""


def encoded_rows(rows: pa.StructArray, encode: EncodeRow, header: bytes) -> pa.Array:
    """The values of rows, each behind the bytes that name its schema. Raises
    `UnwritableRowError`."""
    numbers = rows.cast(_with_numbers(rows.type))
    return pa.array([header + encode(row) for row in numbers.to_pylist()], pa.binary())


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers in the place of times: Python's end before Spark's."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _with_numbers(each.type)) for each in kind])
    return kind


def _same(value: Any) -> Any:
    return value


def _mismatch(path: str, kind: pa.DataType, there: str) -> UnwritableColumnError:
    return UnwritableColumnError(f"column {path} is of the type {kind}, and in the schema {there}: cast the column")


def _local_text(path: str) -> Convert:
    """Microseconds as a time without a zone."""

    def convert(value: int) -> str:
        try:
            return (_EPOCH + datetime.timedelta(microseconds=value)).isoformat(timespec="microseconds")
        except OverflowError:
            raise UnwritableRowError(f"column {path} is a time beyond the years 1 to 9999") from None

    return convert


def _date_text(path: str) -> Convert:
    def convert(value: int) -> str:
        try:
            return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()
        except OverflowError:
            raise UnwritableRowError(f"column {path} is a date beyond the years 1 to 9999") from None

    return convert


# Avro


def avro_encoder(schema: Any, columns: pa.DataType) -> EncodeRow:
    """What writes rows of these columns in a schema, as its JSON has it. Raises
    `UnwritableColumnError`."""
    from fastavro import parse_schema, schemaless_writer

    parsed = parse_schema(schema)
    convert = _AvroPlan().of(parsed, columns, "")
    written = parse_schema(_without_times(parsed))

    def encode(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        value = convert(row)
        try:
            schemaless_writer(out, written, value, strict_allow_default=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise UnwritableRowError(f"a row does not fit its Avro schema: {error}") from error
        return out.getvalue()

    return encode


def _without_times(schema: Any) -> Any:
    """A parsed schema whose times are plain numbers."""
    if isinstance(schema, list):
        return [_without_times(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: value for name, value in schema.items() if not name.startswith("__")}
    if found.get("logicalType") in _TIMES:
        del found["logicalType"]
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _without_times(found[name])
    if isinstance(found.get("fields"), list):
        found["fields"] = [{**each, "type": _without_times(each["type"])} for each in found["fields"]]
    return found


class _AvroPlan:
    """How values of columns become values of a parsed schema."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, kind: pa.DataType, path: str) -> Convert:
        """Raises `UnwritableColumnError`."""
        if isinstance(schema, list):
            some = [each for each in schema if each != "null"]
            if len(some) != 1:
                raise UnwritableColumnError(f"column {path}: a union of several types in the schema is not supported")
            convert = self.of(some[0], kind, path)
            if len(some) == len(schema):
                return convert
            return lambda value: None if value is None else convert(value)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        self._named.setdefault(schema.get("name", ""), schema)
        convert = self._value(schema, kind, path)

        def required(value: Any) -> Any:
            if value is None:
                raise UnwritableRowError(f"column {path} is null, which its schema does not allow")
            return convert(value)

        return required

    def _value(self, schema: Any, kind: pa.DataType, path: str) -> Convert:
        there, logical = schema["type"], schema.get("logicalType")
        if isinstance(there, dict | list):
            return self.of(there, kind, path)
        if there in ("record", "error") and pa.types.is_struct(kind):
            return self._record(schema, kind, path)
        if there == "array" and pa.types.is_list(kind):
            item = self.of(schema["items"], kind.value_type, f"{path}[]")
            return lambda value: [item(each) for each in value]
        if there == "map" and pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
            inner = self.of(schema["values"], kind.item_type, f"{path}[]")
            return lambda value: {key: inner(each) for key, each in value}
        if there == "array" and pa.types.is_map(kind):
            entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
            pair = self.of(schema["items"], entry, f"{path}[]")
            return lambda value: [pair({"key": key, "value": each}) for key, each in value]
        found = _avro_leaf(schema, there, logical, kind, path)
        if found is None:
            raise _mismatch(path, kind, f"{there}, {logical}" if logical else str(there))
        return found

    def _record(self, schema: Any, kind: pa.DataType, path: str) -> Convert:
        fields = {each["name"]: each for each in schema["fields"]}
        columns = {each.name: each.type for each in kind}
        where = f"{path}." if path else ""
        if lacking := [f"{where}{name}" for name in columns if name not in fields]:
            raise UnwritableColumnError(f"the schema has no field for the columns {', '.join(lacking)}")
        if needed := [name for name, each in fields.items() if name not in columns and "default" not in each]:
            raise UnwritableColumnError(
                f"the schema needs {', '.join(needed)}, and there is no such column in {path or 'the rows'}"
            )
        parts = {name: self.of(fields[name]["type"], inner, f"{where}{name}") for name, inner in columns.items()}
        return lambda value: {name: convert(value[name]) for name, convert in parts.items()}


def _avro_leaf(schema: Any, there: str, logical: str | None, kind: pa.DataType, path: str) -> Convert | None:
    """None where the types do not fit."""
    types = pa.types
    if logical == "decimal":
        return _avro_decimal(schema, kind)
    if types.is_timestamp(kind):
        return _avro_time(logical or "", kind, path)
    if types.is_date32(kind):
        return _same if (there, logical) == ("int", "date") else None
    if logical in _TIMES:
        return None
    if there == "enum" and types.is_string(kind):
        symbols = frozenset(schema["symbols"])
        return lambda value: _one_of(symbols, value, path)
    if there == "fixed" and types.is_binary(kind):
        return lambda value: _of_size(schema["size"], value, path)
    fits = {
        "boolean": types.is_boolean(kind),
        "int": types.is_integer(kind) and kind.bit_width <= 32,
        "long": types.is_integer(kind),
        "float": types.is_float32(kind),
        "double": types.is_floating(kind) or (types.is_integer(kind) and kind.bit_width <= 32),
        "string": types.is_string(kind) and logical in (None, "uuid"),
        "bytes": types.is_binary(kind),
    }
    if not fits.get(there):
        return None
    return float if there == "double" and types.is_integer(kind) else _same


def _avro_decimal(schema: Any, kind: pa.DataType) -> Convert | None:
    scale = schema.get("scale", 0)
    if not pa.types.is_decimal128(kind) or scale < kind.scale:
        return None
    return _same if schema["precision"] - scale >= kind.precision - kind.scale else None


def _avro_time(logical: str, kind: pa.DataType, path: str) -> Convert | None:
    is_local, unit = logical.startswith("local-"), logical.removeprefix("local-")
    if is_local == bool(kind.tz):
        return None
    if unit == "timestamp-micros":
        return _same
    if unit != "timestamp-millis":
        return None

    def millis(value: int) -> int:
        whole, rest = divmod(value, 1000)
        if rest:
            raise UnwritableRowError(
                f"column {path} has parts of a millisecond, and its schema has {logical}: date_trunc('MILLISECOND', {path})"
            )
        return whole

    return millis


def _one_of(symbols: frozenset[str], value: str, path: str) -> str:
    if value not in symbols:
        raise UnwritableRowError(f"column {path} is {value!r:.100}, which is no symbol of its enum")
    return value


def _of_size(size: int, value: bytes, path: str) -> bytes:
    if len(value) != size:
        raise UnwritableRowError(f"column {path} has {len(value)} bytes, and its schema {size}")
    return value


# Protobuf

_DOUBLE, _FLOAT, _BOOL, _STRING, _MESSAGE, _BYTES, _ENUM = 1, 2, 8, 9, 11, 12, 14
_INT32, _INT64 = (5, 15, 17), (3, 16, 18)
Set = Callable[[Any, Any], None]


def protobuf_encoder(message_class: Any, columns: pa.DataType) -> EncodeRow:
    """What writes rows of these columns as a message. Raises `UnwritableColumnError`."""
    fill = _message_plan(message_class.DESCRIPTOR, columns, "")

    def encode(row: dict[str, Any]) -> bytes:
        message = message_class()
        try:
            fill(message, row)
            # The same row is the same bytes, whatever the order of its maps.
            data: bytes = message.SerializeToString(deterministic=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise UnwritableRowError(f"a row does not fit its Protobuf message: {error}") from error
        return data

    return encode


def _message_plan(descriptor: Any, kind: pa.DataType, path: str) -> Callable[[Any, Mapping[str, Any]], None]:
    fields = descriptor.fields_by_name
    where = f"{path}." if path else ""
    columns = {each.name: each.type for each in kind}
    if lacking := [f"{where}{name}" for name in columns if name not in fields]:
        raise UnwritableColumnError(f"the message {descriptor.full_name} has no field for {', '.join(lacking)}")
    if needed := [each.name for each in descriptor.fields if each.is_required and each.name not in columns]:
        raise UnwritableColumnError(f"the message {descriptor.full_name} needs {', '.join(needed)}")
    parts = [(name, _field_plan(fields[name], inner, f"{where}{name}")) for name, inner in columns.items()]

    def fill(message: Any, values: Mapping[str, Any]) -> None:
        for name, put in parts:
            put(message, values[name])

    return fill


def _field_plan(field: Any, kind: pa.DataType, path: str) -> Set:
    """What puts a column's value into a message."""
    name = field.name
    if _is_map(field):
        return _map_plan(field, kind, path)
    if field.is_repeated:
        if not pa.types.is_list(kind):
            raise _mismatch(path, kind, "repeated")
        return _repeated_plan(field, kind, path)
    convert, fill = _part_plan(field, kind, path)

    def put(message: Any, value: Any) -> None:
        if value is None:
            if not field.has_presence:
                raise UnwritableRowError(f"column {path} is null, and its field has no null: declare it optional")
        elif fill:
            inner = getattr(message, name)
            inner.SetInParent()
            fill(inner, value)
        else:
            setattr(message, name, convert(value))

    return put


def _repeated_plan(field: Any, kind: pa.DataType, path: str) -> Set:
    name = field.name
    convert, fill = _part_plan(field, kind.value_type, f"{path}[]")

    def put(message: Any, value: Any) -> None:
        if value is None or None in value:
            raise UnwritableRowError(
                f"column {path} is null or has a null in it, which Protobuf's lists do not have: coalesce({path}, array()), "
                f"array_compact({path})"
            )
        items = getattr(message, name)
        for each in value:
            if fill:
                fill(items.add(), each)
            else:
                items.append(convert(each))

    return put


def _map_plan(field: Any, kind: pa.DataType, path: str) -> Set:
    if not pa.types.is_map(kind):
        raise _mismatch(path, kind, "a map")
    name = field.name
    key_field, value_field = (field.message_type.fields_by_name[each] for each in ("key", "value"))
    convert_key, _ = _part_plan(key_field, kind.key_type, f"{path}[]")
    convert, fill = _part_plan(value_field, kind.item_type, f"{path}[]")

    def put(message: Any, value: Any) -> None:
        if value is None or any(each is None for _, each in value):
            raise UnwritableRowError(
                f"column {path} is null or has a null in it, which Protobuf's maps do not have: coalesce({path}, map()), "
                f"map_filter({path}, (k, v) -> v is not null)"
            )
        items = getattr(message, name)
        for key, each in value:
            if fill:
                inner = items[convert_key(key)]
                inner.SetInParent()
                fill(inner, each)
            else:
                items[convert_key(key)] = convert(each)

    return put


def _part_plan(field: Any, kind: pa.DataType, path: str) -> tuple[Convert, Callable[[Any, Any], None] | None]:
    """What makes a value of a field's type; and instead, for a message, what fills one."""
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp" and pa.types.is_timestamp(kind) and kind.tz:
            return _same, _timestamp_filler(path)
        if pa.types.is_struct(kind):
            return _same, _message_plan(field.message_type, kind, path)
        raise _mismatch(path, kind, f"the message {field.message_type.full_name}")
    found = _protobuf_leaf(field, kind, path)
    if found is None:
        raise _mismatch(path, kind, "another type of Protobuf")
    return found, None


def _protobuf_leaf(field: Any, kind: pa.DataType, path: str) -> Convert | None:
    there, types = field.type, pa.types
    if there == _STRING:
        if types.is_timestamp(kind):
            return None if kind.tz else _local_text(path)
        if types.is_decimal128(kind):
            return lambda value: format(value, "f")
        if types.is_date32(kind):
            return _date_text(path)
        return _same if types.is_string(kind) else None
    if types.is_date32(kind) or types.is_timestamp(kind):
        return None
    if there == _ENUM and types.is_string(kind):
        numbers = {each.name: each.number for each in field.enum_type.values}
        symbols = frozenset(numbers)
        return lambda value: numbers[_one_of(symbols, value, path)]
    is_small = types.is_integer(kind) and kind.bit_width <= 32
    fits = (
        (there == _BOOL and types.is_boolean(kind))
        or (there in _INT32 and is_small)
        or (there in _INT64 and types.is_integer(kind))
        or (there == _FLOAT and types.is_float32(kind))
        or (there == _DOUBLE and (types.is_floating(kind) or is_small))
        or (there == _BYTES and types.is_binary(kind))
    )
    return _same if fits else None


def _timestamp_filler(path: str) -> Callable[[Any, int], None]:
    def fill(message: Any, value: int) -> None:
        seconds, micros = divmod(value, _MICROS)
        if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
            raise UnwritableRowError(
                f"column {path} is a time beyond the years 1 to 9999, which Protobuf does not have"
            )
        message.seconds, message.nanos = seconds, micros * 1000

    return fill


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


# JSON Schema


def json_checker(schema: Any) -> EncodeRow:
    """What checks JSON documents against a given schema, and gives them back as they are."""
    from jsonschema import ValidationError
    from referencing import Registry

    from barnabas.client.registry.json_validators import JsonValidator

    # A $ref is within the schema: no other server is asked.
    validator = JsonValidator(schema, Registry())

    def check(row: dict[str, Any]) -> bytes:
        import json

        text = row["document"]
        try:
            validator.validate(json.loads(text))
        except ValidationError as error:
            why = f"{error.json_path}: {error.message:.300}"
            raise UnwritableRowError(f"a row does not fit its JSON schema: {why}") from error
        return bytes(text.encode())

    return check
