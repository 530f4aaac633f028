"""Values of Avro, JSON Schema and Protobuf that go through the REST proxy, by a registry."""

import base64

from barnabas.testing import Cluster
from support.rest_web import Web, instance, read, read_all

AVRO = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"]}]}'
)


def test_values_of_avro_go_through_the_registry_both_ways(web: Web, topic: str) -> None:
    """By a schema in the request, by its id, by its version, and the latest one."""
    order = {"id": 1, "note": {"string": "x"}}
    reports = web.produce(
        topic,
        {"value": {"type": "AVRO", "schema": AVRO, "data": order}},
        {"value": {"data": order}},
        {"value": {"schema_version": 1, "data": order}},
        {"value": {"schema_version": 1, "data": {"id": "x"}}},
    )
    assert [each["error_code"] for each in reports] == [200, 200, 200, 42203]
    schema_id = reports[0]["value"]["schema_id"]
    assert reports[0]["value"] == {
        "type": "AVRO", "subject": f"{topic}-value", "schema_id": schema_id, "schema_version": 1, "size": 5 + 4,
    }  # fmt: skip
    by_id = {"records": [{"value": order}], "value_schema_id": schema_id}
    produced = web.ask("POST", f"/topics/{topic}", by_id, kind="application/vnd.kafka.avro.v2+json").json
    assert produced["value_schema_id"] == schema_id
    with instance(web, f"{topic}-g", format="avro") as path:
        web.ask("POST", f"{path}/subscription", {"topics": [topic]})
        assert [each["value"] for each in read(web, path, 4, "avro")] == [order] * 4


def test_confluents_deserializers_read_what_was_produced_over_http(web: Web, cluster: Cluster, topic: str) -> None:
    """Of Avro and of JSON Schema; and the proxy reads what their serializers wrote."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = '{"type":"object","properties":{"id":{"type":"integer"}}}'
    reports = web.produce(
        topic,
        {"partition_id": 0, "value": {"type": "AVRO", "schema": AVRO, "data": {"id": 1, "note": {"string": "x"}}}},
        {"partition_id": 0, "value": {"type": "JSONSCHEMA", "subject": "other", "schema": schema, "data": {"id": 2}}},
    )
    assert [each["error_code"] for each in reports] == [200, 200]
    client = SchemaRegistryClient(cluster.registry.client_properties())
    context = SerializationContext(topic, MessageField.VALUE)
    avro, plain = read_all(cluster, topic, 2)
    assert AvroDeserializer(client)(avro.value, context) == {"id": 1, "note": "x"}
    assert JSONDeserializer(schema)(plain.value, context) == {"id": 2}
    written = AvroSerializer(client, AVRO)({"id": 3, "note": None}, context)
    web.produce(topic, {"partition_id": 1, "value": {"type": "BINARY", "data": base64.b64encode(written).decode()}})
    with instance(web, f"{topic}-g", format="avro") as path:
        web.ask("POST", f"{path}/assignments", {"partitions": [{"topic": topic, "partition": 1}]})
        assert [each["value"] for each in read(web, path, 1, "avro")] == [{"id": 3, "note": None}]


def test_values_of_json_schema_are_checked(web: Web, topic: str) -> None:
    """A value that the schema does not allow is not sent."""
    schema = '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
    reports = web.produce(
        topic,
        {"value": {"type": "JSONSCHEMA", "schema": schema, "data": {"id": 1}}},
        {"value": {"type": "JSONSCHEMA", "schema": schema, "data": {"id": "x"}}},
    )
    assert [each["error_code"] for each in reports] == [200, 42203]
    with instance(web, f"{topic}-g", format="jsonschema") as path:
        web.ask("POST", f"{path}/subscription", {"topics": [topic]})
        assert [each["value"] for each in read(web, path, 1, "jsonschema")] == [{"id": 1}]


def test_values_of_protobuf_go_through_the_registry_both_ways(web: Web, topic: str) -> None:
    """The schema is a .proto file; values have protobuf's JSON."""
    schema = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string some_note = 2; }'
    (report,) = web.produce(
        topic, {"value": {"type": "PROTOBUF", "schema": schema, "data": {"id": "7", "someNote": "x"}}}
    )
    assert report["error_code"] == 200, report
    with instance(web, f"{topic}-g", format="protobuf") as path:
        web.ask("POST", f"{path}/subscription", {"topics": [topic]})
        assert [each["value"] for each in read(web, path, 1, "protobuf")] == [{"id": "7", "someNote": "x"}]
