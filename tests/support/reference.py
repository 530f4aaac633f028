"""Apache Kafka and Apache ZooKeeper, run beside the project by ../shared/reference/apache."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.knowing import members_known
from support.needs import APACHE
from support.ports import free_ports

_PROGRAM = Path(__file__).with_name("reference_program.py")


def apache_command(*args: object) -> list[str]:
    """The command line of the reference's program with arguments of its own."""
    return [sys.executable, str(_PROGRAM), str(APACHE), *map(str, args)]


def apache_tool(
    main: str, *args: object, version: str = "3.9.1", text: str = "", timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a Java main class of the distribution to its end."""
    limit = ("--timeout", "60000") if main.endswith("ConsumerGroupCommand") else ()  # its own is 5 s, for a whole JVM
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


@contextlib.contextmanager
def apache_broker(directory: Path, version: str, settings: dict[str, str] | None = None) -> Iterator[str]:
    """One broker of Apache's, by itself from 4.0 on and with a ZooKeeper before; its address."""
    if version.startswith("3"):
        with apache_cluster(directory, version=version, settings=settings) as cluster:
            yield cluster.bootstrap
        return
    ports = free_ports(1 + _CONTROLLER_AT, consecutive=True)
    command = apache_command("up", "--version", version, "--mode", "kraft")
    command += ["--port", str(ports[0]), "--dir", str(directory)]
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        line = process.stdout.readline()
        if not line.startswith("ready "):
            os.killpg(process.pid, signal.SIGKILL)
        assert line.startswith("ready "), f"the broker did not come up: {line!r}, see {directory}"
        members_known(line.split()[1], 1)
        yield line.split()[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()
