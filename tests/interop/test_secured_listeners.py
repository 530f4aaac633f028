"""Clients that are not ours at brokers with TLS and SASL: librdkafka, aiokafka,
kafka-python, kcat, Apache's tools."""

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaProducer

from barnabas.testing import Cluster
from support.needs import needs, needs_reference
from support.reference import apache_tool
from support.waiting import eventually

pytestmark = [pytest.mark.interop, needs("openssl")]

PASSWORD = 'one, "two"\\three'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    """One broker with SASL over TLS."""
    with Cluster(security="SASL_SSL", users={"ann": PASSWORD, "kay": "simple"}) as cluster:
        for name in ("rdkafka", "aio", "python", "kcat", "java"):
            cluster.create_topic(name)
        yield cluster


@pytest.fixture(scope="module")
def with_certificates() -> Iterator[Cluster]:
    """One broker whose clients show certificates."""
    with Cluster(security="SSL") as cluster:
        cluster.create_topic("certified")
        yield cluster


def check_librdkafka_reports(properties: dict[str, str], *names: str) -> None:
    """One of these errors comes to a client with these properties, and no list of topics."""
    errors: list[KafkaError] = []
    client = Producer({**properties, "error_cb": errors.append, "log_level": 0})
    eventually(lambda: client.poll(0.1) or {error.name() for error in errors} & {*names}, what=f"an error of {names}")
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)


def read(properties: dict[str, str], topic: str, count: int) -> list[bytes]:
    """Values from the topic's beginning, by librdkafka."""
    consumer = Consumer({**properties, "group.id": str(uuid4()), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), 60)
        assert messages, "no record within 60 seconds"
        values += [message.value() for message in messages if not message.error()]
    consumer.close()
    return values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads_with_each_mechanism(secured: Cluster, mechanism: str) -> None:
    """Frames of a megabyte too, which span many records of TLS."""
    producer = Producer({**secured.client_properties(mechanism=mechanism), "acks": "all"})
    large = mechanism.encode() * 50_000
    producer.produce("rdkafka", large)
    assert producer.flush(60) == 0
    assert large in read(secured.client_properties(mechanism=mechanism), "rdkafka", 1 + MECHANISMS.index(mechanism))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_reports_a_wrong_password(secured: Cluster, mechanism: str) -> None:
    """As a failed authentication, not as a broken connection."""
    properties = {**secured.client_properties(mechanism=mechanism), "sasl.password": "wrong"}
    check_librdkafka_reports(properties, "_AUTHENTICATION")


def test_librdkafka_reports_a_certificate_that_it_does_not_trust_and_one_that_it_lacks(
    secured: Cluster, with_certificates: Cluster
) -> None:
    """Both are errors of TLS."""
    stranger = with_certificates.client_properties()["ssl.ca.location"]
    check_librdkafka_reports({**secured.client_properties(), "ssl.ca.location": stranger}, "_SSL")
    properties = with_certificates.client_properties()
    producer = Producer(properties)
    producer.produce("certified", b"x")
    assert producer.flush(60) == 0
    del properties["ssl.certificate.location"], properties["ssl.key.location"]
    check_librdkafka_reports(properties, "_SSL", "_ALL_BROKERS_DOWN", "_TRANSPORT")


def test_aiokafka_writes_and_reads(secured: Cluster) -> None:
    """Its SCRAM is its own, on Python's TLS."""
    properties = secured.client_properties()
    options = {
        "bootstrap_servers": secured.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=properties["ssl.ca.location"]),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "ann",
        "sasl_plain_password": PASSWORD,
    }

    async def run() -> bytes | None:
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("aio", b"by aiokafka")
        async with AIOKafkaConsumer("aio", auto_offset_reset="earliest", group_id="aio", **options) as consumer:
            message = await asyncio.wait_for(consumer.getone(), 60)
            return message.value

    assert asyncio.run(run()) == b"by aiokafka"


def test_kafka_python_writes(secured: Cluster) -> None:
    """By PLAIN."""
    options = {
        "bootstrap_servers": secured.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secured.client_properties()["ssl.ca.location"],
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ann",
    }
    producer = KafkaProducer(sasl_plain_password=PASSWORD, **options)
    assert producer.send("python", b"by kafka-python").get(60).offset == 0
    producer.close()


@needs("kcat")
def test_kcat_writes_and_reads(secured: Cluster) -> None:
    """With the librdkafka of its distribution."""
    # Kcat takes commas for the ends of values.
    properties = secured.client_properties("kay", "SCRAM-SHA-512")
    servers = properties.pop("bootstrap.servers")
    options = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
    for mode, text in ((["-P"], "by kcat\n"), (["-C", "-e", "-q", "-o", "beginning"], "")):
        command = ["kcat", "-b", servers, "-t", "kcat", *mode, *options]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "by kcat\n"


@pytest.mark.java
@needs_reference
def test_apaches_tools_write_and_change_users(secured: Cluster, tmp_path: Path) -> None:
    """ConsoleProducer by SCRAM; ConfigCommand gives a new user a password, with
    which that user writes."""

    def config(user: str, mechanism: str, **changes: str) -> str:
        properties = secured.client_properties(user, mechanism, java=True) | changes
        escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
        path = tmp_path / f"{user}-{mechanism}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
        return str(path)

    servers = ("--bootstrap-server", secured.bootstrap_servers)
    added = apache_tool(
        "kafka.admin.ConfigCommand",
        *(*servers, "--command-config", config("ann", "PLAIN"), "--alter", "--entity-type", "users"),
        *("--entity-name", "bob c", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=bobs]"),
    )
    assert added.returncode == 0, added.stdout + added.stderr
    jaas = secured.client_properties(java=True)["sasl.jaas.config"].partition(" username=")[0]
    as_bob = config("ann", "SCRAM-SHA-256", **{"sasl.jaas.config": f'{jaas} username="bob c" password="bobs";'})
    sent = apache_tool(
        "kafka.tools.ConsoleProducer", *servers, "--topic", "java", "--producer.config", as_bob, text="by java\n"
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert "Authentication" not in sent.stderr
    assert read(secured.client_properties(), "java", 1) == [b"by java"]
