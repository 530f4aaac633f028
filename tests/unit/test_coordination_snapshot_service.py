"""Snapshots that are written while a server serves, and a restored state that takes its place."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.znode import DataNode
from barnabas.coordination.storage.service import SnapshotService
from barnabas.coordination.storage.snapshot import encode_snapshot
from barnabas.coordination.storage.storage import SnapshotFile, SnapshotWriter, Storage
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ACL, OPEN_ACL, CreateRequest, DeleteRequest, Id
from barnabas.wire.jute.transactions import CreateTxn, TxnHeader
from support.coordination_processor import Harness


def state(last_zxid: int) -> Database:
    """A database with a node for each transaction."""
    database = Database()
    for zxid in range(1, last_zxid + 1):
        txn = CreateTxn(f"/n{zxid}", b"x" * zxid, list(OPEN_ACL), False, zxid)
        database.apply(TxnHeader(9, zxid, zxid, 1000 + zxid, OpCode.CREATE), txn, None)
    return database


class Server:
    """A service with its storage, and the present state, which a restore replaces."""

    def __init__(self, directory: Path) -> None:
        self.storage = Storage(OsFiles(), str(directory), str(directory), preallocate_bytes=4096)
        self.database = state(20)
        self.began: list[int] = []
        self.has_come = asyncio.Event()
        self.service = SnapshotService(
            self.storage,
            ThreadPoolExecutor(4),
            lambda: self.database,
            now_ms=lambda: 0,
            on_begin=lambda: self.began.append(self.database.last_zxid),
            on_written=lambda _zxid, _ms: None,
        )

    async def restore(self, database: Database) -> None:
        """As the server does it."""

        async def parts() -> AsyncIterator[bytes]:
            for part in encode_snapshot(database):
                yield part
            self.has_come.set()

        async def stop_writing() -> None:
            pass

        self.database = await self.service.restore(parts(), 0, stop_writing)


def run(directory: Path, use: Callable[[Server], Awaitable[None]]) -> set[str]:
    """Use a server, and return the names of its files at the end."""

    async def body() -> None:
        server = Server(directory)
        server.storage.open()
        try:
            await use(server)
        finally:
            await server.service.cancel()
            server.storage.close()

    asyncio.run(body())
    return {path.name for path in (directory / "version-2").iterdir()}


class Gate:
    """Holds the threads that finish a snapshot, until it opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self._finish = SnapshotWriter.finish
        monkeypatch.setattr(SnapshotWriter, "finish", lambda writer: self._wait(writer))

    def _wait(self, writer: SnapshotWriter) -> None:
        self.reached.set()
        assert self.opened.wait(60)
        self._finish(writer)


async def turns() -> None:
    """Let every task run until it waits for a thread or a lock."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_restored_state_is_what_a_restart_finds_although_snapshots_were_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is being written and others wait, before and behind the restore: none of the
    old state comes after it."""
    gate = Gate(monkeypatch)

    async def use(server: Server) -> None:
        server.service.begin()
        taking = [asyncio.create_task(server.service.take())]
        assert await asyncio.to_thread(gate.reached.wait, 60)
        restoring = asyncio.create_task(server.restore(state(7)))
        await server.has_come.wait()
        taking.append(asyncio.create_task(server.service.take()))
        gate.opened.set()
        await restoring
        assert {taken.zxid for taken in await asyncio.gather(*taking)} <= {7, 20}
        again, _ = server.storage.load()
        assert (again.last_zxid, len(again.tree.nodes)) == (7, len(state(7).tree.nodes))

    assert run(tmp_path, use) == {"snapshot.7"}
    assert {path.name for path in (tmp_path / "before-restore.1").iterdir()} == {"snapshot.14"}


