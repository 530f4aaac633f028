"""Schemas of Avro and Protobuf, from files and from a Confluent-compatible registry: as
columns, and as decoders. Of JSON Schema only whether values may be read without the schema.

How a value that belongs to a registry begins: `barnabas.client.registry.wire_format`. A schema is
asked for once and kept: an id never changes its meaning. So a flow runs on when producers begin to
write with a newer schema; columns that a record's schema lacks are null.
"""

import base64
import io
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.json_text import parse_json
from barnabas.client.errors import ClientError, ConfigurationError, ConnectError
from barnabas.client.registry.avro_bounds import avro_bounds
from barnabas.client.registry.protobuf_files import imported_files
from barnabas.client.registry.registry import SchemaRegistry, UnknownSchemaError, UnsupportedSchemaError
from barnabas.client.registry.rules import rules_problem
from barnabas.client.registry.wire_format import split_message_indexes, split_schema_id

__all__ = [
    "Decode",
    "DecodingError",
    "SchemaLookupError",
    "ValueDecoder",
    "avro_columns",
    "load_avro",
    "load_avro_document",
    "load_protobuf",
    "open_decoder",
    "open_json_refusals",
    "protobuf_class",
    "protobuf_columns",
]

Decode = Callable[[bytes], dict[str, Any]]
_PAUSES_S = (0.2, 0.4, 0.8)
_TIMEOUT_S = 10.0
_UNKNOWN_S = 10.0
"""How long an id that the registry does not have is not asked for again: a topic may
be full of them."""
_MOST_UNKNOWN = 10_000
_MOST_MISSES = 20
"""Ids that the registry does not have, before it is not asked for more of them for some seconds."""
_MOST_OFTEN = 20
"""Ids of a batch that are asked for nevertheless, because several of its records have them: damaged
ids are of one record each."""


class DecodingError(BarnabasError):
    """A value does not fit its schema; the message is the reason of a bad row."""


class SchemaLookupError(BarnabasError):
    """The registry did not answer, or refuses to."""


@dataclass(frozen=True, slots=True)
class ValueDecoder:
    """Makes a dictionary of a value."""

    decode: Decode
    expect: Callable[[Sequence[bytes | None]], None] = lambda _: None
    """Takes the values that are to be decoded next, all of a batch; not needed, but it finds more
    schemas among damaged ids."""

    def __call__(self, value: bytes) -> dict[str, Any]:
        return self.decode(value)


