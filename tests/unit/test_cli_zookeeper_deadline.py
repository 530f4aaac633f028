"""Readers of a coordination service end by their deadline: a server that is frozen, silent, or
sends a byte now and then."""

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from barnabas.cli.main import main
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.testing import Cluster
from support.typed_lines import TypedLines

PROMPT_S = 25.0
ANSWERS_WITHIN_S = 4
"""Enough for a real server on a machine that is busy; where none answers less will do."""


@contextmanager
def trickling() -> Iterator[str]:
    """A server that sends a byte now and then."""
    over = threading.Event()

    def serve(connected: socket.socket) -> None:
        with connected:
            while not over.wait(0.05):
                try:
                    connected.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    connected, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connected,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A coordination server with data, and a broker beside it."""
    with Cluster(1) as made:
        yield made


def test_the_status_of_the_servers_that_answer_is_shown_in_time(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are named, and the exit status is that of an incomplete answer;
    where none answers it is 1."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        others = [f"127.0.0.1:{silent.getsockname()[1]}", stack.enter_context(trickling())]
        began = time.monotonic()
        servers = ",".join([cluster.zookeeper_connect, *others])
        assert main(["zookeeper-status", servers, "--timeout", f"{ANSWERS_WITHIN_S}"]) == INCOMPLETE
        shown = capsys.readouterr()
        assert f"{cluster.zookeeper_connect} standalone" in shown.out
        assert shown.err.splitlines() == [
            f"Incomplete: {each}: unreachable (no answer within {ANSWERS_WITHIN_S} s)" for each in others
        ]
        assert main(["zookeeper-status", ",".join(others), "--connect-timeout", "0.5"]) == 1
        assert time.monotonic() - began < PROMPT_S


def _commands_around_a_freeze(cluster: Cluster) -> Iterator[str]:
    """A command before the server stands still, one meanwhile, and one afterwards."""
    yield "ls /brokers/ids\n"
    cluster.pause("zookeeper")
    yield "get /brokers/ids/0\n"
    cluster.resume("zookeeper")
    yield "ls /brokers/ids\n"


def test_a_command_of_the_shell_does_not_wait_for_a_frozen_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command has the deadline, and the conversation goes on."""
    began = time.monotonic()
    monkeypatch.setattr(sys, "stdin", TypedLines(_commands_around_a_freeze(cluster)))
    assert main(["zookeeper-shell", "--connect-timeout", "1.5", cluster.zookeeper_connect]) == 0
    assert time.monotonic() - began < PROMPT_S
    shown = capsys.readouterr()
    assert shown.out.count("[0]") == 2
    assert f"{cluster.zookeeper_connect} did not answer within 1.5 s" in shown.err
