"""Keys and values with schemas of a registry, as the consoles show and take them: JSON.

What begins with a schema's id, or has one in a header, is shown as JSON; all else as it is,
because a topic may hold both. JSON that is read becomes Avro, in Avro's encoding for JSON, or stays
JSON and is checked.

Kafka has no counterpart; Confluent's are AvroMessageFormatter and JsonSchemaMessageReader.
"""

import dataclasses
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.json_text import parse_json
from barnabas.cli.connection.properties import REGISTRY_PROPERTY
from barnabas.client.codecs import RecordCodec, RecordPlace
from barnabas.client.errors import ClientError, DeserializationError
from barnabas.client.records import Headers, Record
from barnabas.client.registry.registry import SchemaRegistry
from barnabas.client.registry.wire_format import header_of_id, may_have_id

__all__ = ["REGISTRY_HELP", "WRITER_PROPERTIES", "record_reader", "value_writer"]

REGISTRY_HELP = (
    "a schema registry: what begins with a schema's id is shown as JSON "
    "(default: schema.registry.url of the context or of the properties)"
)
WRITER_PROPERTIES = (REGISTRY_PROPERTY, "value.schema", "value.schema.file", "value.schema.type")


def record_reader(url: str | None) -> Callable[[Record[bytes, bytes]], Record[bytes, bytes]]:
    """What puts JSON in the place of keys and values with a schema; the record as it is without a
    registry."""
    if not url:
        return lambda record: record
    codec = SchemaRegistry(url).reader()
    assert isinstance(codec, RecordCodec)

    def read(record: Record[bytes, bytes]) -> Record[bytes, bytes]:
        parts: dict[str, Any] = {}
        for name, is_key in (("key", True), ("value", False)):
            data = getattr(record, name)
            if data is not None and _has_id(data, record.headers, is_key=is_key):
                place = RecordPlace(record.topic, is_key, record.headers)
                try:
                    parts[name] = _as_json(codec.decode_at(data, place)).encode()
                except Exception as error:  # of the libraries that read values
                    raise DeserializationError(
                        f"the {name} of {record.topic}-{record.partition} offset {record.offset} cannot be read: {error}",
                        record,
                    ) from error
        return dataclasses.replace(record, **parts) if parts else record

    return read


def _has_id(data: bytes, headers: Headers, *, is_key: bool) -> bool:
    wanted = header_of_id(is_key=is_key)
    return any(name == wanted and value for name, value in headers) or may_have_id(data)


def _as_json(value: Any) -> str:
    from barnabas.pipelines.values.texts import as_json

    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToJson

        return str(MessageToJson(value, preserving_proto_field_name=True, indent=None, ensure_ascii=False))
    return as_json(value)


def value_writer(properties: Mapping[str, str]) -> Callable[[bytes, str], bytes] | None:
    """What makes values of lines, by the properties ``schema.registry.url``, ``value.schema`` or
    ``value.schema.file``, and ``value.schema.type`` (avro, json); None without a registry.

    Raises `ConfigError`."""
    url = properties.get(REGISTRY_PROPERTY)
    text = properties.get("value.schema")
    if file := properties.get("value.schema.file"):
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"value.schema.file: {error}") from error
    if not url:
        if text:
            raise ConfigError(f"value.schema needs a registry: --property {REGISTRY_PROPERTY}=http://localhost:8081")
        return None
    if not text:
        raise ConfigError("a registry is given, and no schema: --property value.schema=... or value.schema.file=FILE")
    kind = properties.get("value.schema.type", "avro").lower()
    registry = SchemaRegistry(url)
    codec = (
        registry.avro(None, text) if kind == "avro" else registry.json_schema(None, text) if kind == "json" else None
    )
    if not isinstance(codec, RecordCodec):
        raise ConfigError(f"value.schema.type={kind}: avro and json are expected")
    parse = _avro_json(text) if kind == "avro" else parse_json

    def write(line: bytes, topic: str) -> bytes:
        try:
            return codec.encode_at(parse(line.decode()), RecordPlace(topic)) or b""
        except ClientError:
            raise
        except Exception as error:  # of the libraries that write values
            raise ConfigError(f"the line {line[:100]!r} does not fit the schema: {error}") from error

    return write


def _avro_json(schema: str) -> Callable[[str], Any]:
    """What reads Avro's encoding for JSON, in which the value of a union names its type."""
    from fastavro import json_reader

    document = parse_json(schema)
    return lambda line: next(iter(json_reader(io.StringIO(line), document)))
