"""The commands for measurements and trials, which have Kafka's options and output.

Apache's own beside them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import main
from barnabas.client import BYTES, Admin, Producer
from barnabas.testing import Cluster
from support.needs import needs_reference
from support.reference import apache_tool
from support.servers import Up, up

pytestmark = [pytest.mark.interop]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One broker for the module."""
    with up(tmp_path_factory.mktemp("tools")) as running:
        yield running


def run(*arguments: object, text: str = "", code: int = 0, env: dict[str, str] | None = None) -> str:
    """A command's standard output."""
    command = [sys.executable, "-m", "barnabas", *map(str, arguments)]
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(
        command, capture_output=True, text=True, input=text, timeout=120, check=False, env=environment
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def events(output: str) -> list[dict[str, object]]:
    """The JSON objects of a verifiable tool."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def shape(found: list[dict[str, object]]) -> list[tuple[object, list[str]]]:
    """Names of events with the names of their fields."""
    return [(event["name"], sorted(event)) for event in found]


TOTAL = re.compile(
    r"1000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n$"
)


def test_throughput_is_measured_in_both_directions(cluster: Up) -> None:
    """producer-perf-test, then consumer-perf-test, in Kafka's words."""
    bootstrap = f"bootstrap.servers={cluster.bootstrap}"
    size = ("--num-records", 1000, "--record-size", 100, "--throughput", -1)
    assert TOTAL.search(run("producer-perf-test", "--topic", "perf", *size, "--producer-props", bootstrap, "acks=all"))
    out = run("consumer-perf-test", "--bootstrap-server", cluster.bootstrap, "--topic", "perf", "--messages", 1000)
    header, figures = out.splitlines()
    assert header.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, ")
    fields = figures.split(", ")
    assert len(fields) == len(header.split(", "))
    assert fields[4] == "1000"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", fields[0])


def test_a_given_throughput_is_kept(cluster: Up) -> None:
    """200 records at 400 a second take half a second, and on a machine with other
    work somewhat longer."""
    run("topics", "--create", "--topic", "slow", "--bootstrap-server", cluster.bootstrap)
    out = run(
        *("producer-perf-test", "--topic", "slow", "--num-records", 200, "--payload-monotonic", "--throughput", 400),
        *("--bootstrap-server", cluster.bootstrap),
    )
    rate = float(re.search(r"([\d.]+) records/sec", out)[1])
    assert 20 < rate < 440


def test_the_latency_from_end_to_end_is_measured(cluster: Up, tmp_path: Path) -> None:
    """The topic is created, and the percentiles are there; the file is that of
    Apache's own test of its tool."""
    file = tmp_path / "client.properties"
    file.write_text("compression_type=none\nsecurity.protocol=PLAINTEXT\n")
    out = run("e2e-latency", cluster.bootstrap, "end-to-end", 30, "all", 100, file)
    assert re.search(r"Avg latency: [\d.]+ ms\n\nPercentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+\n$", out)


@pytest.mark.java
@needs_reference
def test_the_verifiable_tools_print_apaches_events(cluster: Up) -> None:
    """The same events with the same fields, from either side's tool on either side's records."""
    producing = ("--bootstrap-server", cluster.bootstrap, "--topic", "verified", "--max-messages", 5, "--acks", "-1")
    theirs = events(apache_tool("org.apache.kafka.tools.VerifiableProducer", *producing).stdout)
    ours = events(run("verifiable-producer", *producing))
    assert shape(ours) == shape(theirs)
    assert [event["value"] for event in ours if event["name"] == "producer_send_success"] == list("01234")
    consuming = ("--bootstrap-server", cluster.bootstrap, "--topic", "verified", "--max-messages", 10)
    main = "org.apache.kafka.tools.VerifiableConsumer"
    theirs = events(apache_tool(main, *consuming, "--group-id", "theirs").stdout)
    ours = events(run("verifiable-consumer", *consuming, "--group-id", "ours"))
    by_name = {event["name"]: sorted(event) for event in theirs}
    # Apache's revokes at the start and at the end; what each event holds is the same.
    assert {event["name"]: sorted(event) for event in ours} == by_name
    for found in (ours, theirs):
        consumed = [event for event in found if event["name"] == "records_consumed"]
        assert sum(event["count"] for event in consumed) == 10
        assert sorted(consumed[0]["partitions"][0]) == ["count", "maxOffset", "minOffset", "partition", "topic"]


def test_the_verifiable_consumer_reads_bytes_that_are_no_text(cluster: Up) -> None:
    """As Java's StringDeserializer does; Ctrl-C ends it with 130, after its last event."""
    with Producer({"bootstrap.servers": cluster.bootstrap}, serializer=BYTES) as producer:
        producer.send("binary", b"\xff\x00")
    command = [sys.executable, "-m", "barnabas", "verifiable-consumer", "--bootstrap-server", cluster.bootstrap]
    command += ["--topic", "binary", "--group-id", "binary", "--verbose"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        line = ""
        while "record_data" not in line:
            line = consumer.stdout.readline()
            assert line, consumer.stderr.read()
        assert json.loads(line)["value"] == "\ufffd\0"
        consumer.send_signal(signal.SIGINT)
        output, errors = consumer.communicate(timeout=60)
    assert (consumer.returncode, errors) == (130, "")
    assert events(output)[-1]["name"] == "shutdown_complete"


def test_cat_copies_keys_and_values_both_ways(cluster: Up) -> None:
    """kcat's letters: -P with -K, -C with -f, -J, the last N, and the list."""
    run("cat", "-b", cluster.bootstrap, "-t", "cats", "-P", "-K", ":", text="a:1\nb:2\nc:3\n")
    assert (
        run("cat", "-b", cluster.bootstrap, "-t", "cats", "-C", "-e", "-f", r"%k=%s@%p/%o\n")
        == "a=1@0/0\nb=2@0/1\nc=3@0/2\n"
    )
    assert json.loads(run("cat", "-b", cluster.bootstrap, "-t", "cats", "-C", "-e", "-J", "-o", "-1"))["key"] == "c"
    assert 'topic "cats" with 1 partitions' in run("cat", "-b", cluster.bootstrap, "-L")


def test_cat_sends_each_header_and_shows_empty_ones(cluster: Up) -> None:
    """Headers may have one name, and stay in order; an empty value is not null."""
    topic = ("-b", cluster.bootstrap, "-t", "headers")
    run("cat", *topic, "-P", "-H", "a=1", "-H", "a=2", "-H", "empty=", "-H", "a=b=c", text="x\n")
    (record,) = map(json.loads, run("cat", *topic, "-C", "-e", "-J").splitlines())
    assert record["headers"] == [["a", "1"], ["a", "2"], ["empty", ""], ["a", "b=c"]]
    assert run("cat", *topic, "-C", "-e", "-f", r"%h\n") == "a=1,a=2,empty=,a=b=c\n"


def test_tools_show_records_whatever_their_time(cluster: Up) -> None:
    """Microseconds and nanoseconds, which producers send by mistake, and the first millisecond."""
    times = [1, 1_764_201_600_000_000, 1_764_201_600_000_000_000]
    with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
        for number, time in enumerate(times):
            producer.send("times", f"value {number}", timestamp_ms=time)
    base = ("--bootstrap-server", cluster.bootstrap)
    lines = run("tail", "times", "--no-follow", *base).splitlines()
    assert [line.rpartition("value ")[2] for line in lines] == ["0", "1", "2"]
    assert [str(each) in line for each, line in zip(times[1:], lines[1:], strict=True)] == [True, True]
    assert run("cat", *base, "-t", "times", "-C", "-e", "-f", r"%T ").split() == [str(each) for each in times]
    consumed = run(
        "console-consumer",
        *base,
        "--topic",
        "times",
        "--from-beginning",
        "--max-messages",
        3,
        "--property",
        "print.timestamp=true",
    )
    assert f"CreateTime:{times[2]}\tvalue 2" in consumed
    found = json.loads(run("get-offsets", *base, "--topic", "times", "--time", times[1], "--output", "json"))
    assert [(each["offset"], each["timestamp"]) for each in found] == [(1, times[1])]


def test_tail_shows_the_last_records_and_filters(cluster: Up) -> None:
    """As lines for people and as JSON; a wrong topic gets a suggestion."""
    run("cat", "-b", cluster.bootstrap, "-t", "tailed", "-P", text="".join(f"value {n}\n" for n in range(20)))
    base = ("tail", "--bootstrap-server", cluster.bootstrap, "--no-follow")
    lines = run(*base, "tailed", "--last", 2, "--output", "json").splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["value 18", "value 19"]
    assert [
        line.rpartition(" ")[2] for line in run(*base, "tailed", "--since", "10m", "--filter", "1[12]$").splitlines()
    ] == [
        "11",
        "12",
    ]
    command = [sys.executable, "-m", "barnabas", *base, "taild"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "topic taild does not exist; did you mean tailed?" in done.stderr


def test_a_group_is_moved_and_the_overview_shows_its_lag(cluster: Up) -> None:
    """groups seek, overview, and what completion offers."""
    run("cat", "-b", cluster.bootstrap, "-t", "sought", "-P", text="x\ny\nz\n")
    run("cat", "-b", cluster.bootstrap, "-t", "sought", "-G", "seekers", "-c", 3)
    base = ("--bootstrap-server", cluster.bootstrap)
    (moved,) = json.loads(run("groups", "seek", "seekers", "--to", "1", *base, "--output", "json"))
    assert (moved["before"], moved["offset"]) == (3, 1)
    found = json.loads(run("overview", *base, "--output", "json"))
    assert {"group": "seekers", "state": "Empty", "members": 0, "lag": 2} in found["groups"]
    assert [topic["records"] for topic in found["topics"] if topic["name"] == "sought"] == [3]
    assert run("completion", "--words", "topics", *base, "--topic", "sou") == "sought\n"
    assert run("completion", "--words", "consumer-groups", *base, "--group", "see") == "seekers\n"
    assert run("completion", "--words", "configs", *base, "--broker", "") == "0\n"


def test_apaches_command_lines_work_unchanged(cluster: Up, tmp_path: Path) -> None:
    """The scripts of shims, and run-class as the course's notes write it."""
    run("shims", tmp_path)
    script = tmp_path / "kafka-topics.sh"
    command = [str(script), "--create", "--topic", "shimmed", "--bootstrap-server", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "Created topic shimmed.\n"
    assert (
        run("run-class", "kafka.tools.GetOffsetShell", "--bootstrap-server", cluster.bootstrap, "--topic", "shimmed")
        == "shimmed:0:0\n"
    )


def test_server_stop_stops_the_broker_that_is_meant(tmp_path: Path, cluster: Up) -> None:
    """By its properties file; the others run on."""
    path = tmp_path / "server.properties"
    path.write_text(
        f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\nzookeeper.connect={cluster.zookeeper}\n"
    )
    command = [sys.executable, "-m", "barnabas", "server-start", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        next(line for line in broker.stderr if "started" in line)
        run("server-stop", "--properties", path, "--node-id", 8, code=1)
        run("server-stop", "--properties", path, "--node-id", 7)
        assert broker.wait(60) == 0


def test_ctrl_c_ends_a_consumer_whose_broker_is_gone(tmp_path: Path) -> None:
    """130 and the total, without a traceback, although callbacks of the client run all the time."""
    with up(tmp_path) as alone:
        command = [sys.executable, "-m", "barnabas", "console-consumer", "--topic", "t"]
        command += ["--bootstrap-server", alone.bootstrap, "--from-beginning"]
        run("cat", "-b", alone.bootstrap, "-t", "t", "-P", text="there\n")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
            assert consumer.stdout.readline() == "there\n"
            os.kill(alone.pids["0"], signal.SIGKILL)
            assert "problem with a broker" in consumer.stderr.readline()
            consumer.send_signal(signal.SIGINT)
            _, errors = consumer.communicate(timeout=60)
    assert consumer.returncode == 130, errors
    assert "Processed a total of 1 messages" in errors
    assert "SystemError" not in errors
    assert "suppressed" not in errors


def test_a_move_to_a_log_dir_that_is_not_there_starts_nothing(cluster: Up, tmp_path: Path) -> None:
    """The error names the dirs that are there, and no line says that anything was started."""
    run("topics", "--create", "--topic", "moving", "--bootstrap-server", cluster.bootstrap)
    plan = tmp_path / "plan.json"
    entry = {"topic": "moving", "partition": 0, "replicas": [0], "log_dirs": ["/no/such/dir"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    command = ["reassign-partitions", "--bootstrap-server", cluster.bootstrap, "--execute"]
    command = [sys.executable, "-m", "barnabas", *command, "--reassignment-json-file", str(plan)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "nothing was started. Broker 0 has the log dirs" in done.stderr
    assert "Successfully started" not in done.stdout


def test_the_time_without_records_counts_from_the_assignment() -> None:
    """--timeout-ms is shorter than the delay with which a new group begins."""
    with Cluster(settings={"group.initial.rebalance.delay.ms": "4000"}) as delayed:
        base = ("--bootstrap-server", delayed.bootstrap_servers, "--topic", "t")
        run("cat", "-b", delayed.bootstrap_servers, "-t", "t", "-P", text="there\n")
        assert run("console-consumer", *base, "--from-beginning", "--timeout-ms", 3500) == "there\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("topics", "--describe", "--topic", "ordres"), "did you mean orders?"),
        (("console-consumer", "--topic", "ordres", "--timeout-ms", "60000"), "did you mean orders?"),
        (("tail", "ordres"), "did you mean orders?"),
        (("cat", "-C", "-t", "ordres"), "did you mean orders?"),
        (("get-offsets", "--topic", "ordres"), "did you mean orders?"),
        (("configs", "--describe", "--topic", "ordres"), "did you mean orders?"),
        (("configs", "--alter", "--topic", "ordres", "--add-config", "retention.ms=5"), "did you mean orders?"),
        (("groups", "seek", "g", "--to", "start", "--topic", "ordres"), "did you mean orders?"),
        (("configs", "--alter", "--topic", "orders", "--add-config", "retntion.ms=5"), "did you mean retention.ms?"),
        (("topics", "--create", "--topic", "new", "--config", "retntion.ms=5"), "did you mean retention.ms?"),
        (
            ("console-consumer", "--topic", "orders", "--consumer-property", "fetch.min.byts=1"),
            "did you mean fetch.min.bytes?",
        ),
        (
            ("console-producer", "--topic", "orders", "--producer-property", "lingr.ms=1"),
            "did you mean linger.ms?",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_name_with_a_typing_error_is_answered_with_the_one_that_may_be_meant(
    words: tuple[str, ...], hint: str, cluster: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics of the cluster, and properties."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topic("orders", if_not_exists=True)
    assert main([*words, "--bootstrap-server", cluster.bootstrap]) == 1
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (
            ("configs", "--alter", "--broker-defaults", "--add-config", "num.netwrok.threads=3"),
            "warning: num.netwrok.threads is not a property of brokers; did you mean num.network.threads?",
        ),
        (
            ("console-consumer", "--topic", "orders", "--property", "print.kye=true", "--timeout-ms", "1"),
            "warning: print.kye is not a property of this formatter; did you mean print.key?",
        ),
        (
            ("console-producer", "--topic", "orders", "--property", "parse.kye=true"),
            "warning: parse.kye is not a property of the line reader; did you mean parse.key?",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_property_that_kafkas_tools_take_in_silence_is_warned_about(
    words: tuple[str, ...], warning: str, cluster: Up
) -> None:
    """Their exit code is Kafka's all the same."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topic("orders", if_not_exists=True)
    command = [sys.executable, "-m", "barnabas", *words, "--bootstrap-server", cluster.bootstrap]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0
    assert warning in done.stderr.splitlines()


def test_figures_are_json_for_scripts(cluster: Up) -> None:
    """One document on standard output, nothing else."""
    base = ("--bootstrap-server", cluster.bootstrap, "--output", "json")
    sizes = ("--num-records", 100, "--record-size", 10, "--throughput", -1)
    sent = json.loads(run("producer-perf-test", "--topic", "figures", *sizes, *base))
    assert (sent["records"], sent["failed"]) == (100, 0)
    assert sent["avg_ms"] <= sent["max_ms"]
    read = json.loads(run("consumer-perf-test", "--topic", "figures", "--messages", 100, *base))
    assert read["data.consumed.in.nMsg"] == 100
    latency = json.loads(run("e2e-latency", cluster.bootstrap, "figures-latency", 3, "all", 10, "--output", "json"))
    assert latency["messages"] == 3
