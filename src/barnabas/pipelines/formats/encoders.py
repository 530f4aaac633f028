"""The rows of a topic's records as values with a schema of a registry: the schema is made of the
columns, or read from a file, and registered by the driver; workers encode with its text and id
alone, and ask no registry.

JSON is written by Spark; Avro and Protobuf through an encoder in Python, whole Arrow arrays at a
time.
"""

import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import DecimalType, StructType

from barnabas.base.json_text import parse_json
from barnabas.client.errors import ClientError, ConfigurationError
from barnabas.client.registry.registry import SchemaRegistry, UnknownSchemaError
from barnabas.client.registry.rules import rules_problem
from barnabas.client.registry.wire_format import encode_schema_id
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.formats.derived_schemas import (
    UnwritableColumnError,
    derive_avro,
    derive_json_schema,
    derive_protobuf,
)
from barnabas.pipelines.formats.schemas import load_avro_document, load_protobuf
from barnabas.pipelines.values.json_documents import json_document
from barnabas.pipelines.values.nested import rewritten

__all__ = ["RecordEncoder", "WantedSchema", "open_encoder", "try_schema"]

_TYPES = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


@dataclass(frozen=True, slots=True)
class WantedSchema:
    """How the values of a topic are written; as `barnabas.pipelines.outputs.declared.TopicFormat`,
    with the topic."""

    type: str
    """``avro``, ``json-schema``, ``protobuf``."""
    registry: str
    topic: str
    name: str
    """The full name of the records."""
    subject: str
    schema_file: str | None = None
    register: bool = True

    @classmethod
    def of(cls, topic: str, how: Any) -> "WantedSchema":
        """For a topic and its `TopicFormat`."""
        return cls(how.type, how.registry, topic, how.name, how.subject, how.schema_file, how.register)


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """What makes values of rows; travels to the workers."""

    type: str
    schema: str
    """Its text; of Protobuf, the file in base64."""
    name: str
    header: bytes
    """The bytes before each value."""
    is_derived: bool

    def column(self, names: Sequence[str], schema: StructType) -> Column:
        """The values of rows with these columns, as a column of Spark."""
        if self.type == "json-schema":
            text = _json_text(names, schema)
            if self.is_derived:
                return F.concat(F.lit(bytearray(self.header)), text.cast("binary"))
            return _encoded(F.struct(text.alias("document")), self)
        return _encoded(F.struct(*[F.col(f"`{name}`") for name in names]), self)


def open_encoder(wanted: WantedSchema, columns: StructType, *, registers: bool = True) -> RecordEncoder:
    """Make, read or find the schema of rows with these columns, and register it.

    Raises `PipelineError` for columns that the schema cannot hold, for a schema that the registry
    refuses, and for a registry that does not answer. Without ``registers`` it is looked up only."""
    registry = SchemaRegistry(wanted.registry, register=wanted.register and registers)
    with _named(wanted):
        text = _checked_text(wanted, columns, registry)
        found = registry.register(wanted.subject, text, _TYPES[wanted.type])
        if problem := rules_problem(found.get("ruleSet"), writes=True):
            raise UnwritableColumnError(f"the schema of {wanted.subject}: {problem}")
    header = encode_schema_id(int(found["id"]))
    if wanted.type == "protobuf":
        header += _FIRST_MESSAGE
    return RecordEncoder(wanted.type, text, wanted.name, header, wanted.schema_file is None)


def try_schema(wanted: WantedSchema, columns: StructType) -> str:
    """What becomes of the schema of rows with these columns, without registering it.

    Raises `PipelineError` as `open_encoder` would."""
    registry = SchemaRegistry(wanted.registry, register=False)
    with _named(wanted):
        text = _checked_text(wanted, columns, registry)
        if not wanted.register:
            registry.register(wanted.subject, text, _TYPES[wanted.type])
            return f"the schema is registered under {wanted.subject}"
        if problems := registry.incompatibilities(wanted.subject, text, _TYPES[wanted.type]):
            raise UnwritableColumnError(
                f"the registry would refuse the schema as the next version of {wanted.subject}: {'; '.join(problems):.2000}"
            )
    return f"the registry takes the schema under {wanted.subject}"


@contextlib.contextmanager
def _named(wanted: WantedSchema) -> Iterator[None]:
    """What goes wrong with a schema as `PipelineError` that names the topic."""
    try:
        yield
    except (ClientError, UnwritableColumnError, ValueError, OSError, PySparkException) as error:
        raise PipelineError(f"topic {wanted.topic}: {error}") from error
    except ImportError as error:
        raise PipelineError(f"topic {wanted.topic}: {error.name} is not installed") from error


