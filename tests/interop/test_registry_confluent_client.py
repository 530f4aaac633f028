"""confluent-kafka's client of the schema registry, and its serializers, against ours."""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.struct_pb2 import Struct, Value

from barnabas.client import BYTES, Consumer, Producer
from barnabas.testing import Cluster

pytestmark = [pytest.mark.interop]

Client = Any
"""The client with each method as a function that waits for its answer."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker and a registry."""
    with Cluster(registry=True) as made:
        yield made


class Waiting:
    """The asynchronous client, whose calls wait."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._loop = asyncio.new_event_loop()

        async def made() -> AsyncSchemaRegistryClient:
            return AsyncSchemaRegistryClient(properties)

        self._client = self._loop.run_until_complete(made())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **options: self._loop.run_until_complete(method(*args, **options))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Client]:
    """Each of the two clients."""
    properties = cluster.registry.client_properties()
    if request.param == "sync":
        with SchemaRegistryClient(properties) as made:
            yield made
    else:
        waiting = Waiting(properties)
        yield waiting
        waiting.close()


@pytest.fixture
def subject() -> str:
    """A name that no other test has, with what a path must escape."""
    return f"orders/{uuid.uuid4().hex[:8]} é-value"


def record(*fields: str, default: bool = True) -> Schema:
    """An Avro record with these fields."""
    made = [{"name": name, "type": "string", **({"default": ""} if default else {})} for name in fields]
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": made}), "AVRO")


def error_of(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[int, int]:
    """The status and the code with which a call is refused."""
    with pytest.raises(SchemaRegistryError) as caught:
        call(*args, **options)
    return caught.value.http_status_code, caught.value.error_code


def test_registered_schema_is_found_by_each_method(client: Client, subject: str) -> None:
    """By its id, its guid, its text, its version, and as the latest."""
    schema = record("id")
    schema_id = client.register_schema(subject, schema)
    full = client.register_schema_full_response(subject, schema)
    assert full.schema_id == schema_id
    assert json.loads(client.get_schema(schema_id).schema_str) == json.loads(schema.schema_str)
    found = client.get_version(subject, 1)
    assert (found.subject, found.version, found.schema_id) == (subject, 1, schema_id)
    assert client.get_latest_version(subject).version == 1
    assert client.lookup_schema(subject, schema).schema_id == schema_id
    assert client.get_schema_by_guid(found.guid).schema_type == "AVRO"
    assert subject in client.get_subjects_by_schema_id(schema_id)
    assert (subject, 1) in [(each.subject, each.version) for each in client.get_schema_versions(schema_id)]
    assert {"AVRO", "JSON", "PROTOBUF"} <= set(client.get_schema_types())


def test_same_schema_in_two_subjects_has_one_id(client: Client, subject: str) -> None:
    """And registering it again adds no version."""
    schema = record("two_subjects")
    first = client.register_schema(subject, schema)

    assert client.register_schema(f"{subject}-2", schema) == first
    assert client.register_schema(subject, schema) == first
    assert client.get_versions(subject) == [1]


def test_what_is_not_there_is_answered_with_confluents_codes(client: Client, subject: str) -> None:
    """As callers tell them apart."""
    assert error_of(client.get_schema, 10_000_000) == (404, 40403)
    assert error_of(client.get_latest_version, subject) == (404, 40401)
    client.register_schema(subject, record("codes"))
    assert error_of(client.get_version, subject, 7) == (404, 40402)
    assert error_of(client.lookup_schema, subject, record("another")) == (404, 40403)
    assert error_of(client.register_schema, subject, Schema("{}", "AVRO")) == (422, 42201)


def test_references_are_stored_and_found(client: Client, subject: str) -> None:
    """A schema that another one refers to cannot be deleted for good."""
    client.register_schema(f"{subject}-money", Schema('{"type":"record","name":"Money","fields":[]}', "AVRO"))
    reference = SchemaReference("Money", f"{subject}-money", 1)
    text = '{"type":"record","name":"Sale","fields":[{"name":"price","type":"Money"}]}'
    schema_id = client.register_schema(subject, Schema(text, "AVRO", [reference]))
    assert client.get_version(subject, 1).schema.references[0].subject == f"{subject}-money"
    assert client.get_referenced_by(f"{subject}-money", 1) == [schema_id]
    assert error_of(client.delete_version, f"{subject}-money", 1) == (422, 42206)


def test_metadata_finds_the_latest_version_that_has_it(client: Client, subject: str) -> None:
    """Metadata is stored with a schema."""
    made = record("metadata")
    metadata = Metadata(None, MetadataProperties({"owner": "sales"}), None)
    client.register_schema(subject, Schema(made.schema_str, "AVRO", [], metadata))
    assert client.get_latest_with_metadata(subject, {"owner": "sales"}).version == 1
    assert error_of(client.get_latest_with_metadata, subject, {"owner": "nobody"})[0] == 404


def test_deleted_versions_and_subjects_stay_until_they_are_deleted_for_good(client: Client, subject: str) -> None:
    """A soft deletion can be taken back, a hard one not."""
    client.register_schema(subject, record("a"))
    client.register_schema(subject, record("a", "b"))
    assert client.get_versions(subject) == [1, 2]
    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert error_of(client.delete_subject, subject, permanent=True) == (404, 40405)
    assert client.delete_subject(subject) == [2]
    assert subject not in client.get_subjects()
    assert subject in client.get_subjects(deleted=True)
    assert client.get_subjects(subject_prefix=subject[:12], deleted=True) == [subject]
    assert client.delete_subject(subject, permanent=True) == [2]
    assert subject not in client.get_subjects(deleted=True)
    assert "." in client.get_contexts()


def test_incompatible_schema_is_refused(client: Client, subject: str) -> None:
    """A new field without a default cannot be read from old records."""
    client.register_schema(subject, record("a"))
    other = record("a", "b", default=False)
    assert error_of(client.register_schema, subject, other) == (409, 40901)
    assert client.test_compatibility(subject, other) is False
    assert client.test_compatibility(subject, other, verbose=True) is False
    assert client.test_compatibility_all_versions(subject, record("a", "b")) is True


def test_levels_and_configurations_are_kept_by_subject(client: Client, subject: str) -> None:
    """And the global one holds where a subject has none."""
    assert client.set_compatibility(subject, "none") == {"compatibility": "NONE"}
    assert client.get_compatibility(subject) == "NONE"
    config = ServerConfig(compatibility=ConfigCompatibilityLevel.FULL)
    client.set_config(subject, config)
    assert client.get_config(subject).compatibility_level == ConfigCompatibilityLevel.FULL
    client.delete_config(subject)
    assert error_of(client.get_config, subject) == (404, 40408)
    client.set_compatibility(level="backward")
    assert client.get_compatibility() == "BACKWARD"
    assert error_of(client.set_compatibility, subject, "sideways") == (422, 42203)


def test_read_only_subject_takes_no_schemas(client: Client, subject: str) -> None:
    """Until its mode is deleted."""
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert client.get_mode(subject) == "READONLY"
    assert error_of(client.register_schema, subject, record("mode")) == (422, 42205)
    client.delete_mode(subject)
    assert error_of(client.get_mode, subject) == (404, 40409)
    assert client.update_global_mode("READWRITE") == "READWRITE"
    assert client.get_global_mode() == "READWRITE"
    assert error_of(client.update_mode, subject, "ASLEEP") == (422, 42204)


JSON_SCHEMA = json.dumps(
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"id": {"type": "string"}}}
)


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_value_comes_back_through_the_topic(cluster: Cluster, kind: str) -> None:
    """The registry gives the id, and the reader finds the schema by it."""
    topic = f"topic-{kind}"
    registry = SchemaRegistryClient(cluster.registry.client_properties())
    value: Any = {"id": "seven"}
    serialize: Any
    deserialize: Any
    if kind == "avro":
        serialize, deserialize = AvroSerializer(registry, record("id").schema_str), AvroDeserializer(registry)
    elif kind == "json":
        serialize, deserialize = JSONSerializer(JSON_SCHEMA, registry), JSONDeserializer(JSON_SCHEMA)
    else:
        serialize = ProtobufSerializer(Struct, registry, {"use.deprecated.format": False})
        deserialize = ProtobufDeserializer(Struct, {"use.deprecated.format": False})
        value = Struct(fields={"id": Value(string_value="seven")})
    context = SerializationContext(topic, MessageField.VALUE)
    cluster.create_topic(topic)
    properties = cluster.client_properties()
    with Producer(properties, serializer=BYTES) as producer:
        producer.send(topic, serialize(value, context)).result()
    with Consumer({**properties, "group.id": kind, "auto.offset.reset": "earliest"}, deserializer=BYTES) as reader:
        reader.subscribe([topic])
        found = reader.poll(30)
    assert found is not None
    assert deserialize(found.value, context) == value
    assert registry.get_latest_version(f"{topic}-value").schema.schema_type == kind.upper()


def test_a_client_whose_address_names_a_context_works_in_it(cluster: Cluster) -> None:
    """Its ids, its subjects and its configuration are those of the context."""
    properties = cluster.registry.client_properties()
    subject = uuid.uuid4().hex
    with (
        SchemaRegistryClient({**properties, "url": f"{properties['url']}/contexts/.team"}) as inside,
        SchemaRegistryClient(properties) as outside,
    ):
        schema_id = inside.register_schema(subject, Schema('"string"'))
        assert inside.get_schema(schema_id, subject).schema_str == '"string"'
        assert inside.get_subjects() == [f":.team:{subject}"]
        assert inside.get_latest_version(subject).version == 1
        inside.set_config(config=ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
        assert outside.get_config(":.team:").compatibility_level == ConfigCompatibilityLevel.NONE
        assert outside.get_latest_version(f":.team:{subject}").schema_id == schema_id
        assert ".team" in outside.get_contexts()
