"""PostgreSQL servers under Patroni, on an ensemble: each node has a Patroni and a PostgreSQL, which
are killed and started together.

Their file is that of docs/how-to/run-systems-on-coordination.md, with the addresses, folders
and shorter times of a test.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import psycopg

from support.environments import python_of
from support.needs import program
from support.pages import DOCS, blocks
from support.ports import free_ports
from support.postgres_server import owner_of_servers
from support.restartable import Restartable
from support.waiting import eventually

__all__ = ["Insert", "PatroniCluster", "PatroniNode", "Writers", "patroni_cluster", "reigns"]

_PAGE = DOCS / "how-to" / "run-systems-on-coordination.md"
_HOST = "127.0.0.1"
_TIMES = {"ttl: 30": "ttl: 20", "loop_wait: 10": "loop_wait: 1", "retry_timeout: 10": "retry_timeout: 4"}
_SYNCHRONOUS = "sync_standby streaming"
_LIMIT_S = 60


@dataclass
class PatroniNode:
    """One Patroni with its PostgreSQL."""

    name: str
    folder: Path
    port: int
    http_port: int
    file: Path
    user: Sequence[str]
    program: Restartable

    @property
    def url(self) -> str:
        return f"postgresql://postgres:a-long-password@{_HOST}:{self.port}/postgres?connect_timeout=3"

    def kill(self) -> None:
        """End Patroni and PostgreSQL at once."""
        self.program.kill()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def roles(self) -> dict[str, str]:
        """Role and state of each member that Patroni knows, by name.

        None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.http_port}/cluster", timeout=5) as answer:
                return {each["name"]: f"{each['role']} {each['state']}" for each in json.load(answer)["members"]}
        except OSError:
            return {}

    def query(self, statement: str) -> list[tuple[object, ...]]:
        """The rows; none while the server does not answer."""
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                return connection.execute(statement).fetchall()
        except psycopg.Error:
            return []


@dataclass
class PatroniCluster:
    """Its nodes by name, and patronictl."""

    nodes: dict[str, PatroniNode]

    def leader(self) -> PatroniNode | None:
        """The node that takes writes. More than one at a time are a split brain."""
        leaders = [each for each in self.nodes.values() if each.query("SELECT pg_is_in_recovery()") == [(False,)]]
        return leaders[0] if len(leaders) == 1 else None

    def ctl(self, *arguments: str) -> str:
        """What patronictl prints; it must succeed."""
        node = next(each for each in self.nodes.values() if each.program.process is not None)
        command = [*node.user, python_of("patroni").with_name("patronictl"), "-c", node.file, *arguments]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=_LIMIT_S, check=False, cwd=node.folder
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def until_complete(self) -> tuple[PatroniNode, PatroniNode]:
        """Wait until one node leads, Patroni has noted one as the synchronous standby,
        and the others stream.

        Returns the two. Before that note no standby may take over."""
        wanted = ["leader running", *(["replica streaming"] * (len(self.nodes) - 2)), _SYNCHRONOUS]

        def complete() -> tuple[PatroniNode, PatroniNode] | None:
            leader = self.leader()
            roles = leader.roles() if leader is not None else {}
            if leader is None or sorted(roles.values()) != wanted:
                return None
            return leader, next(self.nodes[name] for name, role in roles.items() if role == _SYNCHRONOUS)

        return eventually(complete, timeout_s=_LIMIT_S, what="a leader with its standbys")


@contextlib.contextmanager
def patroni_cluster(addresses: str, count: int = 3) -> Iterator[PatroniCluster]:
    """Nodes pg1 to pgN on an ensemble, started one after the other; killed at the end."""
    owner = owner_of_servers()
    with tempfile.TemporaryDirectory(prefix="patroni-") as name:
        cluster = PatroniCluster({})
        if owner is not None:
            shutil.chown(name, owner)
        for number in range(1, count + 1):
            node = _node(f"pg{number}", Path(name), addresses, owner)
            cluster.nodes[node.name] = node
        try:
            first, *others = cluster.nodes.values()
            first.program.start()
            eventually(lambda: cluster.leader() is first, timeout_s=_LIMIT_S, what="the first node leads")
            for node in others:
                node.program.start()
            yield cluster
        except BaseException as failure:
            for node in cluster.nodes.values():
                failure.add_note(f"{node.name}: {node.program.output()[-3000:]}")
            raise
        finally:
            for node in cluster.nodes.values():
                node.kill()


def _node(name: str, parent: Path, addresses: str, owner: str | None) -> PatroniNode:
    folder = parent / name
    folder.mkdir()
    sql, http = free_ports(2)
    text = next(block.text for block in blocks(_PAGE) if block.file == "patroni.yml")
    places = {
        **_TIMES,
        "name: pg1": f"name: {name}",
        "zoo1:2181,zoo2:2181,zoo3:2181": addresses,
        "pg1.example:8008": f"{_HOST}:{http}",
        "pg1.example:5432": f"{_HOST}:{sql}",
        "/var/lib/postgresql/shop": str(folder / "data"),
        "/var/lib/postgresql/pgpass": str(folder / "pgpass"),
        "/usr/lib/postgresql/15/bin": str(Path(program("initdb") or "").resolve().parent),
    }
    file = folder / "patroni.yml"
    file.write_text(re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], text))
    user: list[str] = []
    if owner is not None:
        for path in (folder, file):
            shutil.chown(path, owner)
        # The interpreter may be in root's home, which only root may enter.
        able = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
        user = ["setpriv", "--reuid", owner, "--clear-groups", *able]
    patroni = Restartable([*user, python_of("patroni").with_name("patroni"), file], folder)
    return PatroniNode(name, folder, sql, http, file, user, patroni)


@dataclass(frozen=True)
class Insert:
    """An acknowledged row: who took it, and when the statement began (monotonic seconds)."""

    began_s: float
    node: str
    number: int


class Writers:
    """A client for each node that inserts rows into it without end.

    Only a primary takes them, so that two that lead at once are seen."""

    def __init__(self, cluster: PatroniCluster) -> None:
        self.acknowledged: list[Insert] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(node, first, len(cluster.nodes)))
            for first, node in enumerate(cluster.nodes.values())
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, node: PatroniNode, number: int, step: int) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(node.url, autocommit=True) as connection:
                    while not self._stop.wait(0.01):
                        began_s = time.monotonic()
                        connection.execute("INSERT INTO numbers VALUES (%s)", (number,))
                        self.acknowledged.append(Insert(began_s, node.name, number))
                        number += step
            except psycopg.Error:
                number += step  # which may have been inserted
                self._stop.wait(0.1)

    def until_taken_by(self, node: PatroniNode, count: int = 20) -> None:
        """Wait until so many more rows are acknowledged by this node."""
        goal = self._of(node) + count
        eventually(lambda: self._of(node) >= goal, timeout_s=_LIMIT_S, what=f"{node.name} takes rows")

    def _of(self, node: PatroniNode) -> int:
        return sum(insert.node == node.name for insert in list(self.acknowledged))

    def finish(self) -> list[Insert]:
        """Stop; all that was acknowledged, by the time at which it began."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_LIMIT_S)
        return sorted(self.acknowledged, key=lambda insert: insert.began_s)


def reigns(inserts: Sequence[Insert]) -> list[str]:
    """The nodes that took rows, one after the other.

    A node that comes back without an election is one reign too many."""
    return [node for node, _ in groupby(insert.node for insert in inserts)]
