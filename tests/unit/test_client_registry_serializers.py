"""Codecs on Confluent's serializers: what they carry over, and what is refused around them."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client import (
    JSON,
    ClientError,
    ConfigurationError,
    Consumer,
    Producer,
    SchemaRegistry,
    SerializationError,
    UnknownSchemaError,
    UnsupportedSchemaError,
)
from barnabas.client.codecs import RecordCodec, RecordPlace
from barnabas.client.registry import SchemaReference
from barnabas.testing import Cluster
from support.registry import RegistryForTests, with_id

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
DRINK: dict[str, Any] = {"type": "object", "title": "Drink", "properties": {"cups": {"type": "integer"}}}
ENCRYPTS = {"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "tags": ["PII"]}
CHECKS = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "onFailure": "NONE"}


@pytest.fixture
def registry() -> Iterator[RegistryForTests]:
    """One that runs."""
    with RegistryForTests() as running:
        yield running


def record_codec(codec: Any) -> RecordCodec[Any]:
    assert isinstance(codec, RecordCodec)
    return codec


def test_json_schema_goes_both_ways_and_checks_each_value(registry: RegistryForTests) -> None:
    """A zero byte, the id, and the document; a value that does not fit is neither written nor
    read."""
    codec = SchemaRegistry(registry.address).json_schema("drinks-value", DRINK)
    data = codec.encode({"cups": 2})
    assert data == with_id(1, b'{"cups":2}')
    assert codec.decode(data) == {"cups": 2}
    assert registry.more[1]["schemaType"] == "JSON"
    with pytest.raises(SerializationError, match="'two' is not of type 'integer'"):
        codec.encode({"cups": "two"})
    with pytest.raises(ClientError, match="'two' is not of type 'integer'"):
        codec.decode(with_id(1, b'{"cups":"two"}'))
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.encode({"cups": 2, "price": float("nan")})


def test_a_ref_of_a_json_schema_is_looked_for_among_its_references_only(registry: RegistryForTests) -> None:
    """Another server is not asked, whatever the schema says."""
    asked_before = len(registry.asked)
    foreign = {"type": "object", "properties": {"cups": {"$ref": f"{registry.address}/schemas/ids/1"}}}
    registry.schemas[1] = json.dumps({"type": "integer"})
    codec = SchemaRegistry("mock://refs").json_schema("drinks-value", foreign)
    with pytest.raises(Exception, match="Unresolvable|schemas/ids/1"):
        codec.encode({"cups": 2})
    assert len(registry.asked) == asked_before
    registry.subjects["cups"] = {1}
    with_reference = {"type": "object", "properties": {"cups": {"$ref": "cups.json"}}}
    named = SchemaRegistry(registry.address).json_schema(
        "drinks-value", with_reference, references=[SchemaReference("cups.json", "cups", 1)]
    )
    assert named.decode(named.encode({"cups": 2})) == {"cups": 2}
    with pytest.raises(SerializationError, match="is not of type 'integer'"):
        named.encode({"cups": "two"})


def test_avro_resolves_references_of_both_sides(registry: RegistryForTests) -> None:
    """The referenced type is found by its name, when writing and when reading."""
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "count", "type": "int"}]}
    registry.schemas[1], registry.subjects["line"] = json.dumps(line), {1}
    whole = {"type": "record", "name": "shop.Whole", "fields": [{"name": "line", "type": "shop.Line"}]}
    reference = SchemaReference("shop.Line", "line", 1)
    codec = SchemaRegistry(registry.address).avro("whole-value", whole, references=[reference])
    data = codec.encode({"line": {"count": 3}})
    assert registry.more[2]["references"] == [reference._asdict()]
    assert codec.decode(data) == {"line": {"count": 3}}
    assert SchemaRegistry(registry.address).avro("whole-value").decode(data) == {"line": {"count": 3}}


def test_references_in_a_circle_are_refused(registry: RegistryForTests) -> None:
    """They would be followed for ever."""
    around = [{"name": "shop.Line", "subject": "line", "version": 1}]
    registry.schemas[1], registry.subjects["line"] = json.dumps(ORDER), {1}
    registry.more[1] = {"references": around}
    with pytest.raises(UnsupportedSchemaError, match="schema 1 refers to itself"):
        SchemaRegistry(registry.address).avro("orders-value", ORDER).decode(with_id(1, b"\2x"))


def test_references_that_would_be_followed_without_an_end_are_refused(registry: RegistryForTests) -> None:
    """Thirty schemas, each of which refers to the next one twice, have a thousand million ways."""
    for number in range(1, 31):
        registry.schemas[number], registry.subjects[f"s{number}"] = json.dumps(ORDER), {number}
        twice = [{"name": f"n{number}{name}", "subject": f"s{number + 1}", "version": 1} for name in "ab"]
        registry.more[number] = {"references": twice if number < 30 else []}
    for use in (
        lambda: SchemaRegistry(registry.address).avro("orders-value", ORDER).decode(with_id(1, b"\2x")),
        lambda: SchemaRegistry(registry.address).avro("s1").encode({"item": "tea"}),
        lambda: SchemaRegistry(registry.address).avro("o", ORDER, references=[SchemaReference("n", "s1", 1)]),
    ):
        with pytest.raises(UnsupportedSchemaError, match="refers to others in more than 20000 ways"):
            use()
    assert len(registry.asked) < 200


def test_workers_of_flows_load_none_of_confluents_serializers() -> None:
    """They would take 20 MB and a fifth of a second of each."""
    modules = "barnabas.pipelines.formats.schemas, barnabas.pipelines.formats.row_encoders, barnabas.client"
    code = f"import sys, {modules}; print([n for n in sys.modules if n.startswith('confluent_kafka.schema_registry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_latest_version_is_written_where_it_is_asked_for(registry: RegistryForTests) -> None:
    """Nothing is registered then; with both the property and ``register`` it is not clear
    what is meant."""
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "table", "type": "int", "default": 7}]}
    registry.schemas = {4: json.dumps(ORDER), 5: json.dumps(newer)}
    registry.subjects["orders-value"] = {4, 5}
    latest = SchemaRegistry(registry.address, properties={"use.latest.version": True})
    for codec in (latest.avro("orders-value", ORDER), SchemaRegistry(registry.address).avro("orders-value")):
        data = codec.encode({"item": "tea", "table": 3})
        assert data == with_id(5, b"\6tea\6")
        assert codec.decode(data) == {"item": "tea", "table": 3}
    assert latest.avro("orders-value", ORDER).decode(with_id(4, b"\6tea")) == {"item": "tea", "table": 7}
    assert not any("versions?" in path for path in registry.asked)
    with pytest.raises(ConfigurationError, match="one of them"):
        SchemaRegistry(registry.address, register=True, properties={"use.latest.version": True})


def test_a_rule_that_nothing_executes_keeps_values_from_being_written(registry: RegistryForTests) -> None:
    """Whether it comes with the registered schema or with the latest version, and whatever the rule
    says is to be done when it fails."""
    registry.more[1] = {"ruleSet": {"domainRules": [ENCRYPTS]}}
    with pytest.raises(UnsupportedSchemaError, match=r"need the rule hide \(ENCRYPT\), which is not executed here"):
        SchemaRegistry(registry.address).avro("orders-value", ORDER).encode({"item": "tea"})
    for rule_set in ({"domainRules": [CHECKS]}, {"encodingRules": [{**ENCRYPTS, "type": "ENCRYPT_PAYLOAD"}]}):
        registry.more[1] = {"ruleSet": rule_set}
        latest = SchemaRegistry(registry.address, properties={"use.latest.version": True})
        with pytest.raises(UnsupportedSchemaError, match="which is not executed here, and a value is not written"):
            latest.avro("orders-value", ORDER).encode({"item": "tea"})


@pytest.mark.parametrize(
    "rules",
    [
        {"domainRules": [{**CHECKS, "mode": "READ"}]},
        {"domainRules": [{**ENCRYPTS, "disabled": True}]},
        {"domainRules": [ENCRYPTS], "enableAt": "GATEWAY"},
        {"migrationRules": [{**ENCRYPTS, "mode": "UPGRADE"}]},
        {"domainRules": None},
    ],
)
def test_rules_that_do_not_concern_a_writer_are_no_hindrance(registry: RegistryForTests, rules: Any) -> None:
    """Those of readers, of gateways, of migrations, and those that are switched off."""
    registry.more[1] = {"ruleSet": rules}
    assert SchemaRegistry(registry.address).avro("orders-value", ORDER).encode({"item": "tea"})


def test_an_encrypted_value_is_an_error_that_says_so(registry: RegistryForTests) -> None:
    """It would be read as if its text were the value."""
    registry.schemas[1] = json.dumps(ORDER)
    registry.more[1] = {"ruleSet": {"domainRules": [ENCRYPTS]}}
    with pytest.raises(UnsupportedSchemaError, match=r"encrypted by the rule hide \(ENCRYPT\), and are not decrypted"):
        SchemaRegistry(registry.address).avro("orders-value", ORDER).decode(with_id(1, b"\6tea"))


def test_a_mock_is_shared_by_its_name() -> None:
    """As in Confluent's clients: a registry in this process, for tests."""
    name = f"mock://{uuid.uuid4()}"
    data = SchemaRegistry(name).avro("orders-value", ORDER).encode({"item": "tea"})
    assert SchemaRegistry(name).avro("orders-value").decode(data) == {"item": "tea"}
    with pytest.raises(UnknownSchemaError):
        SchemaRegistry(f"{name}-other").avro("orders-value").decode(data)
    found = SchemaRegistry(name).register("orders-value", json.dumps(ORDER))
    assert found["id"] == int.from_bytes(data[1:5], "big")


