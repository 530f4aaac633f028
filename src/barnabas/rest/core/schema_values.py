"""Values with a schema: between JSON, as it stands in requests and answers, and the bytes of
Confluent's serializers behind the schema's id.

Avro has the JSON of Avro's specification: a value of a union other than null is an object with the
name of its branch. Protobuf has protobuf's own JSON. The libraries turn bytes to values, and need
nothing of the world.

In Confluent's proxy: AvroConverter, JsonSchemaConverter and ProtobufConverter.
"""

import base64
import io
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import fastavro
import jsonschema
import referencing
import referencing.jsonschema
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.message import Message

from barnabas.base.json_text import parse_json
from barnabas.client.registry.avro_bounds import avro_bounds
from barnabas.client.registry.json_validators import JsonValidator
from barnabas.client.registry.wire_format import split_message_indexes
from barnabas.rest.core.avro_json import avro_to_json, json_to_avro
from barnabas.rest.core.embedded import EmbeddedFormat
from barnabas.rest.core.json_stream import json_bytes

__all__ = ["SchemaText", "ValueCodec", "record_name", "value_codec"]

_VALUE = "value"
_FIRST_MESSAGE = b"\0"
"""The indexes of a file's first message, as Confluent's serializers write them."""
_GOOGLES = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2),
        *(timestamp_pb2, type_pb2, wrappers_pb2),
    )
}
"""The files that come with protobuf, which no registry needs to have."""


class SchemaText(NamedTuple):
    """A schema, and all that it refers to by name, those that others refer to first."""

    form: EmbeddedFormat
    text: str
    """A Protobuf file is serialized, in base64."""
    references: Mapping[str, str] = MappingProxyType({})


class ValueCodec(NamedTuple):
    """Raises ValueError, whose text says what is wrong with a value."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def value_codec(schema: SchemaText) -> ValueCodec:
    """What reads and writes the values of a schema. Raises ValueError for one that is wrong."""
    made = {
        EmbeddedFormat.AVRO: _avro,
        EmbeddedFormat.JSONSCHEMA: _json_schema,
        EmbeddedFormat.PROTOBUF: _protobuf,
    }[schema.form]
    try:
        codec = made(schema)
    except Exception as error:  # the libraries raise many kinds
        raise ValueError(f"the schema cannot be used: {_reason(error)}") from error
    return ValueCodec(_checked(codec.encode), _checked(codec.decode))


def _checked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        try:
            return function(value)
        except Exception as error:  # the libraries raise many kinds
            raise ValueError(_reason(error)) from error

    return call


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message = getattr(error, "message", None)
    return f"{message if isinstance(message, str) else error}"[:500] or type(error).__name__


def record_name(schema: SchemaText) -> str | None:
    """The name of what a schema describes, for subjects that have it; None for none.

    A Protobuf file's is the name of its first message."""
    if schema.form is EmbeddedFormat.PROTOBUF:
        file = _file(schema.text)
        first = file.message_type[0].name if file.message_type else None
        return f"{file.package}.{first}" if first and file.package else first
    document = parse_json(schema.text)
    if not isinstance(document, dict):
        return None
    if schema.form is EmbeddedFormat.JSONSCHEMA:
        title = document.get("title")
        return title if isinstance(title, str) else None
    name, namespace = document.get("name"), document.get("namespace")
    if not isinstance(name, str):
        return None
    return name if "." in name or not namespace else f"{namespace}.{name}"


# Avro


def _avro(schema: SchemaText) -> ValueCodec:
    named: dict[str, Any] = {}
    references = [_without_logical_types(parse_json(text)) for text in schema.references.values()]
    for reference in references:
        fastavro.parse_schema(reference, named_schemas=named)
    document = _without_logical_types(parse_json(schema.text))
    bounds = avro_bounds(document, references)
    # A record has no bytes of its own, and fastavro keeps what its fields refer to.
    root = {"type": "record", "name": "_root", "fields": [{"name": _VALUE, "type": document}]}
    parsed: Any = fastavro.parse_schema(root, named_schemas=named)
    own = parsed["fields"][0]["type"]

    def encode(data: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {_VALUE: json_to_avro(own, data, named)}, strict=True)
        return out.getvalue()

    def decode(data: bytes) -> Any:
        if bounds:
            bounds(data)  # blocks that say to be larger than their bytes
        return avro_to_json(own, data, named)

    return ValueCodec(encode, decode)


