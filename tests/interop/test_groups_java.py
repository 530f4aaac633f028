"""Apache's tools on our groups: ConsumerGroupCommand, VerifiableConsumer, and what
reads __consumer_offsets."""

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.needs import needs_reference
from support.reference import apache_command, apache_tool
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

COMMAND = {
    "3.9.1": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "4.3.0": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
PARTITIONS = 3
RECORDS = 90


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic(cluster: Up) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return name


def groups(cluster: Up, version: str, *args: object) -> str:
    done = apache_tool(COMMAND[version], "--bootstrap-server", cluster.bootstrap, *args, version=version)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def member(cluster: Up, group: str, topic: str) -> Consumer:
    """A member that has read and committed everything."""
    made = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    assert len(made.consume(RECORDS, timeout=60)) == RECORDS
    made.commit(asynchronous=False)
    return made


@pytest.mark.parametrize("version", COMMAND)
def test_command_lists_describes_resets_and_deletes(cluster: Up, topic: str, version: str) -> None:
    """What an operator does with a group, from its life to its end."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    reader = member(cluster, group, topic)
    assert group in groups(cluster, version, "--list").split()
    assert re.search(rf"{group}\s+.*Stable", groups(cluster, version, "--list", "--state"))
    offsets = groups(cluster, version, "--describe", "--group", group)
    assert (
        len(re.findall(rf"{group}\s+{topic}\s+\d+\s+(?:\S+\s+)?30\s+30\s+0\s+\S+\s+/127.0.0.1\s+reader", offsets)) == 3
    )
    members = groups(cluster, version, "--describe", "--group", group, "--members", "--verbose")
    assert re.search(rf"{group}\s+reader-\S+\s+/127.0.0.1\s+reader\s+3\s.*0,1,2", members)
    state = groups(cluster, version, "--describe", "--group", group, "--state")
    assert re.search(r"range\s+Stable\s+(?:\S+\s+)?1", state)
    assert "NonEmpty" in apache_tool(
        COMMAND[version], "--bootstrap-server", cluster.bootstrap, "--delete", "--group", group, version=version
    ).stdout.replace("not empty", "NonEmpty")
    reader.close()
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-offset", 5, "--execute"]
    assert len(re.findall(rf"{topic}\s+\d\s+5", groups(cluster, version, *reset))) == PARTITIONS
    assert re.search(rf"{topic}\s+0\s+(?:\S+\s+)?5\s+30\s+25", groups(cluster, version, "--describe", "--group", group))
    forget = groups(cluster, version, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "successful" in forget.lower()
    assert "successful" in groups(cluster, version, "--delete", "--group", group).lower()
    assert group not in groups(cluster, version, "--list").split()


def test_command_says_of_an_unknown_group_that_it_does_not_exist(cluster: Up) -> None:
    """The newer tool asks for version 6 and expects GROUP_ID_NOT_FOUND, the older a dead group."""
    for version, main in COMMAND.items():
        args = ["--bootstrap-server", cluster.bootstrap, "--describe", "--group", "nobody"]
        done = apache_tool(main, *args, version=version)
        assert re.search("does not exist|Group nobody not found", done.stdout + done.stderr)


@pytest.mark.parametrize("version", COMMAND)
def test_verifiable_consumers_share_and_commit(cluster: Up, topic: str, version: str) -> None:
    """Two of Apache's own test consumers: every record is consumed once and the
    offsets are committed."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    args = [
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        topic,
        "--group-id",
        group,
        "--reset-policy",
        "earliest",
    ]
    command = apache_command("tool", "--version", version, "org.apache.kafka.tools.VerifiableConsumer", *args)
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

        def committed() -> bool:
            found = admin.describe_consumer_groups([group])[group].result(60)
            return len(found.members) == 2 and found.state.name == "STABLE"

        eventually(committed, timeout_s=60)
        lag = r"\s+(?:\S+\s+)?30\s+30\s+0\s"
        eventually(
            lambda: len(re.findall(lag, groups(cluster, "3.9.1", "--describe", "--group", group))) == PARTITIONS,
            timeout_s=60,
        )
    finally:
        for process in running:
            process.terminate()
        output = "".join(process.communicate(timeout=60)[0] for process in running)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    consumed = sum(event["count"] for event in events if event["name"] == "records_consumed")
    assert consumed == RECORDS
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_apache_reads_the_records_of_our_groups(cluster: Up, topic: str) -> None:
    """DumpLogSegments with the offsets decoder, and the console consumer's formatters."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    member(cluster, group, topic).close()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    state = lambda: admin.describe_consumer_groups([group])[group].result(60).state.name  # noqa: E731
    eventually(lambda: state() == "EMPTY", what="the member has left")
    logs = [
        str(path)
        for path in cluster.directory.rglob("__consumer_offsets-*/*.log")
        if group.encode() in path.read_bytes()
    ]
    assert len(logs) == 1
    dumped = apache_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", ",".join(logs)).stdout
    assert len(re.findall(rf'"group":"{group}","topic":"{topic}","partition":\d', dumped)) == PARTITIONS
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in dumped
    assert '"clientId":"reader","clientHost":"/127.0.0.1"' in dumped
    assert "isvalid: false" not in dumped
    partition = int(Path(logs[0]).parent.name.rpartition("-")[2])
    for formatter, expected in {
        "OffsetsMessageFormatter": rf'"group":"{group}","topic":"{topic}".*"offset":30',
        "GroupMetadataMessageFormatter": rf'"group":"{group}".*"generation":2',
    }.items():
        printed = apache_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *["--bootstrap-server", cluster.bootstrap, "--topic", "__consumer_offsets", "--partition", partition],
            *["--offset", "earliest", "--max-messages", end_offset(cluster, partition), "--timeout-ms", 60_000],
            *["--formatter", f"org.apache.kafka.tools.consumer.{formatter}"],
        ).stdout
        assert re.search(expected, printed), printed


def end_offset(cluster: Up, partition: int) -> int:
    """Of a partition of __consumer_offsets."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    _, end = reader.get_watermark_offsets(TopicPartition("__consumer_offsets", partition), 60)
    reader.close()
    return end
