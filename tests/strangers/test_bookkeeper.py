"""Apache BookKeeper on an ensemble of ours: each ledger that was acknowledged is read back, entry
by entry, through kills of bookies, of the auditor among them, and of the ensemble's leader."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from support.ensemble import HOST, Ensemble, serving_ensemble
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.ports import free_ports
from support.restartable import Restartable, restartable
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "javac", "mvn"), pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "other_languages" / "java" / "bookkeeper"
LIMIT_S = 90
BOOKIE = """bookiePort={port}
advertisedAddress=127.0.0.1
allowLoopback=true
metadataServiceUri={uri}
zkTimeout=6000
journalDirectories=journal
ledgerDirectories=ledgers
indexDirectories=ledgers
autoRecoveryDaemonEnabled=true
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
diskUsageLwmThreshold=0.98
logSizeLimit=67108864
journalPreAllocSizeMB=4
rwRereplicateBackoffMs=500
"""
MAIN = "org.apache.bookkeeper.server.Main"
SHELL = "org.apache.bookkeeper.bookie.BookieShell"


class Bookies:
    """Three bookies with auto-recovery, by address."""

    def __init__(self, java: list[object], uri: str, directory: Path) -> None:
        self._java = java
        self._uri = uri
        self._directory = directory
        self.running: dict[str, Restartable] = {}

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """The metadata is made first."""
        with contextlib.ExitStack() as stack:
            for port in free_ports(3):
                folder = self._directory / f"bookie-{port}"
                folder.mkdir()
                file = folder / "bookie.conf"
                file.write_text(BOOKIE.format(port=port, uri=self._uri))
                if not self.running:
                    made = [*self._java, SHELL, "-conf", file, "initnewcluster"]
                    subprocess.run(list(map(str, made)), cwd=folder, timeout=LIMIT_S, check=True, capture_output=True)
                command = [*self._java, "-XX:MaxDirectMemorySize=256M", MAIN, "--conf", file]
                self.running[f"{HOST}:{port}"] = stack.enter_context(restartable(command, folder))
            yield

    def kill(self, address: str) -> None:
        """It does not come back."""
        self.running.pop(address).kill()


def auditor(client: KazooClient) -> str | None:
    """The bookie that looks after ledgers of lost bookies: the first in its election."""
    place = "/ledgers/underreplication/auditorelection"
    if not client.exists(place) or not (votes := client.get_children(place)):
        return None
    vote, _ = client.get(f"{place}/{min(votes, key=lambda name: int(name.rpartition('_')[2]))}")
    found = re.search(rb'bookieId: "(.+?)"', vote)
    return found[1].decode() if found else None


def ledgers_on(client: KazooClient, bookie: str) -> set[str]:
    """The paths of ledgers whose metadata names a bookie."""
    found = set()
    for path in ledger_paths(client, "/ledgers"):
        metadata, _ = client.get(path)
        if bookie.encode() in metadata:
            found.add(path)
    return found


def ledger_paths(client: KazooClient, place: str) -> Iterator[str]:
    """Nodes Lnnnn, below folders of digits."""
    for name in client.get_children(place):
        if re.fullmatch(r"L\d+", name):
            yield f"{place}/{name}"
        elif re.fullmatch(r"\d+", name):
            yield from ledger_paths(client, f"{place}/{name}")


def written(writer: Restartable) -> list[str]:
    """The ids of the ledgers that are acknowledged and closed."""
    return re.findall(r"^written (\d+)$", writer.output(), re.MULTILINE)


def until_more(writer: Restartable, count: int = 5) -> None:
    """Wait until so many more ledgers are there."""
    goal = len(written(writer)) + count
    eventually(lambda: len(written(writer)) >= goal, timeout_s=LIMIT_S, what="more ledgers are written")


def read(java: list[object], uri: str, ids: list[str]) -> list[str]:
    """The ledgers that a new client reads whole."""
    done = subprocess.run(
        list(map(str, [*java, "Ledgers", uri, "read", *ids])), capture_output=True, text=True, timeout=120, check=False
    )
    return re.findall(r"^read (\d+)$", done.stdout, re.MULTILINE)


def test_ledgers_are_read_back_after_kills_of_bookies_and_of_the_ensembles_leader(tmp_path: Path) -> None:
    """The ensemble's leader dies while ledgers are written; then the auditor's bookie. Another
    auditor has its ledgers copied, so that the death of one more bookie loses none."""
    folder = jars("bookkeeper-4.17.2", PROGRAM)
    java: list[object] = ["java", *QUICK, "-Xmx256M", "-cp", compiled(PROGRAM / "Ledgers.java", folder, tmp_path)]
    with serving_ensemble(tmp_path) as members:
        uri = f"zk+hierarchical://{members.addresses.replace(',', ';')}/ledgers"
        bookies = Bookies(java, uri, tmp_path)
        with bookies.run(), restartable([*java, "Ledgers", uri, "write"], tmp_path / "writer") as writer:
            until_more(writer)
            dead = members.kill_leader()
            until_more(writer)
            dead.start()
            lose_the_auditor(members, bookies)
            until_more(writer)
            writer.kill()
            ids = written(writer)
            assert read(java, uri, ids) == ids
            lose_one_more(members, bookies)
            assert read(java, uri, ids) == ids


def lose_the_auditor(members: Ensemble, bookies: Bookies) -> None:
    """Kill its bookie; another one takes over."""
    with members.client() as client:
        first = eventually(lambda: auditor(client), timeout_s=LIMIT_S, what="an auditor")
        bookies.kill(first)
        eventually(lambda: auditor(client) not in (None, first), timeout_s=LIMIT_S, what="another auditor")


def lose_one_more(members: Ensemble, bookies: Bookies) -> None:
    """Kill another bookie, once no ledger needs the first."""
    with members.client() as client:
        names = {path for bookie in bookies.running for path in ledgers_on(client, bookie)}
        assert names
        eventually(
            lambda: all(
                sum(path in ledgers_on(client, bookie) for bookie in bookies.running) == len(bookies.running)
                for path in names
            ),
            timeout_s=LIMIT_S,
            what="each ledger is on both bookies",
        )
    bookies.kill(next(iter(bookies.running)))
