"""Apache's own command-line tools and Java clients, of 3.9.1 and 4.3.0, against our brokers."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from support.needs import needs_reference
from support.reference import apache_command, apache_tool
from support.servers import Up, up

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]
TOOLS = "org.apache.kafka.tools."
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module", params=["3.9.1", "4.3.0"])
def version(request: pytest.FixtureRequest) -> str:
    """The version of Apache's tools."""
    return request.param


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """One broker for the module; topics and groups are named by version."""
    with up(tmp_path_factory.mktemp("java")) as running:
        yield running


def run(main: str, *args: object, version: str, text: str = "", timeout_s: float = 120) -> str:
    """The tool's standard output; it must end with 0."""
    done = apache_tool(main, *args, version=version, text=text, timeout_s=timeout_s)
    assert done.returncode == 0, f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout


def topics(cluster: Up, version: str, *args: object) -> str:
    return run(TOOLS + "TopicCommand", "--bootstrap-server", cluster.bootstrap, *args, version=version)


def produce(cluster: Up, version: str, topic: str, lines: list[str], *args: object) -> None:
    main = "kafka.tools.ConsoleProducer" if version.startswith("3.") else TOOLS + "ConsoleProducer"
    base = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    run(main, *base, *args, version=version, text="\n".join(lines) + "\n")


def consume(cluster: Up, version: str, topic: str, count: int, *args: object) -> list[str]:
    main = TOOLS + "consumer.ConsoleConsumer"
    base = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", count)
    return run(main, *base, "--timeout-ms", 60_000, *args, version=version).splitlines()


