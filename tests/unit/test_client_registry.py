"""Avro and Protobuf with a registry: the bytes of Confluent's format, schemas that change, and
a registry that refuses."""

import base64
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from barnabas.client import (
    ClientError,
    ConfigurationError,
    ConnectError,
    Consumer,
    DeserializationError,
    Producer,
    SchemaRegistry,
    SerializationError,
)
from barnabas.client.registry.wire_format import split_message_indexes
from barnabas.testing import Cluster
from support.registry import RegistryForTests, serving, with_id

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
WITH_TABLE = {**ORDER, "fields": [*ORDER["fields"], {"name": "table", "type": "int", "default": 7}]}


@pytest.fixture
def registry() -> Iterator[RegistryForTests]:
    """One that runs."""
    with RegistryForTests() as running:
        yield running


def messages() -> dict[str, Any]:
    """Classes as protoc makes them: Tea, Order, and Order.Line within it."""
    file = descriptor_pb2.FileDescriptorProto(name="registry_order.proto", package="registry_shop", syntax="proto3")
    for name in ("Tea", "Order"):
        message = file.message_type.add(name=name)
        message.field.add(name="item", number=1, type=9, label=1)
    file.message_type[1].nested_type.add(name="Line").field.add(name="count", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    order = found["registry_shop.Order"]
    line = message_factory.GetMessageClass(order.DESCRIPTOR.nested_types_by_name["Line"])
    return {"Tea": found["registry_shop.Tea"], "Order": order, "Line": line}


def test_avro_goes_both_ways_in_confluents_format(registry: RegistryForTests) -> None:
    """A zero byte, the id, and what fastavro writes; the registry is asked once."""
    codec = SchemaRegistry(registry.address).avro("orders-value", ORDER)
    data = codec.encode({"item": "espresso"})
    plain = io.BytesIO()
    fastavro.schemaless_writer(plain, fastavro.parse_schema(dict(ORDER)), {"item": "espresso"})
    (schema_id,) = registry.schemas
    assert data == with_id(schema_id, plain.getvalue())
    assert json.loads(registry.schemas[schema_id]) == ORDER
    codec.encode({"item": "tea"})
    assert codec.decode(data) == {"item": "espresso"}
    registered, read = registry.asked
    assert (registered.partition("?")[0], read) == ("/subjects/orders-value/versions", f"/schemas/ids/{schema_id}")


def test_a_reader_with_a_newer_schema_fills_in_its_defaults(registry: RegistryForTests) -> None:
    """Each side has its own version; the id says in which one the value is written."""
    old = SchemaRegistry(registry.address).avro("orders-value", json.dumps(ORDER))
    new = SchemaRegistry(registry.address).avro("orders-value", WITH_TABLE)
    assert new.decode(old.encode({"item": "tea"})) == {"item": "tea", "table": 7}
    assert old.decode(new.encode({"item": "tea", "table": 3})) == {"item": "tea"}


@pytest.mark.parametrize(("name", "indexes"), [("Tea", b"\0"), ("Order", b"\x02\x02"), ("Line", b"\x04\x02\x00")])
def test_protobuf_names_its_message_by_its_indexes(name: str, indexes: bytes, registry: RegistryForTests) -> None:
    """The first message has a byte of its own, others the zigzag numbers of Confluent's format."""
    kinds = messages()
    codec = SchemaRegistry(registry.address).protobuf("orders-value", kinds[name])
    value = kinds[name](count=3) if name == "Line" else kinds[name](item="espresso")
    data = codec.encode(value)
    assert data == with_id(1, indexes + value.SerializeToString())
    assert codec.decode(data) == value


def test_the_first_message_may_be_written_in_full(registry: RegistryForTests) -> None:
    """Clients may write [0] as one zero byte, or as a count and a number."""
    kinds = messages()
    codec = SchemaRegistry(registry.address).protobuf("orders-value", kinds["Tea"])
    tea = kinds["Tea"](item="green")
    codec.encode(tea)
    assert codec.decode(with_id(1, b"\x02\x00" + tea.SerializeToString())) == tea


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut off"),
        (b"\x04\x02", "cut off"),
        (b"\x02\x80", "cut off"),
        (b"\xff" * 9, "cut off"),
        (b"\x02\x01", "negative"),
    ],
)
def test_damaged_indexes_are_refused(data: bytes, message: str) -> None:
    """A negative index would count from the end of the file."""
    with pytest.raises(ClientError, match=message):
        split_message_indexes(data)


def test_another_message_of_the_file_is_refused(registry: RegistryForTests) -> None:
    """Protobuf's bytes would fit by chance."""
    kinds = messages()
    schemas = SchemaRegistry(registry.address)
    tea, order = (schemas.protobuf("orders-value", kinds[name]) for name in ("Tea", "Order"))
    with pytest.raises(ClientError, match=r"another message .* than registry_shop\.Order"):
        order.decode(tea.encode(kinds["Tea"](item="green")))
    with pytest.raises(SerializationError, match="a Tea is not a Order"):
        order.encode(kinds["Tea"](item="green"))


