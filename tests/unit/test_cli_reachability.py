"""One rule for all commands when no broker answers: a clear error of one line, within the
time that the user gives."""

import contextlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.commands import COMMANDS
from barnabas.cli.main import main

# What each command that talks to a cluster needs beside the address; BROKER stands for it.
PERF = ("--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1")
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "overview": ("--bootstrap-server", "BROKER"),
    "doctor": ("--bootstrap-server", "BROKER"),
    "top": ("--bootstrap-server", "BROKER"),
    "tail": ("t", "--bootstrap-server", "BROKER"),
    "cat": ("-L", "-b", "BROKER"),
    "groups": ("list", "--bootstrap-server", "BROKER"),
    "lag": ("--bootstrap-server", "BROKER"),
    "topics": ("--list", "--bootstrap-server", "BROKER"),
    "console-producer": ("--topic", "t", "--bootstrap-server", "BROKER"),
    "console-consumer": ("--topic", "t", "--bootstrap-server", "BROKER"),
    "consumer-groups": ("--list", "--bootstrap-server", "BROKER"),
    "acls": ("--list", "--bootstrap-server", "BROKER"),
    "configs": ("--describe", "--topic", "t", "--bootstrap-server", "BROKER"),
    "get-offsets": ("--topic", "t", "--bootstrap-server", "BROKER"),
    "delete-records": ("--offset-json-file", "JSON", "--bootstrap-server", "BROKER"),
    "reassign-partitions": ("--list", "--bootstrap-server", "BROKER"),
    "leader-election": (
        *("--election-type", "preferred", "--all-topic-partitions"),
        *("--bootstrap-server", "BROKER"),
    ),
    "log-dirs": ("--describe", "--bootstrap-server", "BROKER"),
    "replica-verification": ("--broker-list", "BROKER"),
    "broker-api-versions": ("--bootstrap-server", "BROKER"),
    "cluster": ("cluster-id", "--bootstrap-server", "BROKER"),
    "producer-perf-test": (*PERF, "--bootstrap-server", "BROKER"),
    "consumer-perf-test": ("--topic", "t", "--messages", "1", "--bootstrap-server", "BROKER"),
    "e2e-latency": ("BROKER", "t", "1", "all", "10"),
    "verifiable-producer": ("--topic", "t", "--bootstrap-server", "BROKER"),
    "verifiable-consumer": ("--topic", "t", "--group-id", "g", "--bootstrap-server", "BROKER"),
    "transactional-message-copier": (
        *("--input-topic", "t", "--output-topic", "o", "--input-partition", "0", "--transactional-id", "x"),
        *("--max-messages", "1", "--consumer-group", "g", "--broker-list", "BROKER"),
    ),
    "transactions": ("--bootstrap-server", "BROKER", "list"),
    "features": ("--bootstrap-server", "BROKER", "describe"),
    "mirror-maker": (
        *("--consumer.config", "PROPERTIES", "--producer.config", "PROPERTIES"),
        *("--include", "t"),
    ),
}
WITHOUT_BROKERS = {
    *("up", "status", "logs", "down", "server-start", "server-stop"),  # they start and stop brokers
    *("zookeeper-server-start", "zookeeper-server-stop", "zookeeper-shell", "zookeeper-status", "zookeeper-dump"),
    *("registry", "rest"),  # servers: they say it in their log
    # Files, or other commands.
    *("dump-log", "lost-records", "context", "completion", "shims", "run-class", "metrics"),
    "pipeline",  # tests/spark: it needs Spark
}
OWN_TIMEOUT = {"console-producer", "consumer-groups", "console-consumer", "reassign-partitions", "consumer-perf-test"}
"""Their ``--timeout``, or ``--timeout-ms``, is Kafka's and means another time."""
WAITING = {
    *("tail", "cat", "console-producer", "console-consumer", "mirror-maker", "replica-verification", "e2e-latency"),
    *("producer-perf-test", "consumer-perf-test", "verifiable-producer", "verifiable-consumer"),
    "transactional-message-copier",
}
"""They go on until they are stopped, or until their records have been read or written."""
INCOMPLETE = {"doctor"}
"""They end with 3 where the cluster cannot be read: their 1 says that something was found."""
PROMPT_S = 30.0


@pytest.fixture(autouse=True)
def no_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration folder of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def arguments(command: str, broker: str, tmp_path: Path) -> list[str]:
    """A command line."""
    properties, document = tmp_path / "c.properties", tmp_path / "offsets.json"
    properties.write_text(f"bootstrap.servers={broker}\ngroup.id=g\n")
    document.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    places = {"BROKER": broker, "PROPERTIES": str(properties), "JSON": str(document)}
    return [command, *(places.get(word, word) for word in ARGUMENTS[command])]


def test_every_command_is_tried() -> None:
    """A new command is either here, or says why it is not."""
    assert ARGUMENTS.keys() | WITHOUT_BROKERS == COMMANDS.keys()
    assert not ARGUMENTS.keys() & WITHOUT_BROKERS


@pytest.mark.parametrize("command", ARGUMENTS)
def test_where_nothing_listens_the_error_comes_at_once(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the address and asks the question that helps."""
    assert main(arguments(command, "127.0.0.1:1", tmp_path)) == (3 if command in INCOMPLETE else 1)
    shown = capsys.readouterr().err
    assert "Error: 127.0.0.1:1 refused the connection: is a broker running there?" in shown.splitlines()


@pytest.mark.parametrize("command", ARGUMENTS)
def test_where_nobody_answers_the_error_comes_after_the_time_that_is_given(
    command: str, silent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that accepts connections and says nothing is as good as none."""
    option = "--connect-timeout" if command in OWN_TIMEOUT else "--timeout"
    began = time.monotonic()
    assert main([*arguments(command, silent, tmp_path), option, "0.2"]) == (3 if command in INCOMPLETE else 1)
    assert time.monotonic() - began < PROMPT_S
    assert re.search(f"Error: {silent} did not answer within (200|1\\d\\d) ms", capsys.readouterr().err)


def test_the_time_is_5_s_unless_another_one_is_given(silent: str) -> None:
    """In a process of its own, as a user would see it."""
    command = [sys.executable, "-m", "barnabas", "topics", "--list", "--bootstrap-server", silent]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {silent} did not answer within 5 s\n"


@pytest.mark.parametrize("command", ARGUMENTS)
def test_the_help_says_whether_the_deadline_is_for_the_answer_or_for_the_start(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that waits by nature has no answer that could be complete by then."""
    assert main([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("how many seconds to wait for a broker's first answer (default: 5)" in shown) == (command in WAITING)
    assert ("answer within S seconds, with what is known by then (default: 5)" in shown) == (command not in WAITING)


@pytest.mark.parametrize("command", ["zookeeper-shell", "zookeeper-status"])
def test_a_coordination_server_that_is_not_there_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Within 5 s, too."""
    words = ["127.0.0.1:1", "ls", "/"] if command == "zookeeper-shell" else ["127.0.0.1:1"]
    began = time.monotonic()
    with contextlib.suppress(SystemExit):
        assert main([command, *words]) == 1
    assert time.monotonic() - began < PROMPT_S
    shown = capsys.readouterr()
    assert "127.0.0.1:1" in shown.out + shown.err
    assert "Traceback" not in shown.err
