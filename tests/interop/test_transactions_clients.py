"""Transactions with clients of others, and with ours: copies are whole, in order, and without
what was aborted."""

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.features import SUPPORTED, TRANSACTION_VERSION
from barnabas.broker.metadata.internal_topics import partition_of
from barnabas.client import Admin
from barnabas.client.admin import LATEST, FoundOffset
from support.needs import needs, needs_reference
from support.reference import apache_tool
from support.servers import Up, barnabas, up
from support.transaction_copies import CLIENTS, RECORDS, committed, fill, make, read_committed
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parents[1] / "other_languages"
JAVA_VERSIONS = ("3.9.1", "4.4.0")
COPIER_VERSIONS = ("3.9.1", "4.3.0", "4.4.0")
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COMMAND = "org.apache.kafka.tools.TransactionsCommand"
_NUMBERS = itertools.count()
_MANY = 5 * RECORDS
_STATE_PARTITIONS = 50
_TAGGED = r',"(previousProducerId|nextProducerId|clientTransactionVersion)":\d+'


@pytest.fixture(
    scope="module",
    params=[(1, 0), (3, 0), (3, SUPPORTED[TRANSACTION_VERSION].highest)],
    ids=["one-broker", "three-brokers", "highest-version"],
)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Up]:
    """One broker, and three; and three with the highest level of the feature."""
    brokers, level = request.param
    with up(tmp_path_factory.mktemp("cluster"), brokers=brokers) as running:
        if level:
            feature = ("upgrade", "--feature", f"{TRANSACTION_VERSION}={level}")
            done = barnabas("features", *feature, "--bootstrap-server", running.bootstrap)
            assert done.returncode == 0, done.stderr
        yield running


@pytest.fixture
def pair(cluster: Up) -> tuple[str, str, str]:
    """A name, a topic with `RECORDS` numbers and one without records."""
    name = f"copy-{next(_NUMBERS)}"
    replicas = min(3, len(cluster.bootstrap.split(",")))
    source, target = (make(cluster.bootstrap, f"{name}-{end}", 1, replicas) for end in ("in", "out"))
    fill(cluster.bootstrap, source)
    return name, source, target


def check_copy(cluster: Up, pair: tuple[str, str, str]) -> None:
    """The copy is exact, the group's offset is the end, and no transaction is open."""
    name, source, target = pair
    expected = [str(number) for number in range(RECORDS)]
    assert read_committed(cluster.bootstrap, target) == expected
    assert committed(cluster.bootstrap, name, source) == RECORDS
    assert describe(cluster, name)["state"] in ("CompleteCommit", "CompleteAbort")


def describe(cluster: Up, transactional_id: str) -> dict[str, object]:
    """The transactional id, as our tool sees it."""
    done = barnabas(
        *("transactions", "describe", "--transactional-id", transactional_id),
        *("--bootstrap-server", cluster.bootstrap, "--output", "json"),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_copy_in_transactions_is_exact(cluster: Up, pair: tuple[str, str, str], client: str) -> None:
    """Aborted records are in the log, and seen at read_uncommitted only."""
    name, source, target = pair
    CLIENTS[client](cluster.bootstrap, name, source, target)
    check_copy(cluster, pair)
    assert len(read_committed(cluster.bootstrap, target, isolation="read_uncommitted")) > RECORDS


def test_tools_that_people_read_with_show_committed_records_only(cluster: Up, pair: tuple[str, str, str]) -> None:
    """`cat` and `tail`; `console-consumer` shows all, as Kafka's does, unless asked not to."""
    name, _, target = pair
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for value in ("kept", "given up", "kept, too"):
        producer.begin_transaction()
        producer.produce(target, value, partition=0)
        producer.flush(60)
        producer.abort_transaction(60) if value == "given up" else producer.commit_transaction(60)
    options = ("--bootstrap-server", cluster.bootstrap)
    console = ("console-consumer", "--topic", target, "--from-beginning", "--timeout-ms", 3000, *options)
    kept = ["kept", "kept, too"]
    assert barnabas("cat", "-C", "-t", target, "-e", *options).stdout.splitlines() == kept
    shown = barnabas("tail", target, "--last", 10, "--no-follow", "--output", "json", *options).stdout
    assert [json.loads(line)["value"] for line in shown.splitlines()] == kept
    assert barnabas(*console, "--isolation-level", "read_committed").stdout.splitlines() == kept
    assert barnabas(*console).stdout.splitlines() == ["kept", "given up", "kept, too"]


def test_the_verifiable_producer_sends_in_transactions(cluster: Up, pair: tuple[str, str, str]) -> None:
    """What it reports as acknowledged is there when its transactions are committed."""
    name, _, target = pair
    done = barnabas(
        *("verifiable-producer", "--bootstrap-server", cluster.bootstrap, "--topic", target),
        *("--transactional-id", name, "--transaction-size", 25, "--max-messages", 60),
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["records"] for each in events if each["name"] == "transaction_committed"] == [25, 25, 10]
    assert (events[-1]["sent"], events[-1]["acked"]) == (60, 60)
    assert sorted(read_committed(cluster.bootstrap, target), key=int) == [str(number) for number in range(60)]


@needs_reference
@pytest.mark.java
@pytest.mark.parametrize("version", COPIER_VERSIONS)
def test_apaches_copier_copies_exactly(cluster: Up, pair: tuple[str, str, str], version: str) -> None:
    """Java's producer with random aborts, and the offsets of the group."""
    name, source, target = pair
    done = apache_tool(
        *(COPIER, "--broker-list", cluster.bootstrap, "--transactional-id", name, "--consumer-group", name),
        *("--input-topic", source, "--input-partition", 0, "--output-topic", target),
        *("--transaction-size", 7, "--enable-random-aborts", "--use-group-metadata"),
        version=version,
        timeout_s=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["stage"], last["totalProcessed"], last["remaining"]) == ("ShutdownComplete", RECORDS, 0)
    check_copy(cluster, pair)


def test_our_copier_copies_exactly(cluster: Up, pair: tuple[str, str, str]) -> None:
    """The tool with Apache's options and lines, as a member of the group."""
    name, source, target = pair
    done = barnabas(
        *("transactional-message-copier", "--broker-list", cluster.bootstrap, "--transactional-id", name),
        *("--consumer-group", name, "--input-topic", source, "--input-partition", 0, "--output-topic", target),
        *("--transaction-size", 7, "--enable-random-aborts", "--group-mode", "--use-group-metadata"),
        timeout_s=240,
    )
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["stage"], last["totalProcessed"], last["remaining"]) == ("ShutdownComplete", RECORDS, 0)
    check_copy(cluster, pair)