def test_records_travel_with_their_schemas(registry: RegistryForTests, barnabas_cluster: Cluster) -> None:
    """Through a broker, with a key and a value; what does not fit its schema is
    refused at the send."""
    schemas = SchemaRegistry(registry.address, username="ann", password="secret")
    key, value = schemas.avro("orders-key", '"string"'), schemas.avro("orders-value", ORDER)
    settings = {"bootstrap.servers": barnabas_cluster.bootstrap_servers}
    barnabas_cluster.create_topic("orders")
    with Producer(settings, key_serializer=key, serializer=value) as producer:
        producer.send("orders", {"item": "espresso"}, key="table-7").result(60)
        with pytest.raises(SerializationError):
            producer.send("orders", {"itme": "tea"})
    with Producer(settings) as producer:
        producer.send("orders", "no schema").result(60)
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer({**settings, **group}, key_deserializer=key, deserializer=value) as consumer:
        consumer.subscribe(["orders"])
        record = consumer.poll(60)
        assert record is not None
        assert (record.key, record.value) == ("table-7", {"item": "espresso"})
        with pytest.raises(DeserializationError, match="does not begin with a schema's id"):
            consumer.poll(60)
    assert registry.logins == {"Basic YW5uOnNlY3JldA=="}


def test_a_schema_that_must_be_there_is_looked_up_and_not_registered(registry: RegistryForTests) -> None:
    """The registry's word is in the error."""
    codec = SchemaRegistry(registry.address, register=False).avro("orders-value", ORDER)
    with pytest.raises(ConfigurationError, match="refuses the schema of orders-value: Subject not found"):
        codec.encode({"item": "tea"})
    assert registry.schemas == {}
    SchemaRegistry(registry.address).avro("orders-value", ORDER).encode({"item": "tea"})
    assert codec.encode({"item": "tea"})[:5] == struct.pack(">bI", 0, 1)


def test_a_registry_that_is_not_there_is_named() -> None:
    """A codec can be made without it, a value not."""
    codec = SchemaRegistry("http://127.0.0.1:1").avro("orders-value", ORDER)
    with pytest.raises(ConnectError, match="the registry at http://127.0.0.1:1 does not answer"):
        codec.encode({"item": "tea"})
    with pytest.raises(ConnectError, match="does not answer"):
        codec.decode(with_id(1, b""))


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\1\0\0\0\1x"])
def test_bytes_without_a_schemas_id_are_refused(data: bytes) -> None:
    """Before the registry is asked."""
    codec = SchemaRegistry("http://127.0.0.1:1").avro("orders-value", ORDER)
    with pytest.raises(ClientError, match="does not begin with a schema's id"):
        codec.decode(data)


def test_what_cannot_be_a_schema_or_an_address_is_refused() -> None:
    """When the codec is made."""
    with pytest.raises(ConfigurationError, match="no Avro schema"):
        SchemaRegistry("http://127.0.0.1:1").avro("orders-value", '{"type": "recrod"}')
    with pytest.raises(ConfigurationError, match="is not a registry's address"):
        SchemaRegistry("127.0.0.1:8081")
    for address in (
        "http://ann:s3cret@",
        "htp://ann:s3cret@host",
        "http://ann:s3/cret@host",
        "http://ann:s3cret@host:x",
    ):
        with pytest.raises(ConfigurationError, match="is not a registry's address") as refused:
            SchemaRegistry(address)
        assert "s3" not in str(refused.value)


def test_a_login_in_the_address_is_used_and_not_shown(registry: RegistryForTests) -> None:
    """Its escapes are taken out."""
    address = registry.address.replace("//", "//ann:s%40cret@")
    schemas = SchemaRegistry(address)
    schemas.avro("orders-value", ORDER).encode({"item": "tea"})
    assert registry.logins == {"Basic " + base64.b64encode(b"ann:s@cret").decode()}
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        SchemaRegistry(registry.address, username="ann", password="\udcff")
    with pytest.raises(ConnectError, match=r"at http://127\.0\.0\.1:1 does not answer"):
        SchemaRegistry("http://ann:s3cret@127.0.0.1:1").avro("orders-value", ORDER).encode({"item": "tea"})


@pytest.mark.parametrize(
    "answer", [b"junk\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n7", b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\nx"]
)
def test_an_answer_that_is_none_is_an_error_of_the_client(answer: bytes) -> None:
    """Never one of urllib's."""
    with (
        serving(answer) as address,
        pytest.raises((ConnectError, ConfigurationError), match=f"the registry at {address}"),
    ):
        SchemaRegistry(address).avro("orders-value", ORDER).encode({"item": "tea"})


def test_a_redirect_to_another_server_is_not_followed(registry: RegistryForTests) -> None:
    """It would get the password."""
    redirect = f"HTTP/1.1 302 Found\r\nLocation: {registry.address}/schemas/ids/1\r\nContent-Length: 0\r\n\r\n"
    with serving(redirect.encode()) as address:
        codec = SchemaRegistry(address, username="ann", password="s3cret").avro("orders-value", ORDER)
        with pytest.raises(ConfigurationError, match=f"it redirects to {registry.address}"):
            codec.decode(with_id(1, b""))
    assert registry.asked == []


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("{}", "gives no id for orders-value"),
        ('{"id": "x"}', "gives no id for orders-value"),
        ('{"id": true}', "gives no id for orders-value"),
        ('{"id": -1}', "gives no id for orders-value"),
        ('{"id": 9999999999999}', "gives no id for orders-value"),
        ("[1]", "is no JSON object: is it a registry?"),
        ("[" * 100_000, "is nested too deeply: is it a registry?"),
        (" " * (17 << 20), "has more than 16 MiB: is it a registry?"),
    ],
)
def test_an_answer_that_no_registry_gives_is_refused(answer: str, wrong: str) -> None:
    """A line says where it came from."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
    with serving((head + answer).encode()) as address, pytest.raises(ConfigurationError, match=wrong):
        SchemaRegistry(address).avro("orders-value", ORDER).encode({"item": "espresso"})