class _Schemas:
    """Schemas of a registry by their ids, asked for again while it does not answer.

    A topic of damaged records, each with an id of its own, would be a request for each record. So a
    registry that lacks many ids is asked for no more of them for some seconds, but for those that
    several records of a batch have.
    """

    def __init__(self, address: str) -> None:
        self._registry = SchemaRegistry(address, timeout_s=_TIMEOUT_S)
        self._found: dict[tuple[int, str], _SchemaTexts] = {}
        self._unknown: dict[tuple[int, str], tuple[float, str]] = {}
        """Until when an id is not asked for, and why."""
        self._misses: deque[float] = deque(maxlen=_MOST_MISSES)
        """When the registry was last asked in vain."""
        self._batch: Sequence[bytes | None] = ()
        self._often: frozenset[int] | None = None
        """Ids of several records of the batch; None until they are counted."""

    def expect(self, values: Sequence[bytes | None]) -> None:
        """See `ValueDecoder.expect`."""
        self._batch, self._often = values, None

    def texts(self, schema_id: int, kind: str, *, form: str = "") -> "_SchemaTexts":
        """Raises `DecodingError` for an id that is unknown or of another kind, and for a schema
        with a rule that is not executed; `SchemaLookupError` if there is no answer."""
        found = self._ask(schema_id, form)
        if (other := found.kind or kind) != kind:
            raise DecodingError(f"the value's schema {schema_id} is one of {other}, not of {kind}")
        if found.problem:
            raise DecodingError(f"schema {schema_id}: {found.problem}")
        return found

    def _ask(self, schema_id: int, form: str) -> "_SchemaTexts":
        asked = (schema_id, form)
        if asked in self._found:
            return self._found[asked]
        until, reason = self._unknown.get(asked, (0.0, ""))
        if time.monotonic() < until:
            raise DecodingError(reason)
        if not self._may_ask(schema_id):
            raise DecodingError(
                f"the registry was not asked for schema {schema_id}, because it had none of {_MOST_MISSES} others within "
                f"{_UNKNOWN_S:.0f} s"
            )
        try:
            self._found[asked] = self._answer(schema_id, form)
        except DecodingError as error:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._misses.append(time.monotonic())
            self._unknown[asked] = (self._misses[-1] + _UNKNOWN_S, str(error))
            raise
        return self._found[asked]

    def _may_ask(self, schema_id: int) -> bool:
        if len(self._misses) < _MOST_MISSES or time.monotonic() >= self._misses[0] + _UNKNOWN_S:
            return True
        if self._often is None:
            starts = [value[:5] for value in self._batch if value and value[0] == 0 and len(value) >= 5]
            often = Counter(starts).most_common(_MOST_OFTEN)
            self._often = frozenset(split_schema_id(start)[0] for start, count in often if count > 1)
        return schema_id in self._often

    def _answer(self, schema_id: int, form: str) -> "_SchemaTexts":
        for pause_s in (*_PAUSES_S, None):
            try:
                found = self._registry.schema(schema_id, form=form)
                # JSON is read without its schema, and so without what that refers to.
                named = {} if found.get("schemaType") == "JSON" else self._references(schema_id, found, form)
            except UnknownSchemaError as error:
                raise DecodingError(f"the registry has no schema {schema_id}") from error
            except UnsupportedSchemaError as error:
                raise DecodingError(str(error)) from error
            except ConnectError as error:
                if pause_s is None:
                    raise SchemaLookupError(f"no schema {schema_id}: {error}") from error
                time.sleep(pause_s)
            except ClientError as error:
                raise SchemaLookupError(str(error)) from error
            else:
                problem = rules_problem(found.get("ruleSet"), writes=False)
                return _SchemaTexts(str(found["schema"]), named, found.get("schemaType") or "", problem)
        raise AssertionError

    def _references(self, schema_id: int, found: Mapping[str, Any], form: str) -> Mapping[str, str]:
        try:
            return self._registry.references(f"schema {schema_id}", found, form=form)
        except UnknownSchemaError as error:
            raise DecodingError(f"schema {schema_id} refers to one that the registry does not have: {error}") from error


@dataclass(frozen=True, slots=True)
class _SchemaTexts:
    """A schema of the registry."""

    text: str
    named: Mapping[str, str]
    """The texts of those that it refers to, by name, those that others refer to first."""
    kind: str
    """AVRO, JSON, PROTOBUF; "" where the registry does not say."""
    problem: str
    """Why its values cannot be read, for all their bytes; "" if they can."""


def open_decoder(kind: str, schema_file: str | None, registry: str | None, message: str | None) -> ValueDecoder:
    """What makes a dictionary of a value."""
    own = load_avro(schema_file) if kind == "avro" and schema_file else None
    if registry:
        schemas = _Schemas(registry)
        of_registry = _avro_of_registry(schemas, own) if kind == "avro" else _protobuf_of_registry(schemas)
        return ValueDecoder(of_registry, schemas.expect)
    return ValueDecoder(_avro(own) if kind == "avro" else _protobuf(load_protobuf(schema_file or "", message or "")))


def open_json_refusals(registry: str) -> Callable[[Sequence[bytes | None]], list[str | None]]:
    """What says why values of JSON are not read for their schemas, such as encrypted ones; None for
    one that is read, or that has no id, which is not looked at here.

    It takes the values of a batch, of which the first five bytes are enough. Raises
    `SchemaLookupError` if there is no answer.
    """
    schemas = _Schemas(registry)

    def refusal(start: bytes) -> str | None:
        try:
            schemas.texts(split_schema_id(start)[0], "JSON")
        except DecodingError as error:
            return str(error)
        return None

    def refusals(values: Sequence[bytes | None]) -> list[str | None]:
        starts = [value[:5] if value and value[0] == 0 and len(value) >= 5 else None for value in values]
        schemas.expect(starts)
        found = {start: refusal(start) for start in dict.fromkeys(starts) if start is not None}
        schemas.expect(())
        return [found.get(start) if start is not None else None for start in starts]

    return refusals


def _split(value: bytes) -> tuple[int, bytes]:
    try:
        return split_schema_id(value)
    except ClientError as error:
        raise DecodingError("the value does not begin with a schema's id, as values of a registry do") from error


# Avro


