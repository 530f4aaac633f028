"""When what commands print goes out, and what they do where it cannot."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_ports
from support.waiting import eventually

BARNABAS = [sys.executable, "-m", "barnabas"]
USERS = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""The environment without Python's own variables, such as PYTHONUNBUFFERED, which
users do not have."""
PREPARED = "import sys; from barnabas.cli.output.standard_streams import *; prepare_streams(); "
FULL, GONE, CLOSED = "full", "gone", "closed"
"""Where nothing can be written: a full disk, a pipe that nothing reads, and nowhere."""


def run(arguments: str, stdout: str = "", stderr: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    """``barnabas ARGUMENTS`` with outputs that fail, or are read."""
    outputs = {"stdout": stdout, "stderr": stderr}
    closed = " ".join({"stdout": ">&-", "stderr": "2>&-"}[name] for name, kind in outputs.items() if kind == CLOSED)
    command = ["bash", "-c", f'exec "$@" {closed}', "bash", *BARNABAS, *arguments.split()]
    descriptors = {name: _output(kind) for name, kind in outputs.items()}
    try:
        return subprocess.run(command, **descriptors, text=True, check=False, timeout=120, env={**USERS, **environment})
    finally:
        for each in descriptors.values():
            if each >= 0:
                os.close(each)


def _output(kind: str) -> int:
    if kind == FULL:
        return os.open("/dev/full", os.O_WRONLY)
    if kind == GONE:
        read, write = os.pipe()
        os.close(read)
        return write
    return subprocess.PIPE


@pytest.fixture(params=["pipe", "file", "terminal"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """An output's two descriptors: where it is read and where it is written."""
    if request.param == "pipe":
        read, write = os.pipe()
    elif request.param == "terminal":
        read, write = os.openpty()
    else:
        write = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
        read = os.open(tmp_path / "output", os.O_RDONLY)
    yield read, write
    for each in (read, write):
        os.close(each)


def test_a_line_goes_out_when_it_is_printed(ends: tuple[int, int]) -> None:
    """To a pipe and a file as to a terminal: the process still runs when its line is read."""
    read, write = ends
    script = PREPARED + "print('one'); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=write, env=USERS) as process:
        received = bytearray()

        def line_came() -> bool:
            received.extend(os.read(read, 100))
            return b"\n" in received

        eventually(line_came, what="the line")
        assert received.split() == [b"one"]
        assert process.poll() is None


def test_lines_that_are_all_there_go_out_in_blocks_and_before_the_next_one(tmp_path: Path) -> None:
    """A line would cost a call of the system; the last of them does not wait for a
    block to be full."""
    path = tmp_path / "output"
    script = PREPARED + (
        "import os\nsizes = []\n"
        "with in_blocks():\n    for n in range(1000): print('x' * 99); sizes.append(os.fstat(1).st_size)\n"
        "sizes.append(os.fstat(1).st_size); print('y'); sizes.append(os.fstat(1).st_size); print(sizes, file=sys.stderr)"
    )
    with path.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=output, stderr=subprocess.PIPE, text=True, check=True, env=USERS
        )
    *within, behind, after = json.loads(done.stderr)
    assert len(set(within)) < 50
    assert (behind, after) == (100_000, 100_002)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("topics --list --bootstrap-server 127.0.0.1:1", 1),
        ("topics --nonsense", 2),
        ("nonsense", 2),
        ("server-start /nowhere/server.properties", 1),
        ("zookeeper-server-start /nowhere/zoo.cfg", 2),
        ("up --brokers 0", 1),
        ("mirror-maker --consumer.config /nowhere --producer.config /nowhere --include x", 1),
        ("pipeline run /nowhere.toml", 1),
    ],
)
def test_output_that_cannot_be_written_changes_no_exit_status_of_a_failure(arguments: str, code: int) -> None:
    """At standard error or both; Python's 120 at its end is none of ours."""
    assert run(arguments).returncode == code
    outputs = [(FULL, FULL), ("", FULL), (GONE, GONE), ("", GONE), ("", CLOSED)]
    assert {each: run(arguments, *each).returncode for each in outputs} == dict.fromkeys(outputs, code)


@pytest.mark.parametrize("arguments", ["--version", "topics --help", "completion bash", "run-class --help"])
def test_a_result_that_cannot_be_written_is_an_error_and_a_lost_message_is_none(arguments: str) -> None:
    """141 for a pipe that nothing reads, 1 for a full disk, as it is where the message of that
    cannot be written either."""
    expected = {(FULL, ""): 1, (FULL, FULL): 1, (GONE, ""): 141, (GONE, GONE): 141, (CLOSED, ""): 0}
    expected |= {("", FULL): 0, ("", GONE): 0, ("", CLOSED): 0}
    assert {each: run(arguments, *each).returncode for each in expected} == expected


@pytest.mark.parametrize("kind", [FULL, GONE])
@pytest.mark.parametrize("server", ["zookeeper-server-start", "up"])
def test_a_server_runs_on_where_its_output_cannot_be_written(server: str, kind: str, tmp_path: Path) -> None:
    """Its lines are news: it is ready, and ends with the status that it would have had."""
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    if server == "up":
        arguments = ["up", "--port", "0", "--zk-port", "0", "--data-dir", str(tmp_path / "data")]
    else:
        config = tmp_path / "zoo.cfg"
        (port,) = free_ports(1)
        config.write_text(f"dataDir={tmp_path}/data\nclientPort={port}\n")
        arguments = [server, str(config)]
    output = _output(kind)
    with subprocess.Popen([*BARNABAS, *arguments], stdout=output, stderr=output, env={**USERS, **state}) as process:
        os.close(output)
        if server == "up":
            eventually(lambda: json.loads(run("status --output json", **state).stdout), what="the cluster")
        else:
            shown = f"zookeeper-shell 127.0.0.1:{port} ls /"
            eventually(lambda: run(shown).returncode == 0, what="the server")
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.parametrize(("trap", "handler"), [("trap '' INT;", "Handlers.SIG_IGN"), ("", "default_int_handler")])
def test_ctrl_c_stays_ignored_where_it_was_ignored_at_the_start(trap: str, handler: str) -> None:
    """A job in the background of a script does not end at the Ctrl-C that is meant
    for the script."""
    script = "import signal; from barnabas.__main__ import main; main(); print(repr(signal.getsignal(signal.SIGINT)))"
    done = subprocess.run(
        ["bash", "-c", f'{trap} exec "$0" -c "{script}" --version', sys.executable],
        capture_output=True,
        text=True,
        check=True,
        env=USERS,
    )
    assert handler in done.stdout