def test_the_id_of_a_schema_may_stand_in_a_header() -> None:
    """A GUID under Confluent's name, for keys and for values; also before the value."""
    schemas = SchemaRegistry(f"mock://{uuid.uuid4()}")
    codec = record_codec(schemas.avro("counts-value", '"int"'))
    data = codec.encode(7)
    assert data == with_id(1, b"\x0e")
    client: Any = schemas._serializers()._client
    guid = b"\1" + uuid.UUID(client.get_latest_version("counts-value").guid).bytes
    headers = [("other", b"x"), ("__value_schema_id", guid)]
    assert codec.decode_at(b"\x0e", RecordPlace("counts", False, headers)) == 7
    assert codec.decode_at(b"\x0e", RecordPlace("counts", True, [("__key_schema_id", guid)])) == 7
    assert codec.decode(guid + b"\x0e") == 7
    with pytest.raises(ClientError, match="does not begin with a schema's id"):
        codec.decode_at(b"\x0e", RecordPlace("counts", True, headers))
    with pytest.raises(ClientError, match="does not begin with a schema's id"):
        codec.decode_at(b"\x0e", RecordPlace("counts", False, [("__value_schema_id", b"\1\2")]))


def test_a_value_without_bytes_is_read() -> None:
    """A record without fields has nothing behind its id."""
    codec = SchemaRegistry(f"mock://{uuid.uuid4()}").avro("e-value", {"type": "record", "name": "E", "fields": []})
    assert codec.encode({}) == with_id(1, b"")
    assert codec.decode(with_id(1, b"")) == {}


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        ("TOPIC", {"registry-a-value", "registry-a-key", "registry-b-value", "registry-b-key"}),
        ("RECORD", {"Order"}),
        ("TOPIC_RECORD", {"registry-a-Order", "registry-b-Order"}),
    ],
)
def test_a_strategy_makes_the_subject_of_topic_and_record(
    registry: RegistryForTests, barnabas_cluster: Cluster, strategy: str, subjects: set[str]
) -> None:
    """One codec for the keys and the values of several topics."""
    schemas = SchemaRegistry(registry.address, properties={"subject.name.strategy.type": strategy})
    codec = schemas.avro(None, ORDER)
    topics = ["registry-a", "registry-b"]
    servers = {"bootstrap.servers": barnabas_cluster.bootstrap_servers}
    with Producer(servers, key_serializer=codec, serializer=codec) as producer:
        for topic in topics:
            barnabas_cluster.create_topic(topic)
            producer.send(topic, {"item": "tea"}, key={"item": "key"}).result(60)
    assert set(registry.subjects) == subjects
    group = {"group.id": f"g-{strategy}", "auto.offset.reset": "earliest"}
    with Consumer({**servers, **group}, key_deserializer=codec, deserializer=codec) as consumer:
        consumer.subscribe(topics)
        records = [consumer.poll(60) for _ in topics]
    assert {(each.topic, each.key["item"], each.value["item"]) for each in records if each} == {
        (topic, "key", "tea") for topic in topics
    }


