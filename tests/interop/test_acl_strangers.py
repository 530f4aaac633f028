"""Clients that are not ours, without one right each: librdkafka, kafka-python, aiokafka, franz-go,
Sarama and Apache's tools name what is missing by their own errors, on our broker as on Apache's.

CI runs the clients in Python and one tool on ours; BARNABAS_RIGHTS=all runs all on both.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclBinding, AdminClient, NewTopic
from confluent_kafka.admin import AclOperation as RdOperation
from confluent_kafka.admin import AclPermissionType as RdPermission
from confluent_kafka.admin import ResourcePatternType as RdPattern
from confluent_kafka.admin import ResourceType as RdType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
)
from kafka.admin import NewTopic as PyNewTopic
from kafka.admin import ResourceType as PyType
from kafka.errors import KafkaError as PyKafkaError

from barnabas.security.acls import AclOperation
from support.acl_rights import Right, cluster, group, topic, transactional_id
from support.acl_sides import PASSWORD, USER, Side, apache_side, our_side
from support.needs import needs, needs_reference
from support.reference import apache_tool
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

ALL = os.environ.get("BARNABAS_RIGHTS") == "all"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP, TRANSACTION = "orders", "readers-café", "payments-café"
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION = "topic", "group", "cluster", "transactional id"
"""Resources to which a right is missing."""
LIMIT_S = 60
GO = Path(__file__).parents[1] / "other_languages" / "go"

READER = (topic(READ, TOPIC), group(READ, GROUP))
WRITER = (topic(WRITE, TOPIC), transactional_id(WRITE, TRANSACTION))


class Lack(NamedTuple):
    """What a client tries, with which rights, and to what a right is missing."""

    attempt: Callable[[str], str]
    """Takes the broker's address, returns the name of the error that the client raises."""
    rights: tuple[Right, ...]
    missing: str


# librdkafka


