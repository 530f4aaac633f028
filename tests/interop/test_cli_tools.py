"""Our tools on our broker and on Apache's; where it is sensible, word for word as
Apache's print."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.client import Admin, Consumer
from support.needs import needs_reference
from support.reference import apache_cluster, apache_tool
from support.servers import BARNABAS, up

pytestmark = [pytest.mark.interop]


@pytest.fixture(scope="module", params=["ours", pytest.param("apache", marks=[pytest.mark.java, needs_reference])])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A cluster of one broker, with its coordination service."""
    directory = tmp_path_factory.mktemp(request.param)
    with up(directory) if request.param == "ours" else apache_cluster(directory) as running:
        yield running


@pytest.fixture
def run(cluster: object, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command with ``--bootstrap-server`` in this process: its code, output and errors."""

    def call(command: str, *args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([command, "--bootstrap-server", cluster.bootstrap, *map(str, args)])
        out, err = capfd.readouterr()
        return code, out, err

    return call


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topic(request: pytest.FixtureRequest, run: Run) -> str:
    """A topic of three partitions with the test's name."""
    name = request.node.originalname.replace("_", "-")
    assert run("topics", "--create", "--topic", name, "--partitions", 3, "--replication-factor", 1)[0] == 0
    return name


def produce(cluster: object, monkeypatch: pytest.MonkeyPatch, topic: str, text: bytes, *args: str) -> int:
    """The console producer in this process, fed with ``text``."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    return main(["console-producer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, *args])


def test_a_topics_life(run: Run) -> None:
    """Created, found, described, grown, deleted, with Kafka's words."""
    assert run("topics", "--create", "--topic", "life", "--partitions", 2, "--config", "retention.ms=60000") == (
        0,
        "Created topic life.\n",
        "",
    )
    code, _, err = run("topics", "--create", "--topic", "life")
    assert code == 1
    assert "already exists" in err
    assert run("topics", "--create", "--topic", "life", "--if-not-exists")[:2] == (0, "")
    assert "life" in run("topics", "--list")[1].split()
    _, out, _ = run("topics", "--describe", "--topic", "l.fe")
    lines = out.splitlines()
    assert lines[0].startswith("Topic: life\tTopicId: ")
    assert lines[0].endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=60000")
    assert lines[2] == "\tTopic: life\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: N/A\tLastKnownElr: N/A"
    assert run("topics", "--alter", "--topic", "life", "--partitions", 3)[0] == 0
    document = json.loads(run("topics", "--describe", "--topic", "life", "--output", "json")[1])
    assert [partition["partition"] for partition in document[0]["partitions"]] == [0, 1, 2]
    assert run("topics", "--delete", "--topic", "life")[0] == 0
    assert run("topics", "--describe", "--topic", "life")[0] == 1
    assert run("topics", "--delete", "--topic", "life", "--if-exists")[0] == 0


@pytest.mark.java
@needs_reference
def test_descriptions_are_apaches_word_for_word(cluster: object, run: Run, topic: str) -> None:
    """The same bytes from both tools, about the same cluster."""
    run("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=70000,cleanup.policy=[compact,delete]")
    broker = ["--bootstrap-server", cluster.bootstrap]
    for ours, theirs, args in (
        ("topics", "org.apache.kafka.tools.TopicCommand", ["--describe", "--topic", topic]),
        ("configs", "kafka.admin.ConfigCommand", ["--describe", "--entity-type", "topics", "--entity-name", topic]),
        ("get-offsets", "org.apache.kafka.tools.GetOffsetShell", ["--topic", topic]),
    ):
        assert run(ours, *args)[1] == apache_tool(theirs, *broker, *args).stdout


def test_a_line_too_large_costs_only_itself(
    cluster: object, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines after it are sent, as Kafka's tool does; the exit code shows the failure."""
    assert produce(cluster, monkeypatch, topic, b"before\n" + bytes(3_000_000) + b"\nafter\n") == 1
    out = run("get-offsets", "--topic", topic)[1]
    assert sum(int(line.rpartition(":")[2]) for line in out.splitlines()) == 2


def test_configurations_are_set_shown_and_taken_back(run: Run, topic: str) -> None:
    """Dynamic values of a topic and of brokers."""
    assert run(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=1"
    ) == (
        0,
        f"Completed updating config for topic {topic}.\n",
        "",
    )
    assert run("configs", "--describe", "--topic", topic)[1].splitlines() == [
        f"Dynamic configs for topic {topic} are:",
        "  retention.ms=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1}",
    ]
    assert run("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=soon")[0] == 1
    assert run("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms")[0] == 0
    assert run("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms")[0] == 1
    _, out, _ = run("configs", "--describe", "--topic", topic, "--all", "--output", "json")
    entries = {entry["name"]: entry for entry in json.loads(out)[0]["configs"]}
    assert entries["retention.ms"]["source"] == "DEFAULT_CONFIG"
    _, out, _ = run("configs", "--describe", "--entity-type", "brokers")
    assert out.splitlines() == ["Dynamic configs for broker 0 are:", "Default configs for brokers in the cluster are:"]


def test_consoles_keep_keys_headers_and_nulls(
    cluster: object, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the producer parsed the consumer prints."""
    text = b"a:1,b:2\tk1\tv1\na:-\tk1\t-\n"
    options = ["--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=-"]
    assert produce(cluster, monkeypatch, topic, text, *options, "--sync") == 0
    shown = ["--property", "print.key=true", "--property", "print.headers=true", "--property", "null.literal=NULL"]
    code, out, err = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 2, *shown)
    assert code == 0
    assert out == "a:1,b:2\tk1\tv1\na:NULL\tk1\tNULL\n"
    assert "Processed a total of 2 messages" in err


def test_a_record_that_cannot_be_shown_is_named(
    cluster: object, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place and the reason; with --skip-message-on-error the next ones follow."""
    assert produce(cluster, monkeypatch, topic, b"text\n12345678\n") == 0
    decoder = "org.apache.kafka.common.serialization.LongDeserializer"
    options = ["--topic", topic, "--from-beginning", "--max-messages", 2, "--value-deserializer", decoder]
    code, _, err = run("console-consumer", *options)
    assert code == 1
    assert f"Error: {topic}-0 offset 0 cannot be shown: unpack requires a buffer of 8 bytes" in err
    code, out, _ = run("console-consumer", *options, "--skip-message-on-error")
    assert (code, out) == (0, f"{int.from_bytes(b'12345678', 'big')}\n")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_goes_through(cluster: object, run: Run, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console producer's codecs, read from a partition at an offset."""
    name = f"codec-{codec}"
    run("topics", "--create", "--topic", name, "--partitions", 1)
    lines = b"".join(b"line %d\n" % n for n in range(200))
    assert produce(cluster, monkeypatch, name, lines, "--compression-codec", codec) == 0
    _, out, _ = run("console-consumer", "--topic", name, "--partition", 0, "--offset", 150, "--max-messages", 50)
    assert out.splitlines() == [f"line {n}" for n in range(150, 200)]


def test_a_pattern_reads_all_topics_but_the_clusters_own(
    cluster: object, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--include takes topics whose whole name matches, never __consumer_offsets."""
    run("topics", "--create", "--topic", f"{topic}-2", "--partitions", 1)
    produce(cluster, monkeypatch, topic, b"one\n")
    produce(cluster, monkeypatch, f"{topic}-2", b"two\n")
    options = ["--from-beginning", "--timeout-ms", "8000"]
    # Only the timeout shows that nothing else comes: both wait for it at the same time.
    command = [*BARNABAS, "console-consumer", "--bootstrap-server", cluster.bootstrap, *options]
    chosen = ["--include", f"{topic}.*|__c.*"], ["--whitelist", topic]
    running = [subprocess.Popen([*command, *each], stdout=subprocess.PIPE, text=True) for each in chosen]
    read = [sorted(each.communicate(timeout=120)[0].split()) for each in running]
    assert read == [["one", "two"], ["one"]]


def test_offsets_are_found_by_time(cluster: object, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning, end, and rules for partitions."""
    produce(cluster, monkeypatch, topic, b"1\n2\n3\n4\n")
    assert run("get-offsets", "--topic", topic)[1].split() == [f"{topic}:0:2", f"{topic}:1:1", f"{topic}:2:1"]
    assert run("get-offsets", "--topic-partitions", f"{topic}:1-", "--time", -2)[1].split() == [
        f"{topic}:1:0",
        f"{topic}:2:0",
    ]
    assert run("get-offsets", "--topic", topic, "--partitions", "0", "--time", 0)[1].split() == [f"{topic}:0:0"]
    code, _, err = run("get-offsets", "--topic", "no-such-topic")
    assert (code, err) == (1, "Error: Could not match any topic-partitions with the specified filters\n")


def test_a_groups_offsets_go_where_each_scenario_says(
    cluster: object, run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reset, export, read back, delete."""
    produce(cluster, monkeypatch, topic, b"".join(b"%d\n" % n for n in range(30)))
    group = f"group-of-{topic}"
    with Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "smallest",
            "consumer.timeout.ms": 20_000,
        }
    ) as consumer:
        consumer.subscribe([topic])
        for count, _ in enumerate(consumer, 1):
            if count == 30:
                break
        code, _, err = run(
            "consumer-groups", "--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute"
        )
        assert code == 1
        assert "the current state is Stable" in err
        consumer.commit()
        _, out, _ = run("consumer-groups", "--describe", "--group", group, "--members", "--verbose")
        assert out.rstrip().endswith(f"{topic}(0,1,2)")

    def committed() -> list[int]:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            return [offset for _, offset in sorted(admin.group_offsets(group).items())]

    def reset(*args: object) -> list[int]:
        assert run("consumer-groups", "--reset-offsets", "--group", group, *args, "--execute")[0] == 0
        return committed()

    assert committed() == [10, 10, 10]
    assert reset("--all-topics", "--shift-by", -3) == [7, 7, 7]
    assert reset("--topic", f"{topic}:0,2", "--to-offset", 99) == [10, 7, 10]
    assert reset("--topic", topic, "--to-earliest") == [0, 0, 0]
    assert reset("--topic", topic, "--to-datetime", "2000-01-01T00:00:00.000") == [0, 0, 0]
    assert reset("--topic", topic, "--by-duration", "P1D") == [0, 0, 0]
    assert reset("--topic", topic, "--to-latest") == [10, 10, 10]
    assert reset("--topic", topic, "--to-current") == [10, 10, 10]
    _, out, _ = run(
        "consumer-groups",
        "--reset-offsets",
        "--group",
        group,
        "--topic",
        topic,
        "--shift-by",
        -1,
        "--export",
        "--dry-run",
    )
    assert out.split() == [f"{topic},{n},9" for n in range(3)]
    plan = tmp_path / "plan.csv"
    plan.write_text(out)
    assert reset("--from-file", plan) == [9, 9, 9]
    _, out, _ = run("consumer-groups", "--describe", "--group", group)
    rows = [line.split() for line in out.splitlines() if line.startswith(group)]
    assert rows[1] == [group, topic, "1", "9", "10", "1", "-", "-", "-"]
    assert group in run("consumer-groups", "--list")[1].split()
    assert run("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")[0] == 0
    assert len(committed()) == 2
    assert run("consumer-groups", "--delete", "--group", group)[:2] == (
        0,
        f"Deletion of requested consumer groups ('{group}') was successful.\n",
    )
    assert run("consumer-groups", "--describe", "--group", group)[0] == 1


def test_the_shell_sees_the_broker_and_changes_nodes(cluster: object, capfd: pytest.CaptureFixture[str]) -> None:
    """``ls /brokers/ids``, and a node's life."""

    def shell(*command: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["zookeeper-shell", cluster.zookeeper, *command])
        out, err = capfd.readouterr()
        return code, out.split("path:null\n", 1)[1], err

    assert shell("ls", "/brokers/ids") == (0, "[0]\n", "")
    assert shell("create", "/lab", '{"a":1}')[1] == "Created /lab\n"
    assert shell("get", "/lab")[1] == '{"a":1}\n'
    assert shell("set", "-v", "7", "/lab", "x") == (1, "", "version No is not valid : /lab\n")
    assert shell("create", "/lab/child")[0] == 0
    assert shell("delete", "/lab") == (1, "", "Node not empty: /lab\n")
    assert shell("ls", "-R", "/lab")[1] == "/lab\n/lab/child\n"
    assert "numChildren = 1" in shell("stat", "/lab")[1]
    assert shell("getAllChildrenNumber", "/lab")[1] == "1\n"
    assert shell("getAcl", "/lab")[1] == "'world,'anyone\n: cdrwa\n"
    assert shell("deleteall", "/lab")[0] == 0
    assert shell("get", "/lab") == (1, "", "Node does not exist: /lab\n")


def test_ctrl_c_ends_a_waiting_consumer_cleanly(cluster: object, topic: str) -> None:
    """130, the count, and the group left at once."""
    command = [*BARNABAS, "console-consumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic]
    process = subprocess.Popen([*command, "--group", "leaving"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        while len(admin.describe_group("leaving").members) != 1:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors == b"Processed a total of 0 messages\n"
        assert admin.describe_group("leaving").members == []


def test_a_broker_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """One line that says where and what to look for."""
    assert main(["topics", "--bootstrap-server", "localhost:1", "--list"]) == 1
    assert capfd.readouterr().err == "Error: localhost:1 refused the connection: is a broker running there?\n"


def test_offsets_by_name_are_those_by_number(cluster: object, topic: str) -> None:
    """A partition that is not there is an error of its own, not of the call."""
    with Admin({"metadata.broker.list": cluster.bootstrap}) as admin:
        found = admin.list_offsets({TopicPartition(topic, 0): -1, TopicPartition(topic, 9): -1})
    assert found[TopicPartition(topic, 0)].offset == 0
    assert "does not exist" in str(found[TopicPartition(topic, 9)])