def test_topics_are_created_described_grown_and_deleted(cluster: Up, version: str) -> None:
    """TopicCommand through a topic's life."""
    topic = f"life-{version}"
    topics(cluster, version, "--create", "--topic", topic, "--partitions", 3, "--config", "retention.ms=123456")
    assert topic in topics(cluster, version, "--list").split()
    described = topics(cluster, version, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=123456" in described
    assert len(re.findall(r"Leader: 0\s+Replicas: 0\s+Isr: 0", described)) == 3
    topics(cluster, version, "--alter", "--topic", topic, "--partitions", 5)
    assert "PartitionCount: 5" in topics(cluster, version, "--describe", "--topic", topic)
    topics(cluster, version, "--delete", "--topic", topic)
    assert topic not in topics(cluster, version, "--list").split()


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_console_producer_writes_the_console_consumer_reads(cluster: Up, version: str, codec: str) -> None:
    """Keys and values through every codec."""
    topic = f"console-{version}-{codec}"
    lines = [f"key{n % 7}:value {n} " + "x" * 100 for n in range(500)]
    properties = ("--property", "parse.key=true", "--property", "key.separator=:")
    produce(cluster, version, topic, lines, *properties, "--compression-codec", codec)
    option = "--property" if version.startswith("3.") else "--formatter-property"
    printed = (option, "print.key=true", option, "key.separator=:")
    assert sorted(consume(cluster, version, topic, 500, *printed)) == sorted(lines)


def test_the_performance_tools_move_records(cluster: Up, version: str) -> None:
    """ProducerPerformance and ConsumerPerformance finish and count what they moved."""
    topic = f"perf-{version}"
    topics(cluster, version, "--create", "--topic", topic, "--partitions", 3)
    properties = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all")
    sizes = ("--num-records", 50000, "--record-size", 200, "--throughput", -1)
    main = TOOLS + "ProducerPerformance"
    assert "50000 records sent" in run(main, "--topic", topic, *sizes, *properties, version=version)
    arguments = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--messages", 50000, "--timeout", 60_000)
    table = run(TOOLS + "ConsumerPerformance", *arguments, version=version)
    assert re.search(r", 5\d{4}, ", table), table


def test_groups_are_listed_described_reset_and_deleted(cluster: Up, version: str) -> None:
    """ConsumerGroupCommand over a group that a Java consumer left."""
    topic, group = f"groups-{version}", f"group-{version}"
    topics(cluster, version, "--create", "--topic", topic, "--partitions", 2)
    produce(cluster, version, topic, [f"line {n}" for n in range(100)])
    assert len(consume(cluster, version, topic, 100, "--group", group)) == 100
    main = TOOLS + "consumer.group.ConsumerGroupCommand"
    base = ("--bootstrap-server", cluster.bootstrap)
    assert group in run(main, *base, "--list", version=version).split()
    described = run(main, *base, "--describe", "--group", group, version=version)
    assert len(re.findall(rf"{group}\s+{topic}\s+\d\s+\d+\s+\d+\s+0", described)) == 2
    state = run(main, *base, "--describe", "--group", group, "--state", version=version)
    assert "Empty" in state
    resets = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert len(re.findall(rf"{topic}\s+\d\s+0", run(main, *base, *resets, version=version))) == 2
    assert len(consume(cluster, version, topic, 100, "--group", group)) == 100
    run(main, *base, "--delete-offsets", "--group", group, "--topic", topic, version=version)
    # With its last offset an empty group goes too, as with Apache's coordinator.
    assert group not in run(main, *base, "--list", version=version).split()
    assert len(consume(cluster, version, topic, 100, "--group", group)) == 100
    run(main, *base, "--delete", "--group", group, version=version)
    assert group not in run(main, *base, "--list", version=version).split()


def test_configurations_are_altered_and_described(cluster: Up, version: str) -> None:
    """ConfigCommand on a topic, on a broker and on the cluster's default."""
    topic = f"configs-{version}"
    topics(cluster, version, "--create", "--topic", topic)
    base = ("--bootstrap-server", cluster.bootstrap)
    main = "kafka.admin.ConfigCommand"
    on_topic = ("--entity-type", "topics", "--entity-name", topic)
    run(main, *base, "--alter", *on_topic, "--add-config", "retention.ms=777,cleanup.policy=compact", version=version)
    described = run(main, *base, "--describe", *on_topic, version=version)
    assert "retention.ms=777" in described
    assert "cleanup.policy=compact" in described
    run(main, *base, "--alter", *on_topic, "--delete-config", "retention.ms", version=version)
    assert "retention.ms=777" not in run(main, *base, "--describe", *on_topic, version=version)
    on_broker = ("--entity-type", "brokers", "--entity-name", "0")
    run(main, *base, "--alter", *on_broker, "--add-config", "log.retention.ms=99999999", version=version)
    assert "log.retention.ms=99999999" in run(main, *base, "--describe", *on_broker, version=version)
    run(main, *base, "--alter", *on_broker, "--delete-config", "log.retention.ms", version=version)
    everything = run(main, *base, "--describe", "--all", *on_broker, version=version)
    assert "broker.id=0" in everything


def test_offsets_and_log_dirs_are_listed(cluster: Up, version: str) -> None:
    """GetOffsetShell and LogDirsCommand."""
    topic = f"offsets-{version}"
    topics(cluster, version, "--create", "--topic", topic, "--partitions", 2)
    produce(cluster, version, topic, [f"line {n}" for n in range(10)])
    base = ("--bootstrap-server", cluster.bootstrap)
    output = run(TOOLS + "GetOffsetShell", *base, "--topic", topic, version=version).split()
    assert sum(int(line.rpartition(":")[2]) for line in output) == 10
    earliest = run(TOOLS + "GetOffsetShell", *base, "--topic", topic, "--time", "-2", version=version).split()
    assert sorted(earliest) == [f"{topic}:0:0", f"{topic}:1:0"]
    output = run(TOOLS + "LogDirsCommand", *base, "--describe", "--topic-list", topic, version=version)
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    partitions = [p for d in broker["logDirs"] for p in d["partitions"]]
    assert sorted(p["partition"] for p in partitions) == [f"{topic}-0", f"{topic}-1"]
    assert sum(p["size"] for p in partitions) > 0


def test_the_verifiable_clients_agree(cluster: Up, version: str) -> None:
    """VerifiableProducer has every record acknowledged, VerifiableConsumer reads and
    commits each."""
    topic = f"verifiable-{version}"
    topics(cluster, version, "--create", "--topic", topic, "--partitions", 3)
    base = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    said = run(TOOLS + "VerifiableProducer", *base, "--max-messages", 2000, "--acks", -1, version=version)
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 2000
    command = (TOOLS + "VerifiableConsumer", *base, "--group-id", f"verify-{version}", "--max-messages", 2000)
    arguments = apache_command("tool", "--version", version, *command, "--reset-policy", "earliest")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    consumed = sum(event["count"] for event in events if event["name"] == "records_consumed")
    assert consumed >= 2000, done.stdout[-2000:] + done.stderr[-2000:]
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_the_segments_of_a_running_broker_pass_apaches_checks(cluster: Up, version: str) -> None:
    """DumpLogSegments finds no fault in logs and indexes that hold every codec."""
    topic = f"console-{version}-zstd"
    segments = sorted(Path(cluster.directory, "kafka-logs", f"{topic}-0").glob("*.log"))
    assert segments, "the console test wrote this topic before"
    main = "kafka.tools.DumpLogSegments" if version.startswith("3.") else TOOLS + "DumpLogSegments"
    for segment in segments:
        dumped = run(main, "--files", segment, "--deep-iteration", "--print-data-log", version=version)
        assert "value 499" in dumped
        run(main, "--files", segment.with_suffix(".index"), "--verify-index-only", version=version)
