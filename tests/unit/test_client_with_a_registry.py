"""Codecs beside Confluent's own serializers on a registry that runs, in both directions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from barnabas.client import ConfigurationError, SchemaRegistry, UnknownSchemaError, UnsupportedSchemaError
from barnabas.client.codecs import RecordCodec, RecordPlace
from barnabas.client.registry import SchemaReference
from barnabas.testing import Cluster

LINE: dict[str, Any] = {"type": "record", "name": "shop.Line", "fields": [{"name": "count", "type": "int"}]}
ORDER: dict[str, Any] = {"type": "record", "name": "shop.Order", "fields": [{"name": "line", "type": "shop.Line"}]}
DRINK: dict[str, Any] = {"type": "object", "title": "Drink", "properties": {"cups": {"type": "integer"}}}
TOPIC = {"subject.name.strategy.type": "TOPIC"}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a registry on a cluster of its own."""
    with Cluster(registry=True) as cluster:
        yield str(cluster.registry)


@pytest.fixture
def confluent(registry: str) -> Iterator[SchemaRegistryClient]:
    """Confluent's client of the same registry."""
    with SchemaRegistryClient({"url": registry}) as client:
        yield client


def at(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def messages() -> Any:
    """A class as protoc makes it, whose file imports another one."""
    line = descriptor_pb2.FileDescriptorProto(name="with_registry/line.proto", package="wr", syntax="proto3")
    line.message_type.add(name="Line").field.add(name="count", number=1, type=5, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="with_registry/order.proto", package="wr", syntax="proto3")
    order.dependency.append(line.name)
    order.message_type.add(name="Other")
    message = order.message_type.add(name="Order")
    message.field.add(name="line", number=1, type=11, label=1, type_name=".wr.Line")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(line)
    pool.Add(order)
    return message_factory.GetMessageClassesForFiles([line.name, order.name], pool)["wr.Order"]


def test_avro_with_a_reference_goes_from_each_side_to_the_other(registry: str, confluent: SchemaRegistryClient) -> None:
    """One registered schema, one form of values."""
    confluent.register_schema("avro-line", Schema(json.dumps(LINE), "AVRO"))
    reference = SchemaReference("shop.Line", "avro-line", 1)
    codec = SchemaRegistry(registry).avro("avro-value", ORDER, references=[reference])
    value = {"line": {"count": 3}}
    data = codec.encode(value)
    assert data
    read: Any = AvroDeserializer(confluent, conf=TOPIC)
    assert read(data, at("avro")) == value
    latest = confluent.get_latest_version("avro-value")
    write: Any = AvroSerializer(confluent, latest.schema, conf=TOPIC)
    assert write(value, at("avro")) == data
    assert SchemaRegistry(registry).avro("avro-value").decode(data) == value


def test_json_schema_goes_from_each_side_to_the_other(registry: str, confluent: SchemaRegistryClient) -> None:
    """Checked on both."""
    codec = SchemaRegistry(registry).json_schema("json-value", DRINK)
    data = codec.encode({"cups": 2})
    assert data
    read: Any = JSONDeserializer(None, schema_registry_client=confluent, conf=TOPIC)
    assert read(data, at("json")) == {"cups": 2}
    write: Any = JSONSerializer(json.dumps(DRINK), confluent, conf=TOPIC)
    assert codec.decode(write({"cups": 3}, at("json"))) == {"cups": 3}
    assert write({"cups": 3}, at("json"))[:5] == data[:5]


def test_protobuf_with_an_import_goes_from_each_side_to_the_other(
    registry: str, confluent: SchemaRegistryClient
) -> None:
    """The imported file is registered under its name."""
    order = messages()
    codec = SchemaRegistry(registry).protobuf("proto-value", order)
    value = order(line={"count": 3})
    data = codec.encode(value)
    assert data
    assert "with_registry/line.proto" in confluent.get_subjects()
    read: Any = ProtobufDeserializer(order, TOPIC, confluent)
    assert read(data, at("proto")) == value
    write: Any = ProtobufSerializer(order, confluent, TOPIC)
    assert write(value, at("proto")) == data
    assert SchemaRegistry(registry).protobuf("proto-value", order).decode(data) == value


def test_ids_that_confluents_serializer_puts_into_headers_are_read(
    registry: str, confluent: SchemaRegistryClient
) -> None:
    """As GUIDs, which the registry gives each schema."""
    write: Any = AvroSerializer(confluent, '"int"', conf={**TOPIC, "schema.id.serializer": header_schema_id_serializer})
    headers: list[tuple[str, bytes]] = []
    data = write(7, at("headers", headers))
    codec = SchemaRegistry(registry).avro("headers-value")
    assert isinstance(codec, RecordCodec)
    assert (data, codec.decode_at(data, RecordPlace("headers", False, headers))) == (b"\x0e", 7)


def test_the_latest_version_with_metadata_is_written(registry: str, confluent: SchemaRegistryClient) -> None:
    """Not the latest of all."""
    for version, text in ((1, '"int"'), (2, '"long"')):
        metadata = Metadata(None, MetadataProperties({"major": str(version)}), None)
        confluent.register_schema("metadata-value", Schema(f'{{"type": {text}}}', "AVRO", [], metadata))
    of_first = SchemaRegistry(registry, properties={"use.latest.with.metadata": {"major": "1"}})
    first, latest = (
        of_first.avro("metadata-value").encode(7),
        SchemaRegistry(registry).avro("metadata-value").encode(7),
    )
    assert first
    assert latest
    assert first[5:] == latest[5:]
    assert first[:5] != latest[:5]
    assert confluent.get_schema(int.from_bytes(first[1:5], "big")).schema_str in ('"int"', '{"type":"int"}')


def test_a_subject_of_a_context_has_ids_of_its_own(registry: str) -> None:
    """They are looked for in the context."""
    subject = ":.other:context-value"
    codec = SchemaRegistry(registry).avro(subject, '"int"')
    data = codec.encode(7)
    assert data
    assert SchemaRegistry(registry).avro(subject).decode(data) == 7


def test_a_rule_of_the_registry_keeps_values_from_being_written(registry: str, confluent: SchemaRegistryClient) -> None:
    """Also if it is in an older version's rule set, which the registry hands on to the next."""
    rule = Rule.from_dict(
        {"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "tags": ["PII"]}
    )
    schema = Schema(json.dumps(LINE), "AVRO", [], None, RuleSet(None, [rule]))
    confluent.register_schema("rules-value", schema)
    for schemas in (SchemaRegistry(registry), SchemaRegistry(registry, properties={"use.latest.version": True})):
        with pytest.raises(UnsupportedSchemaError, match=r"need the rule hide \(ENCRYPT\)"):
            schemas.avro("rules-value", LINE).encode({"count": 1})


def test_a_schema_that_is_not_compatible_is_refused_with_the_registrys_words(registry: str) -> None:
    """Before a value is written."""
    SchemaRegistry(registry).avro("strict-value", LINE).encode({"count": 1})
    other = {**LINE, "fields": [{"name": "count", "type": "string"}]}
    with pytest.raises(ConfigurationError, match=r"refuses the schema of strict-value: .*incompatible"):
        SchemaRegistry(registry).avro("strict-value", other).encode({"count": "x"})


@pytest.mark.parametrize("kind", ["avro", "json-schema", "protobuf"])
def test_a_flow_learns_before_its_first_row_that_its_schema_is_refused(registry: str, kind: str) -> None:
    """A dry run too, which registers nothing; a column that is added is taken."""
    types = pytest.importorskip("pyspark.sql.types")
    pytest.importorskip("pyarrow")
    from barnabas.pipelines.errors import PipelineError
    from barnabas.pipelines.formats.encoders import WantedSchema, open_encoder, try_schema

    def columns(**kinds: Any) -> Any:
        return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])

    point = types.StructType([types.StructField("x", types.DecimalType(5, 2))])
    more = {"at": types.TimestampType(), "tags": types.ArrayType(types.StringType()), "point": point}
    first = columns(id=types.LongType(), **more)
    added = columns(note=types.StringType(), id=types.LongType(), **more)
    other = columns(id=types.StringType(), **more)
    schemas, subject = SchemaRegistry(registry), f"flow-{kind}-value"
    wanted = WantedSchema(kind, registry, "flow", "shop.Row", subject)
    assert try_schema(wanted, first) == f"the registry takes the schema under {subject}"
    with pytest.raises(UnknownSchemaError):
        schemas.latest(subject)
    assert open_encoder(wanted, first).header == open_encoder(wanted, first, registers=False).header
    with pytest.raises(PipelineError, match="topic flow: the registry would refuse the schema as the next version"):
        try_schema(wanted, other)
    with pytest.raises(PipelineError, match=rf"topic flow: .* refuses the schema of {subject}: .*incompatible"):
        open_encoder(wanted, other)
    with pytest.raises(PipelineError, match=f"refuses the schema of {subject}"):
        open_encoder(wanted, added, registers=False)
    assert try_schema(wanted, added)
    before = open_encoder(wanted, first).header
    assert open_encoder(wanted, added).header != before
    assert schemas.latest(subject)["version"] == 2