def test_a_codec_without_a_subject_needs_a_topic(registry: RegistryForTests) -> None:
    """By itself it cannot know one."""
    with pytest.raises(ConfigurationError, match="has no subject, and no topic"):
        SchemaRegistry(registry.address).avro(None, ORDER).encode({"item": "tea"})


def test_what_is_not_known_is_refused_when_the_registry_is_named() -> None:
    """Properties, strategies, tokens beside a login, certificates that are not there."""
    address = "http://127.0.0.1:1"
    for properties, wrong in (
        ({"auto.register.schema": True}, "auto.register.schema: no property of codecs"),
        ({"subject.name.strategy.type": "ASSOCIATED"}, "TOPIC, RECORD, TOPIC_RECORD are expected"),
    ):
        with pytest.raises(ConfigurationError, match=wrong):
            SchemaRegistry(address, properties=properties)
    with pytest.raises(ConfigurationError, match="one of them"):
        SchemaRegistry(address, username="ann", token="t")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        SchemaRegistry("https://127.0.0.1:1", ca_file="/nowhere/ca.pem")
    with pytest.raises(ConfigurationError, match="is no JSON schema"):
        SchemaRegistry(address).json_schema("drinks-value", {"type": 7})


def test_patterns_of_json_schema_are_those_of_re2(registry: RegistryForTests) -> None:
    """Neither a writer nor a reader waits for one that Python's re would try for ever, and one that
    RE2 does not have is refused."""
    schemas = SchemaRegistry(registry.address)
    codec = schemas.json_schema("names-value", {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})
    assert codec.decode(codec.encode({"a": "aa"})) == {"a": "aa"}
    text = "a" * 500 + "!"
    with pytest.raises(SerializationError, match="does not match"):
        codec.encode({"a": text})
    with pytest.raises(ClientError, match="does not match"):
        codec.decode(with_id(1, json.dumps({"a": text}).encode()))
    with pytest.raises(ConfigurationError, match="is no JSON schema: the pattern .* is not one of RE2"):
        schemas.json_schema("other-value", {"type": "object", "properties": {"a": {"pattern": "(?!a)"}}})


def test_a_token_is_sent_and_the_second_address_asked_while_the_first_is_silent(registry: RegistryForTests) -> None:
    """A list of addresses is one registry."""
    schemas = SchemaRegistry(f"http://127.0.0.1:1, {registry.address}", token="t0ken")
    schemas.avro("orders-value", ORDER).encode({"item": "tea"})
    assert registry.logins == {"Bearer t0ken"}


def test_another_kind_of_schema_is_named(registry: RegistryForTests) -> None:
    """A codec of Avro does not read what JSON Schema wrote."""
    data = SchemaRegistry(registry.address).json_schema("drinks-value", DRINK).encode({"cups": 1})
    with pytest.raises(UnsupportedSchemaError, match="schema 1 is one of JSON, not of AVRO"):
        SchemaRegistry(registry.address).avro("orders-value", ORDER).decode(data)
    assert JSON.decode(data[5:]) == {"cups": 1}
