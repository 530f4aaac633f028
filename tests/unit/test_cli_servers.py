"""What the commands that start servers say when they cannot."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import stat
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.cli.local.files import ServerFile
from barnabas.cli.local.supervisor import Supervisor, _blocked_signals
from barnabas.cli.main import main
from barnabas.cli.servers.signals import start_unless_stopped, stop_event


def server_properties(tmp_path: Path, text: str) -> str:
    """A properties file."""
    path = tmp_path / "server.properties"
    path.write_text(text)
    return str(path)


def test_a_configuration_of_kraft_mode_gets_an_answer_that_explains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka 4's own server.properties: what is found, what is needed, what does it all at once."""
    text = "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
    assert main(["server-start", server_properties(tmp_path, text)]) == 1
    shown = capsys.readouterr().err
    assert "configures a node of KRaft mode (process.roles, controller.quorum.voters)" in shown
    assert "set zookeeper.connect=HOST:PORT" in shown
    assert "barnabas up" in shown


def test_an_empty_data_dir_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """As from a variable that is not set: a temporary cluster would lose what its
    user wants to keep."""
    assert main(["up", "--data-dir", ""]) == 1
    assert "--data-dir is empty" in capsys.readouterr().err


def test_a_full_disk_is_one_line_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, whatever write it is that fails."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr("barnabas.cli.local.up._run", full)
    assert main(["up", "--data-dir", str(tmp_path)]) == 1
    remedy = "free some space, or choose another folder with --data-dir"
    assert f"{tmp_path}: No space left on device; {remedy}\n" in capsys.readouterr().err


def test_a_broker_without_coordination_says_what_it_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """After two seconds, long before it gives up."""
    text = (
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\nzookeeper.connect=127.0.0.1:1\n"
        "zookeeper.connection.timeout.ms=2050\n"
    )
    caplog.set_level(logging.WARNING)
    assert main(["server-start", server_properties(tmp_path, text)]) == 1
    waiting = "Waiting for a coordination server at zookeeper.connect=127.0.0.1:1, up to 2050 ms in all"
    assert waiting in caplog.text
    assert "could be reached within 2050 ms. Is it running?" in capsys.readouterr().err


def test_a_cluster_is_ready_when_every_broker_knows_every_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates from the controller reach brokers one by one: the first to know all does
    not speak for the others."""
    known = {"here:1": [2, 3], "here:2": [2, 2, 3], "here:3": [1, 3]}

    @contextlib.contextmanager
    def connect(server: str, _properties: object) -> Iterator[SimpleNamespace]:
        cluster = SimpleNamespace(brokers=range(known[server].pop(0)), controller_id=0)
        yield SimpleNamespace(describe_cluster=lambda: cluster)

    monkeypatch.setattr("barnabas.client.cluster.admin_connection.AdminConnection", connect)
    monkeypatch.setattr("barnabas.client.admin.groups.prepare_groups", lambda *_: None)
    assert Supervisor(tmp_path, [], ",".join(known), 3).wait_until_ready()
    assert known == {"here:1": [], "here:2": [], "here:3": []}


def test_a_signal_waits_while_a_child_starts() -> None:
    """The child inherits the handlers: one that ran there would swallow the signal, and
    the child would never end."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with _blocked_signals():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_properties_file_that_up_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    """An override may hold a password; a file of before, which all could read, is replaced."""
    path = tmp_path / "server.properties"
    path.write_text("")
    path.chmod(0o644)
    assert ServerFile(path, {"ssl.keystore.password": "geheim"}).write() == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "ssl.keystore.password=geheim\n" in path.read_text()


def test_a_signal_ends_a_start() -> None:
    """A server whose cluster is away still waits for it: the start is cancelled."""

    async def run() -> tuple[bool, bool]:
        is_cancelled = False

        async def start() -> None:
            nonlocal is_cancelled
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_cancelled = True
                raise

        return await start_unless_stopped(start(), stop_event()), is_cancelled

    assert asyncio.run(run()) == (False, True)


def test_a_start_that_fails_says_why() -> None:
    """Its error is raised, and a start that ends well is known to have ended."""

    async def run(start: Coroutine[None, None, None]) -> bool:
        return await start_unless_stopped(start, asyncio.Event())

    async def fail() -> None:
        raise BarnabasError("the port is taken")

    async def succeed() -> None:
        pass

    assert asyncio.run(run(succeed()))
    with pytest.raises(BarnabasError, match="the port is taken"):
        asyncio.run(run(fail()))
