"""What an ensemble of coordination servers has committed, and whether each server
delivers exactly that.

The observer sees every commit of the leader before any server can show it to a client. It
applies the transactions to a tree of its own, and compares: these are the properties of Zab
(`Zab.tla`), on the production code.

- *Leadership*: one server at most leads an established epoch.
- *Completeness*: the history of a new leader holds every transaction that was committed before.
- *Total order, integrity, agreement*: each server delivers the committed transactions in their
  order, without a gap, from the state that it began to serve with. After each, the digest of
  its tree is the observer's.
- *Expiry*: a client learns that its session is over only when a leader has closed
  it, or proposed so.

A server that gives up its role applies what it has logged, which may never be committed. That is
not observed: nothing serves it to clients.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import islice
from typing import Any

from barnabas.coordination.core.changes import Change, SessionChange
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.processor import Processor
from barnabas.testing.simulation.history import History
from barnabas.wire.jute.transactions import Transaction, TxnHeader, decode_transaction

__all__ = ["EnsembleObserver", "next_proposals", "unwatch_database", "watch_database"]


def next_proposals(processor: Processor, count: int) -> Iterator[tuple[TxnHeader, Transaction | None, list[str]]]:
    """The headers and the transactions that a processor commits next, and the paths
    that each changes."""
    for _, _, _, _, change, _, transaction in islice(processor._proposals, count):
        header, txn, _ = decode_transaction(transaction)
        yield header, txn, list(_paths_of(change))


def _paths_of(change: Change) -> Iterator[str]:
    if change.err:
        return
    if change.parent is not None:
        yield change.parent_path
    if change.node is not change.before:
        yield change.path
    for part in change.parts:
        yield from _paths_of(part)
    if isinstance(change, SessionChange):
        yield from change.gone


def watch_database(database: Database, applied: Callable[[int], None]) -> None:
    """Call ``applied`` with the zxid of each transaction when it is in the tree, also of those
    that are committed together.

    A server sets `last_zxid` then, on each of its paths.
    """
    place = vars(Database)["last_zxid"]  # the slot, which is a descriptor

    def get(self: Database) -> int:
        zxid: int = place.__get__(self)
        return zxid

    def put(self: Database, zxid: int) -> None:
        place.__set__(self, zxid)
        applied(zxid)

    database.__class__ = type("WatchedDatabase", (Database,), {"__slots__": (), "last_zxid": property(get, put)})


def unwatch_database(database: Database) -> None:
    """End `watch_database`."""
    database.__class__ = Database


class _Role:
    """Whether a server still has the role for which a processor was made."""

    is_over = False

    def __init__(self, database: Database) -> None:
        self.database = database

    def end(self) -> None:
        """The server gives up its role."""
        self.is_over = True
        unwatch_database(self.database)


class EnsembleObserver:
    """See the module."""

    def __init__(self, history: History, on_commit: list[Callable[[list[str]], None]]) -> None:
        self._history = history
        self._on_commit = on_commit
        self.database = Database()
        """The committed state."""
        self.leaders: dict[int, str] = {}
        """Who leads each established epoch."""
        self._digests: dict[int, int] = {}  # of the committed tree behind each zxid, in their order
        self._places: dict[int, int] = {}

    def watch(self, name: str, server: Any) -> None:
        """Observe each role of a server from now on."""
        serve, stop_serving = server.serve, server.stop_serving
        observed_roles: list[_Role] = []

        def stopped() -> None:
            for role in observed_roles:
                role.end()
            stop_serving()

        def observed(processor: Processor, mode: str) -> None:
            if mode == "leader":
                self._established(name, server, processor)
            self._check_state(f"{name} serves as {mode}", processor.database)
            observed_roles[:] = [self._observe(name, processor, leads=mode == "leader")]
            serve(processor, mode)

        server.serve, server.stop_serving = observed, stopped

    def _established(self, name: str, server: Any, processor: Processor) -> None:
        """An epoch begins; the history of its leader is committed with it."""
        member, database = server._quorum_peer.member, processor.database
        epoch: int = member.epochs.current
        first = self.leaders.setdefault(epoch, name)
        if first != name:
            self._history.violation(f"epoch {epoch} has two leaders: {first} and {name}")
        self._history.count("epochs")
        known_zxid = self.database.last_zxid
        for zxid, payload in member.history.since(known_zxid):
            header, txn, _ = decode_transaction(payload)
            self.database.apply(header, txn, None)
            self._note(zxid)
        oldest = member.history.first_zxid
        differs = self.database.tree.digest != database.tree.digest
        if differs and known_zxid and oldest is not None and oldest <= known_zxid:
            self._history.violation(f"the history of {name}, the leader of epoch {epoch}, lacks what was committed")
        if differs or (oldest is not None and oldest > known_zxid + 1):
            # What is not in the leader's recent history came from its log or in a snapshot. The end
            # of a session without ephemerals changes no tree.
            self.database = deepcopy(database)
            self._history.count("histories from snapshots")
        self.database.last_zxid = database.last_zxid
        self._note(database.last_zxid)

    def _note(self, zxid: int) -> None:
        self._places[zxid] = len(self._places)
        self._digests[zxid] = self.database.tree.digest

    def _check_state(self, what: str, database: Database) -> bool:
        zxid = database.last_zxid
        if zxid not in self._digests:
            self._history.violation(f"{what} at 0x{zxid:x}, which was not committed")
        elif self._digests[zxid] != database.tree.digest:
            self._history.violation(f"{what} at 0x{zxid:x} with another tree than the committed one")
        else:
            return True
        return False

    def _observe(self, name: str, processor: Processor, *, leads: bool) -> "_Role":
        role = _Role(processor.database)
        commit = processor.commit
        paths_of: dict[int, list[str]] = {}
        place = self._places.get(processor.database.last_zxid, 0)

        def delivered(zxid: int) -> None:
            nonlocal place
            place += 1
            if self._places.get(zxid) != place and zxid in self._places:
                self._history.violation(
                    f"{name} delivers 0x{zxid:x} in place {place}, it was committed in place {self._places[zxid]}"
                )
            self._check_state(f"{name} delivers", processor.database)
            if zxid in paths_of:
                paths = paths_of.pop(zxid)
                for listener in self._on_commit:
                    listener(paths)

        def committing(count: int, now_ms: int) -> None:
            if not role.is_over:
                for header, txn, paths in next_proposals(processor, count):
                    self._committed(header, txn)
                    paths_of[header.zxid] = paths
            commit(count, now_ms)

        if leads:
            processor.commit = committing  # type: ignore[method-assign]  # of this one object
        watch_database(processor.database, delivered)
        return role

    def _committed(self, header: TxnHeader, txn: Transaction | None) -> None:
        if header.zxid in self._places:
            return  # a later leader had it in its history; the last acknowledgement was late
        if header.zxid <= self.database.last_zxid:
            self._history.violation(f"0x{header.zxid:x} is committed after 0x{self.database.last_zxid:x}")
        self.database.apply(header, txn, None)
        self._note(header.zxid)
        self._history.count("transactions committed")

    def check_expired(self, name: str, session_id: int, servers: list[Any]) -> None:
        """A client learned that its session is over: it is closed, or a leader has proposed
        its end (as in ZooKeeper)."""
        sessions = [server.processor.tracker.sessions.get(session_id) for server in servers if server.mode == "leader"]
        is_closing = any(session is not None and session.is_closing for session in sessions)
        if session_id in self.database.session_timeouts_ms and not is_closing:
            self._history.violation(f"{name}: session 0x{session_id:x} expired, and no transaction has closed it")
