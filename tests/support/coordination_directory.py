"""Data directories of a coordination server with a history of several kinds of
nodes, without a server."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.storage.transaction_log import TransactionLog
from barnabas.wire.jute.opcodes import CreateMode, OpCode
from barnabas.wire.jute.records import (
    OPEN_ACL,
    READ_ACL,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    SetACLRequest,
    SetDataRequest,
)
from barnabas.wire.jute.transactions import decode_transaction
from support.coordination_processor import Harness

FILES = OsFiles()
OPEN = list(OPEN_ACL)
Entry = tuple[int, bytes]
"""A zxid, and the transaction's bytes."""


def history(*epochs: tuple[int, int]) -> list[Entry]:
    """Transactions of a server, given with the epochs and about how many there are in each.

    They hold nodes that are created, changed and deleted, containers, nodes with a time to live, a
    multi, a multi that fails, ephemerals and the end of their session, and access lists.
    """
    database = Database()
    entries: list[Entry] = []
    for epoch, count in epochs:
        database.last_zxid = epoch << 32
        harness = Harness(database, ttl_nodes=True)
        _write(harness, f"/epoch{epoch}", count)
        entries += [(decode_transaction(entry)[0].zxid, entry) for entry in harness.log]
    return entries


def _write(harness: Harness, root: str, count: int) -> None:
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest(root, b"", OPEN, 0))
    number = 0
    while len(harness.log) < count:
        number += 1
        path = f"{root}/n{number}"
        client.call(OpCode.CREATE, CreateRequest(path, b"%d" % number * 20, OPEN, 0))
        client.call(OpCode.SET_DATA, SetDataRequest(path, b"x" * number * 7, -1))
        match number % 6:
            case 0:
                client.call(OpCode.DELETE, DeleteRequest(path, -1))
            case 1:
                other = harness.connect()
                other.call(OpCode.CREATE, CreateRequest(f"{path}e", b"", OPEN, CreateMode.EPHEMERAL))
                other.call(OpCode.CREATE, CreateRequest(f"{path}f", b"", OPEN, CreateMode.EPHEMERAL_SEQUENTIAL))
                other.call(OpCode.CLOSE_SESSION)
            case 2:
                parts = [
                    (OpCode.CREATE, CreateRequest(f"{path}m", b"", OPEN, 0)),
                    (OpCode.SET_DATA, SetDataRequest(f"{path}m", b"1", 0)),
                    (OpCode.DELETE, DeleteRequest(f"{root}/missing" if number % 4 else f"{path}m", -1)),
                ]
                client.call(OpCode.MULTI, parts)
            case 3:
                client.call(OpCode.SET_ACL, SetACLRequest(path, list(READ_ACL), -1))
            case 4:
                container = CreateRequest(f"{path}c", b"", OPEN, CreateMode.CONTAINER)
                client.call(OpCode.CREATE_CONTAINER, container)
                client.call(OpCode.CREATE, CreateRequest(f"{path}c/n", b"", OPEN, 0))
                client.call(OpCode.DELETE, DeleteRequest(f"{path}c/n", -1))
            case 5:
                timed = CreateTTLRequest(f"{path}t", b"", OPEN, CreateMode.PERSISTENT_WITH_TTL, 1000)
                client.call(OpCode.CREATE_TTL, timed)


def replayed(entries: Iterable[Entry]) -> Database:
    """The state after transactions."""
    database = Database()
    for _, payload in entries:
        database.apply(*decode_transaction(payload))
    return database


def opened(folder: Path, *, sync: bool = True) -> Storage:
    """The storage of a server's directory."""
    storage = Storage(FILES, str(folder), str(folder), preallocate_bytes=0, sync=sync)
    storage.open()
    return storage


def make_directory(folder: Path, entries: Sequence[Entry], *, files: Sequence[int], snapshots: Sequence[int]) -> Path:
    """A directory with a log in files that begin with these of the transactions (numbers from 0),
    and with snapshots of the state after these numbers of transactions; returns its
    folders files."""
    storage = opened(folder)
    for at in snapshots:
        storage.save_snapshot(replayed(entries[:at]))
    storage.close()
    for start, stop in zip(files, [*files[1:], len(entries)], strict=True):
        append(folder, entries[start:stop])
    return folder / "version-2"


def append(folder: Path, entries: Sequence[Entry]) -> None:
    """Write a log file of its own."""
    log = TransactionLog(FILES, str(folder / "version-2"), preallocate_bytes=0)
    log.append(entries[0][0], [payload for _, payload in entries])
    log.close()
