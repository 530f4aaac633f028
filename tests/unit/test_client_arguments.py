"""What callers write by habit: other spellings of properties, a text for a mapping,
bytes for text."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.base.errors import ConfigError
from barnabas.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConfigurationError,
    Consumer,
    Delivery,
    DeliveryError,
    Producer,
)
from barnabas.client.properties.names import CLIENT_PROPERTIES
from barnabas.testing import Cluster, VirtualCluster, simulate
from barnabas.testing.virtual.properties import consumer_settings, producer_settings

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


def in_a_loop(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The asyncio clients are made inside a running loop."""

    async def made(given: Any) -> Any:
        return make(given)

    return lambda given: asyncio.run(made(given))


CLIENTS = {
    "Producer": Producer,
    "Consumer": Consumer,
    "Admin": Admin,
    "AsyncProducer": in_a_loop(AsyncProducer),
    "AsyncConsumer": in_a_loop(AsyncConsumer),
    "AsyncAdmin": in_a_loop(AsyncAdmin),
    "VirtualProducer": producer_settings,
    "VirtualConsumer": consumer_settings,
}


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def client(request: pytest.FixtureRequest) -> Any:
    """Each class of client, of those in virtual time what reads their properties."""
    return request.param


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"bootstrap_servers": "localhost:9092"}, "bootstrap.servers"),
        ({"bootstrap_servers": ["localhost:9092"]}, "bootstrap.servers"),
        ({**SERVERS, "client_id": "me"}, "client.id"),
        ({**SERVERS, "request_timeout_ms": 5}, "request.timeout.ms"),
        ({**SERVERS, "security_protocol": "SASL_SSL"}, "security.protocol"),
        ({**SERVERS, "sasl_plain_password": "secret"}, "sasl.password"),
        ({**SERVERS, "ssl_cafile": "ca.pem"}, "ssl.ca.location"),
        ({**SERVERS, "max_in_flight_requests_per_connection": 1}, "max.in.flight.requests.per.connection"),
        ({**SERVERS, "auto-offset-reset": "earliest"}, "auto.offset.reset"),
        ({**SERVERS, "groupId": "g"}, "group.id"),
        ({**SERVERS, "lingr.ms": 5}, "linger.ms"),
        ({**SERVERS, "fetch_min_byte": 5}, "fetch.min.bytes"),
    ],
)
def test_a_name_in_another_spelling_is_answered_with_the_one_that_is_meant(
    client: Any, given: dict[str, Any], meant: str
) -> None:
    """Every client says so, and none ignores it."""
    with pytest.raises(ConfigurationError, match=rf"did you mean {meant}\?") as error:
        client(given)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["bootstrap.server", "bootstrap_server", "boostrap.servers", "Bootstrap.Servers"])
@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_a_misspelled_list_of_brokers_is_not_a_missing_one(client: Any, name: str) -> None:
    """The name that is there is named, before the one that is not."""
    with pytest.raises(ConfigurationError, match=rf"^{name} is not a property.*did you mean bootstrap\.servers\?"):
        client({name: "localhost:9092"})


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_without_a_list_of_brokers_the_property_is_named(client: Any) -> None:
    """The same words in each client."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        client({"client.id": "me"})


def test_each_property_is_found_by_its_name_with_underscores() -> None:
    """As kafka-python writes it."""
    for name in CLIENT_PROPERTIES:
        spelled = name.replace(".", "_")
        if spelled not in CLIENT_PROPERTIES:
            with pytest.raises(
                ConfigurationError, match=rf"{spelled} is not a property of clients; did you mean {name}\?"
            ):
                Admin({**SERVERS, spelled: "x"})


@pytest.mark.parametrize("given", ["localhost:9092", b"localhost:9092", ["localhost:9092"], [("a", 1)], None, 7])
def test_anything_but_a_mapping_is_refused_with_an_example(client: Any, given: object) -> None:
    """A text is put into the example."""
    with pytest.raises(
        ConfigurationError, match=r'takes a mapping of properties, .*\{"bootstrap\.servers": "localhost:9092"\}'
    ):
        client(given)


def test_a_name_that_is_no_text_is_refused(client: Any) -> None:
    """Instead of librdkafka's error of types."""
    with pytest.raises(ConfigurationError, match="7 is not the name of a property"):
        client({**SERVERS, 7: "x"})


def test_brokers_may_be_a_list() -> None:
    """As in kafka-python and Java."""
    brokers = ["127.0.0.1:1", "127.0.0.1:2"]
    Admin({"bootstrap.servers": brokers}).close()
    assert producer_settings({"bootstrap.servers": brokers}).plan.librdkafka["bootstrap.servers"] == ",".join(brokers)
    Producer({"bootstrap.servers": brokers}).close()


def test_bytes_and_text_are_sent_as_they_are_and_a_receipt_says_where() -> None:
    """Without a serializer; a receipt reads as topic, partition and offset."""

    async def send(properties: dict[str, Any]) -> Delivery:
        async with AsyncProducer(properties) as producer:
            return await producer.send("orders", b"\xe2\x82\xac", key="key")

    with Cluster() as cluster:
        properties = {"bootstrap.servers": cluster.bootstrap_servers}
        with Producer(properties) as producer:
            waiting = producer.send("orders", "\u20ac", key=b"key")
            assert repr(waiting) in ("<Receipt: on its way>", "<Receipt: orders-0@0>")
            assert str(waiting.result()) == str(waiting) == "orders-0@0"
            assert repr(waiting) == "<Receipt: orders-0@0>"
        assert str(asyncio.run(send(properties))) == "orders-0@1"
        with Consumer({**properties, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["orders"])
            records = [consumer.poll(10), consumer.poll(10)]
        assert [(record.key, record.value) for record in records if record] == [("key", "\u20ac")] * 2


def test_a_receipt_of_a_failed_record_says_why() -> None:
    """And the delivery of one that no broker acknowledges has no offset."""
    producer = Producer({**SERVERS, "delivery.timeout.ms": 100, "log_level": 0})
    receipt = producer.send("orders", "x")
    with pytest.raises(DeliveryError):
        receipt.result()
    assert str(receipt).startswith("a record for orders was not delivered")
    producer.close()
    assert str(Delivery("orders", 3, -1)) == "orders-3"


def test_bytes_are_sent_in_virtual_time_too() -> None:
    """The same rule in the simulated cluster."""

    async def scenario(cluster: VirtualCluster) -> str:
        await cluster.create_topic("orders")
        async with cluster.producer() as producer:
            return str(await producer.send("orders", b"bytes"))

    assert simulate(scenario).value == "orders-0@0"