def _checked_text(wanted: WantedSchema, columns: StructType, registry: SchemaRegistry) -> str:
    """The schema as the registry takes it; the columns fit it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(columns, timezone="UTC")  # raises for types that Arrow does not have
    text = _schema_text(wanted, arrow, registry)
    make_encoder(wanted.type, text, wanted.name, pa.struct(list(arrow)))
    return text


_FIRST_MESSAGE = b"\0"
"""Which message of its file a value is: the only one, or the one that is named comes first."""


def _schema_text(wanted: WantedSchema, columns: pa.Schema, registry: SchemaRegistry) -> str:
    if wanted.type == "avro":
        if wanted.schema_file:
            return json.dumps(load_avro_document(wanted.schema_file))
        return derive_avro(columns, wanted.name)
    if wanted.type == "json-schema":
        if wanted.schema_file:
            return json.dumps(parse_json(Path(wanted.schema_file).read_text(encoding="utf-8")))
        return derive_json_schema(columns, wanted.name)
    if wanted.schema_file:
        return _protobuf_file(wanted.schema_file, wanted.name)
    file = derive_protobuf(columns, wanted.name, _latest_file(registry, wanted.subject))
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _protobuf_file(path: str, message: str) -> str:
    """The file of a message in a descriptor set, with this message alone in front."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    descriptor = load_protobuf(path, message).DESCRIPTOR
    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    foreign = [each for each in file.dependency if not each.startswith("google/protobuf/")]
    if foreign:
        raise ConfigurationError(f"{file.name} imports {', '.join(foreign)}: a flow writes files without imports")
    if descriptor.containing_type is not None or file.message_type[0].name != descriptor.name:
        raise ConfigurationError(f"{message} is not the first message of {file.name}")
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _latest_file(registry: SchemaRegistry, subject: str) -> Any:
    """The Protobuf file of a subject's latest version; None if there is none."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = registry.latest(subject, form="serialized")
    except UnknownSchemaError:
        return None
    if found.get("schemaType") != "PROTOBUF":
        return None  # the registry says whether another kind may follow
    file = FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(str(found["schema"])))
    except (ValueError, DecodeError) as error:
        raise ConfigurationError(f"the latest version of {subject} is no Protobuf file: {error}") from None
    return file


def make_encoder(kind: str, text: str, name: str, columns: pa.DataType) -> Callable[[dict[str, Any]], bytes]:
    """What writes rows. Raises `UnwritableColumnError`."""
    from barnabas.pipelines.formats import row_encoders

    if kind == "avro":
        return row_encoders.avro_encoder(parse_json(text), columns)
    if kind == "json-schema":
        return row_encoders.json_checker(parse_json(text))
    from barnabas.pipelines.formats.schemas import protobuf_class

    return row_encoders.protobuf_encoder(protobuf_class(text, name), columns)


_ENCODERS: dict[tuple[RecordEncoder, str], Any] = {}


def _encoded(row: Column, encoder: RecordEncoder) -> Column:
    from pyspark.sql.pandas.functions import arrow_udf

    def encode(rows: pa.Array) -> pa.Array:
        return encode_values(rows, encoder)

    function: Any = arrow_udf  # its overloads leave out structs
    return cast(Column, function(encode, "binary")(row))


def encode_values(rows: pa.Array, encoder: RecordEncoder) -> pa.Array:
    """The values of rows.

    Each worker makes its encoder once."""
    from barnabas.pipelines.formats.row_encoders import encoded_rows

    key = (encoder, str(rows.type))
    if key not in _ENCODERS:
        _ENCODERS[key] = make_encoder(encoder.type, encoder.schema, encoder.name, rows.type)
    return encoded_rows(rows, _ENCODERS[key], encoder.header)


def _json_text(names: Sequence[str], schema: StructType) -> Column:
    """Rows as JSON, decimals as texts with all their digits."""
    as_text: Mapping[str, Column] = {
        name: text
        for name in names
        if (text := rewritten(F.col(f"`{name}`"), schema[name].dataType, _decimal_text)) is not None
    }
    return json_document(names, schema, as_text)


def _decimal_text(value: Column, kind: Any) -> Column | None:
    return value.cast("string") if isinstance(kind, DecimalType) else None