def _without_logical_types(schema: Any) -> Any:
    """The schema of the same bytes.

    Avro's JSON has a value as its type has it, whatever it stands for: a decimal as bytes, a time
    as a number. fastavro would make a decimal or a time of it, which does not hold all of them. A
    primitive type is a name only, by which a branch of a union is found."""
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind in ("record", "error"):
        fields = schema.get("fields")
        if not isinstance(fields, list):
            return schema
        return {
            **schema,
            "fields": [
                {**each, "type": _without_logical_types(each["type"])}
                if isinstance(each, dict) and "type" in each
                else each
                for each in fields
            ],
        }
    if kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        return {**schema, part: _without_logical_types(schema[part])} if part in schema else schema
    if kind in ("enum", "fixed"):
        return {name: value for name, value in schema.items() if name != "logicalType"}
    return _without_logical_types(kind)


# JSON Schema


def _json_schema(schema: SchemaText) -> ValueCodec:
    document = parse_json(schema.text)
    # Nothing is fetched: a reference that is not in the registry is an error of the value.
    known = referencing.Registry().with_resources(_json_resources(schema))
    validator = JsonValidator(document, known, jsonschema.Draft7Validator)

    def encode(data: Any) -> bytes:
        validator.validate(data)
        return json_bytes(data)

    return ValueCodec(encode, parse_json)


def _json_resources(schema: SchemaText) -> list[tuple[str, Any]]:
    draft = referencing.jsonschema.DRAFT7
    return [
        (name, referencing.Resource.from_contents(parse_json(text), default_specification=draft))
        for name, text in schema.references.items()
    ]


# Protobuf


def _file(text: str) -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto()
    made.ParseFromString(base64.b64decode(text, validate=True))
    return made


def _protobuf(schema: SchemaText) -> ValueCodec:
    pool = descriptor_pool.DescriptorPool()
    _add_files(schema, pool)
    file = _file(schema.text)
    name = file.name or "schema.proto"

    def message(indexes: tuple[int, ...]) -> type[Message]:
        descriptor: Any = pool.FindFileByName(name)
        for depth, index in enumerate(indexes):
            siblings = descriptor.nested_types if depth else list(descriptor.message_types_by_name.values())
            descriptor = siblings[index]
        made: type[Message] = message_factory.GetMessageClass(descriptor)
        return made

    first = message((0,))

    def encode(data: Any) -> bytes:
        made = first()
        json_format.ParseDict(data, made, descriptor_pool=pool)
        return _FIRST_MESSAGE + bytes(made.SerializeToString(deterministic=True))

    def decode(data: bytes) -> Any:
        indexes, rest = split_message_indexes(data)
        made = message(indexes)()
        made.ParseFromString(bytes(rest))
        return json_format.MessageToDict(made, always_print_fields_with_no_presence=True, descriptor_pool=pool)

    return ValueCodec(encode, decode)


def _add_files(schema: SchemaText, pool: Any) -> None:
    """The files in the order in which one needs the other; Google's own are in the library."""
    added: set[str] = set()

    def add(file: descriptor_pb2.FileDescriptorProto) -> None:
        for dependency in file.dependency:
            if dependency in _GOOGLES and dependency not in added:
                found = descriptor_pb2.FileDescriptorProto()
                _GOOGLES[dependency].CopyToProto(found)
                add(found)
        if file.name not in added:
            pool.Add(file)
            added.add(file.name)

    for name, text in (*schema.references.items(), ("", schema.text)):
        file = _file(text)
        file.name = name or file.name or "schema.proto"
        add(file)
