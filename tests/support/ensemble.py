"""Ensembles of processes, whose members are ours or Apache ZooKeeper's, each with its
data directory and its log."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from support.apache_ensemble import apache_member, is_reconfigured
from support.ports import free_ports
from support.waiting import eventually

HOST = "127.0.0.1"


@dataclass
class Member:
    """One member; it can be stopped, started again, and replaced by the other implementation."""

    server_id: int
    directory: Path
    client_port: int
    servers: dict[str, str]
    settings: dict[str, object]
    is_apache: bool
    release: str = "3.8"
    """of Apache's server"""
    _stack: contextlib.ExitStack | None = field(default=None, repr=False)
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.client_port}"

    def log(self) -> str:
        """All that its processes have logged."""
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it on its data directory."""
        assert self.process is None
        if self.is_apache:
            self._stack = contextlib.ExitStack()
            place = self.directory, self.server_id, self.servers, self.client_port
            member = apache_member(*place, release=self.release, **self.settings)
            self.process = self._stack.enter_context(member).process
        else:
            self.process = self._start_ours()

    def _start_ours(self) -> "subprocess.Popen[bytes]":
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self.server_id))
        texts = {
            "tickTime": 2000,
            "initLimit": 5,
            "syncLimit": 5,
            "dataDir": data,
            "clientPort": self.client_port,
            "4lw.commands.whitelist": "*",
            **self.servers,
            **self.settings,
        }
        configuration = self.directory / "zoo.cfg"
        if not is_reconfigured(configuration):
            configuration.write_text("".join(f"{name}={value}\n" for name, value in texts.items()))
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "barnabas.cli.servers.zookeeper_server_start", str(configuration)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=dict(os.environ),
            )

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def mode(self) -> str:
        """Leader, follower or observer; empty while it does not serve."""
        try:
            text = four_letter_word(self.client_port, b"srvr")
        except OSError:
            return ""
        return next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("Mode: ")), "")


def four_letter_word(port: int, word: bytes) -> str:
    """The answer to a four-letter word.

    Empty when the member ends its connections, as it does when its role changes."""
    import socket

    with socket.create_connection((HOST, port), 5) as connection:
        connection.sendall(word)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1 << 16):
                found += data
    return found.decode()


class Ensemble:
    """Its members, by id."""

    def __init__(self, members: dict[int, Member]) -> None:
        self.members = members

    @property
    def addresses(self) -> str:
        return ",".join(member.address for member in self.members.values())

    def leader(self) -> Member | None:
        """The member that leads."""
        return next((each for each in self.members.values() if each.process and each.mode() == "leader"), None)

    def kill_leader(self) -> Member:
        """End the leader's process at once, and wait until another one leads.

        All members that run serve before, so that the others are a quorum. Returns the one
        that was killed; it can be started again."""
        self.until_serving()
        leader = eventually(self.leader, what="a member leads")
        leader.stop(signal.SIGKILL)
        eventually(lambda: self.leader() is not None, what="another member leads")
        return leader

    def until_serving(self, timeout_s: float = 60) -> None:
        """Wait until every running member serves."""
        eventually(
            lambda: all(member.mode() for member in self.members.values() if member.process),
            timeout_s=timeout_s,
            what="all members serve",
        )

    @contextlib.contextmanager
    def client(self, *server_ids: int, timeout_s: float = 10) -> Iterator[KazooClient]:
        """A client of some members, or of all."""
        hosts = ",".join(self.members[each].address for each in server_ids) or self.addresses
        client = KazooClient(hosts, timeout=timeout_s)
        client.start(60)
        try:
            yield client
        finally:
            client.stop()
            client.close()


@contextlib.contextmanager
def ensemble(
    directory: Path,
    apaches: tuple[int, ...] = (),
    *,
    count: int = 3,
    observers: tuple[int, ...] = (),
    release: str = "3.8",
    **settings: object,
) -> Iterator[Ensemble]:
    """Servers 1 to ``count``, of which ``apaches`` run Apache's of a release; all are started."""
    ports = free_ports(3 * count)
    servers = {
        f"server.{n}": f"{HOST}:{ports[3 * n - 3]}:{ports[3 * n - 2]}" + (":observer" if n in observers else "")
        for n in range(1, count + 1)
    }
    members = {}
    for n in range(1, count + 1):
        own = {**settings, **({"peerType": "observer"} if n in observers else {})}
        folder = directory / f"member{n}"
        folder.mkdir()
        members[n] = Member(n, folder, ports[3 * n - 1], servers, own, n in apaches, release)
    try:
        for member in members.values():
            member.start()
        yield Ensemble(members)
    finally:
        for member in members.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.stop(signal.SIGKILL if not member.is_apache else signal.SIGTERM)


@contextlib.contextmanager
def serving_ensemble(directory: Path, **settings: object) -> Iterator[Ensemble]:
    """Three servers of ours, from the moment that all serve: systems that start before
    the ensemble may give up."""
    with ensemble(directory, **settings) as members:
        members.until_serving()
        yield members