@needs_reference
@pytest.mark.java
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_apaches_transactions_command_prints_what_ours_prints(
    cluster: Up, pair: tuple[str, str, str], version: str
) -> None:
    """Lists, descriptions and producers, to the letter but for durations."""
    name, source, target = pair
    CLIENTS["librdkafka"](cluster.bootstrap, name, source, target)
    for arguments in (
        ("list",),
        ("describe", "--transactional-id", name),
        ("describe-producers", "--topic", target, "--partition", "0"),
        ("find-hanging", "--topic", target, "--max-transaction-timeout", "0"),
    ):
        options = ("--bootstrap-server", cluster.bootstrap)
        theirs = apache_tool(COMMAND, *options, *arguments, version=version)
        ours = barnabas("transactions", *options, *arguments)
        assert (theirs.returncode, ours.returncode) == (0, 0), theirs.stderr + ours.stderr
        if arguments[0] == "list":
            assert sorted(theirs.stdout.split("\n")) == sorted(ours.stdout.split("\n"))
        else:
            assert without_duration(theirs.stdout) == without_duration(ours.stdout)


@needs_reference
@pytest.mark.java
def test_the_console_consumer_prints_states_as_apaches_does(cluster: Up, pair: tuple[str, str, str]) -> None:
    """Kafka 3.9 knows no tagged fields; the others are the same, in their order."""
    name, source, target = pair
    CLIENTS["librdkafka"](cluster.bootstrap, name, source, target)
    topic, partition = "__transaction_state", str(partition_of(name, _STATE_PARTITIONS))
    eventually(lambda: describe(cluster, name)["state"] == "CompleteCommit", what="the last transaction has ended")
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        wanted = TopicPartition(topic, int(partition))
        end = admin.list_offsets({wanted: LATEST})[wanted]
    assert isinstance(end, FoundOffset)
    reading = (
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--partition", partition, "--offset", "earliest"),
        *("--max-messages", str(end.offset), "--timeout-ms", "60000"),
        *("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
    )
    theirs = apache_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *reading)
    ours = barnabas("console-consumer", *reading, timeout_s=120)
    assert (theirs.returncode, ours.returncode) == (0, 0), theirs.stderr + ours.stderr
    printed = ours.stdout.splitlines()
    assert len(printed) == end.offset
    assert theirs.stdout == "".join(re.sub(_TAGGED, "", line) for line in printed)
    assert any(f'"transactionalId":"{name}"' in line and '"transactionStatus":4' in line for line in printed)


def without_duration(table: str) -> list[list[str]]:
    """The cells, but for what grows with the time."""
    rows = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
    names = [index for index, cell in enumerate(rows[0]) if cell in ("TransactionDurationMs", "Duration(min)")]
    return [[cell for index, cell in enumerate(row) if index not in names] for row in rows]


@needs_reference
@pytest.mark.java
def test_apaches_tool_ends_an_open_transaction(cluster: Up, pair: tuple[str, str, str]) -> None:
    """forceTerminateTransaction of 4.4: the transaction is aborted, and its producer fenced."""
    name, _, target = pair
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(target, b"never", partition=0)
    producer.flush(60)
    assert describe(cluster, name)["state"] == "Ongoing"
    done = apache_tool(
        *(COMMAND, "--bootstrap-server", cluster.bootstrap),
        *("forceTerminateTransaction", "--transactionalId", name),
        version="4.4.0",
    )
    assert done.returncode == 0, done.stderr
    assert describe(cluster, name)["state"] in ("CompleteAbort", "Empty")
    with pytest.raises(confluent_kafka.KafkaException) as failure:
        producer.commit_transaction(60)
    assert failure.value.args[0].fatal()
    assert read_committed(cluster.bootstrap, target) == []


