"""kaskade, a terminal user interface for Kafka, unchanged, on our cluster and our registry.

It is driven by keys in a terminal, and judged by what a person sees.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.client import Consumer, Producer
from barnabas.testing import Cluster
from support.environments import python_of
from support.screens import Screen

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ORDERS = 5
SCHEMA = """{"type": "record", "name": "Order", "fields": [
    {"name": "drink", "type": "string"}, {"name": "cups", "type": "int"}]}"""
CTRL_C = b"\x03"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers and a registry; orders in Avro, of which a group has read one."""
    with Cluster(brokers=3, registry=True) as running:
        running.create_topic("orders", partitions=2, replication_factor=3)
        client = SchemaRegistryClient(running.registry.client_properties())
        serializer = AvroSerializer(client, SCHEMA)
        context = SerializationContext("orders", MessageField.VALUE)
        with Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for number in range(ORDERS):
                value = serializer({"drink": f"espresso-{number}", "cups": number}, context)
                producer.send("orders", value, key=f"table-{number}")
        options = {"bootstrap.servers": running.bootstrap_servers, "group.id": "kitchen"}
        with Consumer({**options, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["orders"])
            next(iter(consumer))
        yield running


@contextmanager
def kaskade(home: Path, *words: str) -> Iterator[Screen]:
    """One of its modes, ended by Ctrl-C."""
    program = str(python_of("kaskade").with_name("kaskade"))
    screen = Screen(program, *words, size=(120, 40), env={"HOME": str(home)})
    try:
        yield screen
        screen.press(CTRL_C)
        screen.end()
    finally:
        screen.close()


def test_its_admin_mode_shows_topics_partitions_and_groups(cluster: Cluster, tmp_path: Path) -> None:
    """With their replicas, records and lag."""
    with kaskade(tmp_path, "admin", "-b", cluster.bootstrap_servers) as screen:
        screen.wait_for(lambda text: re.search(rf"orders +2 +3 +3 +1 +0 +≈{ORDERS} ", text) is not None)
        screen.press(b"\r")
        screen.wait_for("Topic Details [__consumer_offsets]")
        screen.wait_for(lambda text: re.search(r"Partitions \[5\] +Configurations \[\d\d\]", text) is not None)
        screen.wait_for(lambda text: len(re.findall(r"\[[012], [012], [012]\] +\[[012], [012], [012]\]", text)) == 5)


@pytest.mark.parametrize("value", ["registry", "bytes"])
def test_its_consumer_mode_shows_records(value: str, cluster: Cluster, tmp_path: Path) -> None:
    """Keys as text, and values in Avro by our registry as JSON, or as bytes."""
    options = ["--registry", f"url={cluster.registry.url}"] if value == "registry" else []
    words = ["consumer", "-b", cluster.bootstrap_servers, "-t", "orders", "--earliest", "-k", "string", "-v", value]
    with kaskade(tmp_path, *words, *options) as screen:
        keys = [f"table-{number}" for number in range(ORDERS)]
        values = [f"espresso-{number}" for number in range(ORDERS)] if value == "registry" else []
        screen.wait_for(lambda text: all(shown in text for shown in (*keys, *values)))
