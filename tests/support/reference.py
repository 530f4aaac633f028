"""Apache Kafka and Apache ZooKeeper, run beside the project by ../shared/reference/apache."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from support.knowing import members_known
from support.needs import APACHE
from support.ports import free_ports
from support.waiting import eventually

_PROGRAM = Path(__file__).with_name("reference_program.py")


def apache_command(*args: object) -> list[str]:
    """The command line of the reference's program with arguments of its own."""
    return [sys.executable, str(_PROGRAM), str(APACHE), *map(str, args)]


def apache_tool(
    main: str, *args: object, version: str = "3.9.1", text: str = "", timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a Java main class of the distribution to its end."""
    # Its own timeout is 5 s, too short for the start of a JVM.
    limit = ("--timeout", "60000") if main.endswith("ConsumerGroupCommand") else ()
    command = apache_command("tool", "--version", version, main, *args, *limit)
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s, check=False)


_CONTROLLER_AT = 100
"""The reference's program has the controller's port so far above the broker's."""


@dataclass
class Reference:
    """A running reference cluster."""

    bootstrap: str
    zookeeper: str
    pids: list[int]
    directory: Path
    process: subprocess.Popen[str] = field(repr=False)


@contextlib.contextmanager
def apache_cluster(
    directory: Path,
    *,
    brokers: int = 1,
    zookeeper: str | None = None,
    version: str = "3.9.1",
    first_id: int = 0,
    settings: dict[str, str] | None = None,
    listeners: dict[str, int] | None = None,
) -> Iterator[Reference]:
    """Apache Kafka in ZooKeeper mode, on Apache's ZooKeeper or on the one named.

    ``listeners`` are those of a single broker beside PLAINTEXT, with their ports.
    """
    ports = free_ports(brokers + 1, consecutive=True)
    if listeners:
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in {"PLAINTEXT": ports[1], **listeners}.items()]
        settings = {**(settings or {}), "listeners": ",".join(addresses)}
    command = apache_command("up", "--brokers", brokers, "--version", version)
    command += ["--port", str(ports[1]), "--zk-port", str(ports[0])]
    command += ["--dir", str(directory), "--first-id", str(first_id)]
    command += ["--zk", zookeeper] if zookeeper else []
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    with _running(command, directory, brokers) as running:
        yield running


@contextlib.contextmanager
def apache_broker(directory: Path, version: str, settings: dict[str, str] | None = None) -> Iterator[str]:
    """One broker of Apache's, by itself from 4.0 on and with a ZooKeeper before; its address."""
    with apache_single(directory, version, settings) as running:
        yield running.bootstrap


@contextlib.contextmanager
def apache_single(
    directory: Path,
    version: str,
    settings: dict[str, str] | None = None,
    listeners: dict[str, int] | None = None,
    first_id: int = 0,
) -> Iterator[Reference]:
    """The same, with its processes: the broker is the last one. ``listeners`` as in
    `apache_cluster`. From 4.0 on the broker's id is one more than ``first_id``."""
    if version.startswith("3"):
        with apache_cluster(directory, version=version, settings=settings, listeners=listeners) as cluster:
            yield cluster
        return
    ports = free_ports(1 + _CONTROLLER_AT, consecutive=True)
    if listeners:
        all_listeners = {"PLAINTEXT": ports[0], **listeners, "CONTROLLER": ports[-1]}
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in all_listeners.items()]
        protocols = [f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in all_listeners]
        own = {"listeners": ",".join(addresses), "listener.security.protocol.map": ",".join(protocols)}
        settings = {**(settings or {}), **own}
    command = apache_command("up", "--version", version, "--mode", "kraft", "--first-id", str(first_id))
    command += ["--port", str(ports[0]), "--dir", str(directory)]
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    with _running(command, directory, 1) as running:
        yield running


@contextlib.contextmanager
def apache_kraft(
    directory: Path, *, brokers: int, version: str = "4.4.0", settings: dict[str, str] | None = None
) -> Iterator[Reference]:
    """Several brokers of Apache's, with a controller and without ZooKeeper."""
    ports = free_ports(brokers + _CONTROLLER_AT, consecutive=True)
    command = apache_command("up", "--version", version, "--mode", "kraft", "--brokers", brokers)
    command += ["--port", str(ports[0]), "--dir", str(directory)]
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    with _running(command, directory, brokers) as running:
        yield running


@contextlib.contextmanager
def _running(command: list[str], directory: Path, brokers: int) -> Iterator[Reference]:
    """The program with servers, until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        line = process.stdout.readline()
        ready = re.fullmatch(r"ready (\S+) zk=(\S+) pids=(\S+) dir=(\S+)\n", line)
        if not ready:
            os.killpg(process.pid, signal.SIGKILL)  # those of its servers that did start
        assert ready, f"the reference cluster did not come up: {line!r}, see {directory}"
        pids = [int(pid) for pid in ready[3].split(",")]
        members_known(ready[1], brokers)
        yield Reference(ready[1], ready[2], pids, Path(ready[4]), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


class KillableBroker:
    """The single broker of a reference cluster, which can be killed and started again on its data.

    Ends with the ``with``."""

    def __init__(self, running: Reference) -> None:
        self._address = running.bootstrap
        self._pid = running.pids[-1]
        self._command = Path(f"/proc/{self._pid}/cmdline").read_text(encoding="utf-8").split("\0")[:-1]
        self._log = running.directory / "restarted.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is None:
            os.kill(self._pid, signal.SIGKILL)
        else:
            self._process.kill()
            self._process.wait()

    def start(self) -> None:
        """Start it, and wait until it listens.

        Again if it ends, as long as ZooKeeper holds the session of the one before."""

        def listens() -> bool:
            if self._process is None or self._process.poll() is not None:
                with self._log.open("ab") as log:
                    self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
            host, port = self._address.rsplit(":", 1)
            with contextlib.suppress(OSError), contextlib.closing(socket.create_connection((host, int(port)), 1)):
                return True
            return False

        self._process = None
        eventually(listens, timeout_s=240)