def rd_login(address: str, **more: Any) -> dict[str, Any]:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD, "log_level": 0}
    return {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", **login, **more}


def rd_produces(address: str) -> str:
    errors: list[KafkaError] = []
    producer = Producer(rd_login(address))
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(LIMIT_S)
    return errors[0].name()


def rd_produces_with_idempotence(address: str) -> str:
    errors: list[KafkaError] = []
    producer = Producer(rd_login(address, **{"enable.idempotence": True, "error_cb": errors.append}))
    try:
        eventually(lambda: producer.poll(0.1) or errors, timeout_s=LIMIT_S, what="a fatal error")
    except KafkaException as fatal:  # which comes to both
        return fatal.args[0].name()
    return errors[0].name()


def rd_begins_a_transaction(address: str) -> str:
    producer = Producer(rd_login(address, **{"transactional.id": TRANSACTION}))
    return rd_error(lambda: producer.init_transactions(LIMIT_S))


def rd_consumes(address: str) -> str:
    consumer = Consumer(rd_login(address, **{"group.id": GROUP}))
    with contextlib.closing(consumer):
        consumer.subscribe([TOPIC])
        message = eventually(lambda: consumer.poll(1), timeout_s=LIMIT_S, what="an error")
        return message.error().name()


def rd_creates_a_topic(address: str) -> str:
    admin = AdminClient(rd_login(address))
    future = admin.create_topics([NewTopic("hidden", 1, 1)])["hidden"]
    return rd_error(lambda: future.result(LIMIT_S))


def rd_creates_an_acl(address: str) -> str:
    admin = AdminClient(rd_login(address))
    binding = AclBinding(RdType.TOPIC, "t", RdPattern.LITERAL, "User:bob", "*", RdOperation.READ, RdPermission.ALLOW)
    future = admin.create_acls([binding])[binding]
    return rd_error(lambda: future.result(LIMIT_S))


def rd_error(call: Callable[[], object]) -> str:
    with pytest.raises(KafkaException) as caught:
        call()
    return caught.value.args[0].name()


# kafka-python


def py_login(address: str, **more: Any) -> dict[str, Any]:
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return {"bootstrap_servers": address, "security_protocol": "SASL_PLAINTEXT", **login, **more}


def py_produces(address: str) -> str:
    with contextlib.closing(KafkaProducer(**py_login(address))) as producer:
        return py_error(lambda: producer.send(TOPIC, b"v").get(LIMIT_S))


def py_begins_a_transaction(address: str) -> str:
    with contextlib.closing(KafkaProducer(**py_login(address, transactional_id=TRANSACTION))) as producer:
        return py_error(producer.init_transactions)


def py_consumes(address: str) -> str:
    with contextlib.closing(KafkaConsumer(TOPIC, **py_login(address, group_id=GROUP))) as consumer:
        return py_error(lambda: consumer.poll(LIMIT_S * 1000))


def py_creates_a_topic(address: str) -> str:
    with contextlib.closing(KafkaAdminClient(**py_login(address))) as admin:
        return py_error(lambda: admin.create_topics([PyNewTopic("hidden", 1, 1)]))


def py_lists_acls(address: str) -> str:
    anything = ResourcePatternFilter(PyType.ANY, None, ACLResourcePatternType.ANY)
    every = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
    with contextlib.closing(KafkaAdminClient(**py_login(address))) as admin:
        return py_error(lambda: admin.describe_acls(every))


def py_error(call: Callable[[], object]) -> str:
    with pytest.raises(PyKafkaError) as caught:
        call()
    # What idempotence lacks is wrapped.
    return f"{type(caught.value).__name__} {caught.value}"


# aiokafka


def aio(work: Callable[[], Any]) -> str:
    """The name of the error."""

    async def run() -> str:
        try:
            await asyncio.wait_for(work(), LIMIT_S)
        except TimeoutError:
            raise
        except Exception as error:
            return type(error).__name__
        return "no error"

    return asyncio.run(run())


def aio_produces(address: str) -> str:
    async def work() -> None:
        async with AIOKafkaProducer(**py_login(address)) as producer:
            await producer.send_and_wait(TOPIC, b"v")

    return aio(work)


def aio_begins_a_transaction(address: str) -> str:
    async def work() -> None:
        async with AIOKafkaProducer(**py_login(address, transactional_id=TRANSACTION)):
            pass

    return aio(work)


def aio_consumes(address: str) -> str:
    async def work() -> None:
        async with AIOKafkaConsumer(TOPIC, **py_login(address, group_id=GROUP)) as consumer:
            await consumer.getone()

    return aio(work)


def aio_creates_a_topic(address: str) -> str:
    async def work() -> str:
        admin = AIOKafkaAdminClient(**py_login(address))
        await admin.start()
        try:
            answer = await admin.create_topics([AioNewTopic("hidden", 1, 1)])
            code = answer.topic_errors[0][1]
        finally:
            await admin.close()
        raise _AIO_ERRORS[code]

    return aio(work)


class TopicAuthorizationFailedError(Exception):
    """For answers that aiokafka hands on as they are."""


_AIO_ERRORS = {29: TopicAuthorizationFailedError}

LACKS = [
    Lack(rd_produces, (), NO_TOPIC),
    Lack(rd_produces, (topic(DESCRIBE, TOPIC),), NO_TOPIC),
    Lack(rd_produces_with_idempotence, (topic(DESCRIBE, TOPIC),), NO_CLUSTER),
    Lack(rd_begins_a_transaction, WRITER[:1], NO_TRANSACTION),
    Lack(rd_begins_a_transaction, (*WRITER[:1], transactional_id(DESCRIBE, TRANSACTION)), NO_TRANSACTION),
    Lack(rd_consumes, READER[:1], NO_GROUP),
    Lack(rd_consumes, (*READER[:1], group(DESCRIBE, GROUP)), NO_GROUP),
    Lack(rd_consumes, READER[1:], NO_TOPIC),
    Lack(rd_consumes, (*READER[1:], topic(DESCRIBE, TOPIC)), NO_TOPIC),
    Lack(rd_creates_a_topic, (cluster(DESCRIBE),), NO_TOPIC),
    Lack(rd_creates_an_acl, (cluster(AclOperation.CREATE),), NO_CLUSTER),
    Lack(py_produces, (), NO_TOPIC),
    Lack(py_produces, (topic(DESCRIBE, TOPIC), topic(WRITE, "another")), NO_TOPIC),
    Lack(py_produces, (topic(DESCRIBE, TOPIC),), NO_CLUSTER),
    Lack(py_begins_a_transaction, WRITER[:1], NO_TRANSACTION),
    Lack(py_consumes, READER[:1], NO_GROUP),
    # Without the right to describe the topic it waits, as for one that is not there.
    Lack(py_consumes, (*READER[1:], topic(DESCRIBE, TOPIC)), NO_TOPIC),
    Lack(py_creates_a_topic, (cluster(DESCRIBE),), NO_TOPIC),
    Lack(py_lists_acls, (cluster(AclOperation.CREATE),), NO_CLUSTER),
    Lack(aio_produces, (), NO_TOPIC),
    Lack(aio_produces, (topic(DESCRIBE, TOPIC),), NO_TOPIC),
    Lack(aio_begins_a_transaction, WRITER[:1], NO_TRANSACTION),
    Lack(aio_consumes, READER[:1], NO_GROUP),
    Lack(aio_consumes, READER[1:], NO_TOPIC),
    Lack(aio_creates_a_topic, (cluster(DESCRIBE),), NO_TOPIC),
]
WORDS = {
    NO_TOPIC: ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorization"),
    NO_GROUP: ("GROUP_AUTHORIZATION_FAILED", "GroupAuthorization"),
    NO_CLUSTER: ("CLUSTER_AUTHORIZATION_FAILED", "ClusterAuthorization"),
    NO_TRANSACTION: ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorization"),
}
"""How clients name it."""


JAVA = [pytest.mark.java, needs_reference]
SIDES = ["ours", *([pytest.param("apache", marks=JAVA)] if ALL else [])]
VERSIONS = ("3.9.1", "4.4.0") if ALL else ("3.9.1",)


@pytest.fixture(scope="module", params=SIDES)
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A broker of ours, and one of Apache's where all is asked for."""
    start = our_side if request.param == "ours" else apache_side
    with start(tmp_path_factory.mktemp(request.param)) as running:
        yield running


def give(side: Side, rights: tuple[Right, ...]) -> str:
    """Give the user these rights and no others; the address to use them at."""
    side.set_acls([entry for right in rights for entry in right.entries()])
    return f"127.0.0.1:{side.user.port}"


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: f"{lack.attempt.__name__} {' '.join(map(str, lack.rights))}")
def test_a_client_without_a_right_names_the_kind_of_resource(side: Side, lack: Lack) -> None:
    """By the error that its library has for it."""
    seen = lack.attempt(give(side, lack.rights))
    assert any(word in seen for word in WORDS[lack.missing]), seen