def load_avro_document(path: str) -> Any:
    """The schema of a file .avsc, as its JSON has it."""
    load_avro(path)
    return parse_json(Path(path).read_text(encoding="utf-8"))


def load_avro(path: str) -> Any:
    """The parsed schema of a file .avsc."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        document = parse_json(Path(path).read_text(encoding="utf-8"))
        avro_bounds(document)
        return parse_schema(document)
    except (SchemaParseException, UnknownType) as error:
        raise ValueError(f"{path} is no Avro schema: {error}") from error


def _avro(schema: Any) -> Decode:
    from fastavro import schemaless_reader

    bounds = avro_bounds(schema)
    return lambda value: _read_avro(schemaless_reader, value, schema, None, bounds)


def _avro_of_registry(schemas: _Schemas, own: Any) -> Decode:
    from fastavro import schemaless_reader
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    @cache
    def writer_schema(schema_id: int) -> tuple[Any, Callable[[bytes], None] | None]:
        try:
            found = schemas.texts(schema_id, "AVRO")
            document, named = parse_json(found.text), [parse_json(each) for each in found.named.values()]
            bounds = avro_bounds(document, named)
            known: dict[str, Any] = {}
            for each in named:
                parse_schema(each, known)
            return parse_schema(document, known), bounds
        except (ValueError, TypeError, KeyError, AttributeError, SchemaParseException, UnknownType) as error:
            raise DecodingError(f"the value's schema {schema_id} is no Avro schema: {error}") from error

    def decode(value: bytes) -> dict[str, Any]:
        schema_id, rest = _split(value)
        schema, bounds = writer_schema(schema_id)
        return _read_avro(schemaless_reader, rest, schema, own, bounds)

    return decode


def _read_avro(
    read: Any, value: bytes, written_with: Any, own: Any, bounds: Callable[[bytes], None] | None
) -> dict[str, Any]:
    stream = io.BytesIO(value)
    try:
        if bounds:
            bounds(value)
        record = read(stream, written_with, own)
    except Exception as error:  # damaged bytes end in errors of many kinds
        raise DecodingError(f"the value does not fit its Avro schema: {str(error) or type(error).__name__}") from error
    if not isinstance(record, dict):
        raise DecodingError("the Avro schema is not that of a record")
    if left := len(value) - stream.tell():
        raise DecodingError(f"the value does not fit its Avro schema: {left} bytes are left")
    return record


def avro_columns(schema: Any) -> dict[str, str]:
    """Columns with Spark's types for a schema of a record."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("the schema is not that of a record")
    return {each["name"]: _avro_type(each["type"], {schema["name"]: schema}) for each in schema["fields"]}


_AVRO = {"int": "int", "long": "bigint", "float": "float", "double": "double", "boolean": "boolean", "string": "string"}
_AVRO_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
    "time-millis": "string",
    "time-micros": "string",
}


def _avro_type(schema: Any, names: dict[str, Any]) -> str:
    if isinstance(schema, list):
        some = [each for each in schema if each != "null"]
        if len(some) != 1:
            raise ValueError("a union of several types cannot be one column; declare `columns` without it")
        return _avro_type(some[0], names)
    if isinstance(schema, str):
        if schema in names:
            return _avro_type(names[schema], names)
        return _AVRO.get(schema, "binary")
    kind = schema["type"]
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if schema.get("logicalType") in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[schema["logicalType"]]
    if kind == "array":
        return f"array<{_avro_type(schema['items'], names)}>"
    if kind == "map":
        return f"map<string,{_avro_type(schema['values'], names)}>"
    if kind == "enum":
        names[schema["name"]] = "string"
        return "string"
    if kind == "record":
        inner = [f"`{each['name']}`:{_avro_type(each['type'], names)}" for each in schema["fields"]]
        names[schema["name"]] = schema
        return f"struct<{','.join(inner)}>"
    return _avro_type(kind, names)


# Protobuf


def load_protobuf(path: str, message: str) -> Any:
    """The class of a message from a descriptor set, which
    ``protoc --include_imports --descriptor_set_out`` writes."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    files = FileDescriptorSet()
    try:
        files.ParseFromString(Path(path).read_bytes())
    except DecodeError as error:
        raise ValueError(
            f"{path} is no descriptor set: make one with protoc --include_imports --descriptor_set_out"
        ) from error
    return _message_class(list(files.file), message)


def protobuf_class(text: str, message: str) -> Any:
    """The class of a message from its file in base64, which imports Google's files at most."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    file.ParseFromString(base64.b64decode(text))
    return _message_class([*imported_files(file, {}), file], message)