@needs("go")
@pytest.mark.parametrize("program", ["franz_transactions", "sarama_transactions"])
def test_go_clients_copy_exactly(cluster: Up, pair: tuple[str, str, str], program: str, tmp_path: Path) -> None:
    """franz-go, which speaks version 2 where the cluster has it, and Sarama."""
    name, source, target = pair
    download = subprocess.run(
        ["go", "mod", "download"], cwd=PROGRAMS / "go", capture_output=True, text=True, timeout=240, check=False
    )
    if download.returncode:
        pytest.skip(f"no libraries: {download.stderr[-300:]}")
    binary = tmp_path / program
    subprocess.run(["go", "build", "-o", binary, f"./{program}"], cwd=PROGRAMS / "go", timeout=240, check=True)
    address = cluster.bootstrap.split(",")[0]
    subprocess.run([binary, address, name, source, target, str(RECORDS)], timeout=120, check=True)
    check_copy(cluster, pair)


@needs("node", "npm")
def test_kafkajs_copies_exactly(cluster: Up, pair: tuple[str, str, str], tmp_path: Path) -> None:
    """KafkaJS, with aborts."""
    name, source, target = pair
    directory = tmp_path / "programs"
    shutil.copytree(PROGRAMS / "node", directory)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=directory, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip(f"no libraries: {done.stderr[-300:]}")
    address = cluster.bootstrap.split(",")[0]
    environment = {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    command = ["node", directory / "kafkajs_transactions.js", address, name, source, target, str(RECORDS)]
    subprocess.run(command, env=environment, timeout=120, check=True)
    check_copy(cluster, pair)


@needs_reference
@pytest.mark.java
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_apaches_feature_command_changes_levels(cluster: Up, version: str) -> None:
    """It describes, lowers, takes back, and finalizes; refusals are in its words."""

    def run(*arguments: str) -> tuple[int, str]:
        done = apache_tool(
            *("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", cluster.bootstrap, *arguments),
            version=version,
        )
        return done.returncode, done.stdout + done.stderr

    def level() -> int:
        done = barnabas("features", "describe", "--bootstrap-server", cluster.bootstrap, "--output", "json")
        (found,) = json.loads(done.stdout)["features"]
        assert (found["name"], found["supportedMinVersion"]) == (TRANSACTION_VERSION, 0)
        return int(found["finalizedVersionLevel"])

    before = level()
    if before:
        assert run("downgrade", "--feature", f"{TRANSACTION_VERSION}=0")[0] == 0
    assert level() == 0
    code, text = run("upgrade", "--feature", "no.such=1")
    assert (code, "Could not upgrade no.such to 1" in text) == (1, True)
    assert run("upgrade", "--feature", f"{TRANSACTION_VERSION}=1")[0] == 0
    assert level() == 1
    code, text = run("describe")
    assert code == 0, text
    assert f"Feature: {TRANSACTION_VERSION} " in " ".join(text.split())
    assert "FinalizedVersionLevel: 1 " in " ".join(text.split())
    assert run("disable", "--feature", TRANSACTION_VERSION)[0] == 0
    assert level() == 0
    if before:
        assert run("upgrade", "--feature", f"{TRANSACTION_VERSION}={before}")[0] == 0
    assert level() == before


@needs("go")
def test_a_copy_goes_on_while_version_2_is_finalized(cluster: Up, pair: tuple[str, str, str], tmp_path: Path) -> None:
    """franz-go, which learns the level when it connects: no record is lost or doubled by the
    upgrade."""
    name, source, target = pair
    more = [str(number) for number in range(RECORDS, _MANY)]
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in more:
        producer.produce(source, value, partition=0)
    assert producer.flush(60) == 0
    binary = tmp_path / "franz"
    build = ["go", "build", "-o", binary, "./franz_transactions"]
    subprocess.run(build, cwd=PROGRAMS / "go", timeout=240, check=True)
    address = cluster.bootstrap.split(",")[0]
    options = ("--bootstrap-server", cluster.bootstrap)

    def finalize(level: int) -> None:
        (found,) = json.loads(barnabas("features", "describe", *options, "--output", "json").stdout)["features"]
        if level != found["finalizedVersionLevel"]:
            action = "upgrade" if level > found["finalizedVersionLevel"] else "downgrade"
            barnabas("features", action, "--feature", f"{TRANSACTION_VERSION}={level}", *options)

    (before,) = json.loads(barnabas("features", "describe", *options, "--output", "json").stdout)["features"]
    finalize(0)
    copying = subprocess.Popen([binary, address, name, source, target, str(_MANY)])
    try:
        eventually(lambda: bool(read_committed(cluster.bootstrap, target)), timeout_s=60, what="it copies")
        finalize(2)
        assert copying.wait(120) == 0
    finally:
        copying.kill()
        copying.wait()
    finalize(before["finalizedVersionLevel"])
    assert read_committed(cluster.bootstrap, target) == [str(number) for number in range(_MANY)]
    assert committed(cluster.bootstrap, name, source) == _MANY