class Tool(NamedTuple):
    """A tool of Apache's, without a right."""

    main: str
    arguments: tuple[str, ...]
    rights: tuple[Right, ...]
    missing: str
    config: str = "--command-config"
    """The option for the client's properties."""


_PRODUCE = ("--topic", TOPIC, "--num-records", "1", "--record-size", "9", "--throughput", "-1")
_CONSUME = ("--topic", TOPIC, "--messages", "1", "--group", GROUP)
_AS_PRODUCER, _AS_CONSUMER = "--producer.config", "--consumer.config"
TOOLS = [
    Tool("ProducerPerformance", _PRODUCE, (), NO_TOPIC, _AS_PRODUCER),
    Tool("ProducerPerformance", _PRODUCE, (topic(DESCRIBE, TOPIC),), NO_CLUSTER, _AS_PRODUCER),
    Tool(
        "ProducerPerformance",
        (*_PRODUCE, "--transactional-id", TRANSACTION, "--transaction-duration-ms", "1"),
        WRITER[:1],
        NO_TRANSACTION,
        _AS_PRODUCER,
    ),
    Tool("ConsumerPerformance", _CONSUME, READER[:1], NO_GROUP, _AS_CONSUMER),
    Tool("ConsumerPerformance", _CONSUME, READER[1:], NO_TOPIC, _AS_CONSUMER),
    Tool("TopicCommand", ("--create", "--topic", "hidden"), (cluster(DESCRIBE),), NO_TOPIC),
    Tool("TopicCommand", ("--delete", "--topic", TOPIC), (topic(DESCRIBE, TOPIC),), NO_TOPIC),
    Tool(
        "consumer.group.ConsumerGroupCommand",
        ("--describe", "--group", GROUP),
        (cluster(AclOperation.CREATE),),
        NO_GROUP,
    ),
    Tool("consumer.group.ConsumerGroupCommand", ("--delete", "--group", GROUP), (group(DESCRIBE, GROUP),), NO_GROUP),
    Tool("AclCommand", ("--list",), (cluster(AclOperation.CREATE),), NO_CLUSTER),
    Tool("LogDirsCommand", ("--describe",), (cluster(AclOperation.CREATE),), NO_CLUSTER),
    Tool("TransactionsCommand", ("describe", "--transactional-id", "running"), (), NO_TRANSACTION),
]
_OF_OLD = {"AclCommand": "kafka.admin.AclCommand"}
"""Classes that have another name in 3.9.1."""