def test_a_snapshot_that_waits_for_a_restore_is_of_the_restored_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins only when the state is in place."""
    reached, opened = threading.Event(), threading.Event()
    restore = Storage.restore

    def slow(storage: Storage, *args: object) -> None:
        reached.set()
        assert opened.wait(60)
        restore(storage, *args)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(Storage, "restore", slow)

    async def use(server: Server) -> None:
        restoring = asyncio.create_task(server.restore(state(7)))
        assert await asyncio.to_thread(reached.wait, 60)
        taking = asyncio.create_task(server.service.take())
        await turns()
        assert server.began == []
        opened.set()
        await restoring
        assert (await taking).zxid == 7

    assert run(tmp_path, use) == {"snapshot.7"}


def test_old_files_are_not_removed_while_a_restore_moves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal waits, so each finds the files that it has listed."""
    reached, opened = threading.Event(), threading.Event()
    restore, purge = Storage.restore, Storage.purge
    order: list[str] = []

    def slow(storage: Storage, *args: object) -> None:
        reached.set()
        assert opened.wait(60)
        restore(storage, *args)  # type: ignore[arg-type]  # as they came
        order.append("restored")

    def noted(storage: Storage, retain: int) -> list[str]:
        order.append("removed")
        return purge(storage, retain)

    monkeypatch.setattr(Storage, "restore", slow)
    monkeypatch.setattr(Storage, "purge", noted)

    async def use(server: Server) -> None:
        restoring = asyncio.create_task(server.restore(state(7)))
        assert await asyncio.to_thread(reached.wait, 60)
        removing = server.service.purge(3)
        await turns()
        opened.set()
        await asyncio.gather(restoring, removing)

    run(tmp_path, use)
    assert order == ["restored", "removed"]


def test_snapshots_that_are_asked_for_at_once_are_all_given(tmp_path: Path) -> None:
    """One after the other."""

    async def use(server: Server) -> None:
        server.service.begin()
        taken = await asyncio.gather(*(server.service.take() for _ in range(3)))
        path = str(tmp_path / "version-2" / "snapshot.14")
        assert taken == [SnapshotFile(path, 20, sum(map(len, encode_snapshot(server.database))))] * 3

    assert run(tmp_path, use) == {"snapshot.14"}


def test_a_snapshot_that_dies_leaves_no_file_and_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error is."""

    async def use(server: Server) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(SnapshotWriter, "finish", lambda _writer: {}["no such key"])
            with pytest.raises(KeyError):
                await server.service.take()
        assert list((tmp_path / "version-2").iterdir()) == []
        assert (await server.service.take()).zxid == 20
        assert not server.service.is_writing

    assert run(tmp_path, use) == {"snapshot.14"}


def test_a_server_that_stops_leaves_no_half_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the thread that writes; snapshots that wait for their turn are not begun."""
    gate = Gate(monkeypatch)

    async def use(server: Server) -> None:
        for _ in range(3):
            server.service.begin()
        assert await asyncio.to_thread(gate.reached.wait, 60)
        stopping = asyncio.create_task(server.service.cancel())
        await turns()
        assert not stopping.done()
        gate.opened.set()
        await stopping
        assert server.began == [20]

    assert not [name for name in run(tmp_path, use) if name.endswith("tmp")]


def test_no_snapshot_follows_a_restore_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files may be of either state, so the server stops as it is."""

    def fail(_storage: Storage, *_args: object) -> None:
        raise OSError("the disk failed")

    monkeypatch.setattr(Storage, "restore", fail)

    async def use(server: Server) -> None:
        with pytest.raises(OSError, match="the disk failed"):
            await server.restore(state(7))
        with pytest.raises(OSError, match="cannot be written"):
            await server.service.take()

    assert run(tmp_path, use) == set()


def test_access_control_lists_are_forgotten_only_if_no_node_has_them_when_it_counts() -> None:
    """Neither those of a write that is decided and committed later, nor of one that comes
    while the nodes are walked."""
    harness = Harness()
    client, tree = harness.connect(), harness.processor.database.tree

    def list_for(number: int) -> list[ACL]:
        return [ACL(31, Id("ip", f"10.0.0.{number}"))]

    client.call(OpCode.CREATE, CreateRequest("/kept", b"", list_for(1), 0))
    client.call(OpCode.CREATE, CreateRequest("/gone", b"", list_for(2), 0))
    client.call(OpCode.DELETE, DeleteRequest("/gone", -1))
    for number in range(5000):
        tree.put(f"/many{number}", DataNode.new(f"/many{number}", b"", OPEN_ACL, 0, 1, 1))
    client.send(OpCode.CREATE, CreateRequest("/decided", b"", list_for(3), 0))
    walk = tree.forget_unused_acls()
    next(walk)
    client.send(OpCode.CREATE, CreateRequest("/meanwhile", b"", list_for(4), 0))
    harness.sync(1)
    assert list(walk) == []
    harness.sync()
    found = {acl[0].id.id for acl in tree.known_acls()}
    assert found == {"anyone", "10.0.0.1", "10.0.0.3", "10.0.0.4"}
    assert b"".join(encode_snapshot(harness.processor.database))