def _message_class(files: list[Any], message: str) -> Any:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    try:
        for each in files:
            pool.Add(each)
    except TypeError as error:  # two names that are one to Protobuf, for example
        raise ValueError(f"the file is no valid one: {error}") from error
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError as error:
        names = [f"{each.package}.{inner.name}".lstrip(".") for each in files for inner in each.message_type]
        raise ValueError(f"has no message {message}; it has {', '.join(names)}") from error


def _protobuf(message_class: Any) -> Decode:
    from google.protobuf.message import DecodeError

    def decode(value: bytes) -> dict[str, Any]:
        found = message_class()
        try:
            found.ParseFromString(value)
        except DecodeError as error:
            raise DecodingError(f"the value does not fit its Protobuf message: {error}") from error
        return _message_values(found)

    return decode


def _protobuf_of_registry(schemas: _Schemas) -> Decode:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    @cache
    def decoder(schema_id: int, indexes: tuple[int, ...]) -> Decode:
        file = FileDescriptorProto()
        found = schemas.texts(schema_id, "PROTOBUF", form="serialized")
        try:
            file.ParseFromString(base64.b64decode(found.text))
            inner = file.message_type[indexes[0]]
            names = [inner.name]
            for index in indexes[1:]:
                inner = inner.nested_type[index]
                names.append(inner.name)
            imported = imported_files(file, found.named)
            return _protobuf(_message_class([*imported, file], ".".join(filter(None, [file.package, *names]))))
        except (ConfigurationError, ValueError, TypeError, DecodeError) as error:
            # It is no base64, no file, or imports what is not there.
            raise DecodingError(
                f"the value's schema {schema_id} is no Protobuf file that can be used: {error}"
            ) from error

    def decode(value: bytes) -> dict[str, Any]:
        schema_id, rest = _split(value)
        try:
            indexes, message = split_message_indexes(rest)
            found = decoder(schema_id, indexes)
        except (ClientError, IndexError) as error:
            raise DecodingError("the value names no message of its schema") from error
        return found(message)

    return decode


def _message_values(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        if each.has_presence and not message.HasField(each.name):
            values[each.name] = None
            continue
        value = getattr(message, each.name)
        if _is_map(each):
            inner = each.message_type.fields_by_name["value"]
            values[each.name] = {key: _scalar(inner, value[key]) for key in value}
        elif each.is_repeated:
            values[each.name] = [_scalar(each, item) for item in value]
        else:
            values[each.name] = _scalar(each, value)
    return values


def _scalar(descriptor: Any, value: Any) -> Any:
    if descriptor.message_type is not None:
        if descriptor.message_type.full_name == "google.protobuf.Timestamp":
            return value.ToDatetime(tzinfo=_utc())
        return _message_values(value)
    if descriptor.enum_type is not None:
        known = descriptor.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    return value


def _utc() -> Any:
    import datetime

    return datetime.UTC


def _is_map(descriptor: Any) -> bool:
    kind = descriptor.message_type
    return kind is not None and kind.GetOptions().map_entry


_PROTOBUF = {1: "double", 2: "float", 3: "bigint", 4: "decimal(20,0)", 5: "int", 6: "decimal(20,0)", 7: "bigint"}
_PROTOBUF |= {
    8: "boolean",
    9: "string",
    12: "binary",
    13: "bigint",
    14: "string",
    15: "int",
    16: "bigint",
    17: "int",
    18: "bigint",
}


def protobuf_columns(message_class: Any) -> dict[str, str]:
    """Columns with Spark's types for the fields of a message."""
    return {each.name: _protobuf_type(each) for each in message_class.DESCRIPTOR.fields}


def _protobuf_type(descriptor: Any) -> str:
    if _is_map(descriptor):
        key, value = (descriptor.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{_protobuf_type(key)},{_protobuf_type(value)}>"
    kind = _PROTOBUF.get(descriptor.type, "binary")
    if descriptor.message_type is not None:
        if descriptor.message_type.full_name == "google.protobuf.Timestamp":
            kind = "timestamp"
        else:
            inner = [f"`{each.name}`:{_protobuf_type(each)}" for each in descriptor.message_type.fields]
            kind = f"struct<{','.join(inner)}>"
    return f"array<{kind}>" if descriptor.is_repeated else kind