@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tool", TOOLS if ALL else TOOLS[-1:], ids=lambda tool: f"{tool.main} {tool.missing}")
def test_apaches_tools_name_it_too(side: Side, tool: Tool, version: str, tmp_path: Path) -> None:
    """By the class of their exception, which some leave out for its words."""
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\ndefault.api.timeout.ms=60000\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{USER}" password="{PASSWORD}";\n'
    )
    main = f"org.apache.kafka.tools.{tool.main}"
    if version.startswith("3"):
        main = _OF_OLD.get(tool.main, main)
    address = give(side, tool.rights)
    config = (tool.config, str(properties))
    if tool.config == _AS_PRODUCER:
        config += ("--producer-props", f"bootstrap.servers={address}")
    else:
        config += ("--bootstrap-server", address)
    done = apache_tool(main, *config, *tool.arguments, version=version, text="v\n")
    seen = done.stdout + done.stderr
    assert any(word in seen for word in (*WORDS[tool.missing], *_WORDS_OF_TOOLS[tool.missing])), seen


_WORDS_OF_TOOLS = {
    NO_TOPIC: ("Not authorized to access topics", "Topic authorization failed", "Authorization failed."),
    NO_GROUP: ("Not authorized to access group",),
    NO_CLUSTER: ("Cluster authorization failed",),
    NO_TRANSACTION: ("for transactionalId `CoordinatorKey(idValue='running', type=TRANSACTION)` failed due to auth",),
}


class Attempt(NamedTuple):
    """What the program in Go tries."""

    name: str
    rights: tuple[Right, ...]
    missing: str


ATTEMPTS = [
    Attempt("franz produces", (topic(DESCRIBE, TOPIC),), NO_TOPIC),
    Attempt("franz produces with idempotence", (topic(DESCRIBE, TOPIC),), NO_CLUSTER),
    Attempt("franz begins a transaction", WRITER[:1], NO_TRANSACTION),
    Attempt("franz consumes", READER[:1], NO_GROUP),
    Attempt("franz consumes", READER[1:], NO_TOPIC),
    Attempt("franz lists acls", (cluster(AclOperation.CREATE),), NO_CLUSTER),
    Attempt("sarama produces", (topic(DESCRIBE, TOPIC),), NO_TOPIC),
    Attempt("sarama begins a transaction", WRITER[:1], NO_TRANSACTION),
    Attempt("sarama consumes", READER[:1], NO_GROUP),
    Attempt("sarama consumes", READER[1:], NO_TOPIC),
    Attempt("sarama lists acls", (cluster(AclOperation.CREATE),), NO_CLUSTER),
]
_WORDS_OF_SARAMA = {
    NO_TOPIC: "not authorized to access this topic",
    NO_GROUP: "not authorized to access this group",
    NO_CLUSTER: "not authorized to send this request type",
    NO_TRANSACTION: "Transactional ID authorization failed",
}


if ALL:  # to build the program takes longer than CI has time for

    @pytest.fixture(scope="module")
    def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """franz-go and Sarama."""
        binary = tmp_path_factory.mktemp("go") / "rights"
        subprocess.run(["go", "build", "-o", binary, "./rights"], cwd=GO, timeout=240, check=True)
        return binary

    @needs("go")
    @pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: f"{one.name} {one.missing}")
    def test_clients_in_go_name_it_too(side: Side, attempt: Attempt, go_program: Path) -> None:
        """By the errors of franz-go and Sarama."""
        address = give(side, attempt.rights)
        names = (address, USER, PASSWORD, attempt.name, TOPIC, GROUP, TRANSACTION)
        done = subprocess.run([go_program, *names], capture_output=True, text=True, timeout=120, check=True)
        words = (*WORDS[attempt.missing], _WORDS_OF_SARAMA[attempt.missing])
        assert any(word in done.stdout for word in words), done.stdout
