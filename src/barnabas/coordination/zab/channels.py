"""The connections of a leader with its learners, reads of files for them, what leaves over any
connection, and elections.

In ZooKeeper: the sockets and the sender of a `LearnerHandler`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.network import Connection
from barnabas.coordination.core.database import Database
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.storage.log_history import LoggedHistory
from barnabas.coordination.storage.snapshot import encode_snapshot_for_learner
from barnabas.coordination.zab.catch_up import HistorySender, RunsInThread
from barnabas.coordination.zab.leader import Leader
from barnabas.coordination.zab.learner_handler import LearnerHandler
from barnabas.wire.jute.codec import MalformedRecordError
from barnabas.wire.jute.quorum import SNAPSHOT_SIGNATURE, PacketReader, PacketRun

__all__ = ["Elector", "FileReads", "LeaderHost", "LearnerConnection", "QuorumOutbox"]

logger = logging.getLogger(__name__)
_MAX_UNSENT_BYTES = 256 << 20
_SNAPSHOT_UNSENT_BYTES = 4 << 20
_SNAPSHOT_PAUSE_S = 0.005
_SNAPSHOT_STEP_MS = 4
_INTRODUCTION_S = 0.75
_MAX_INTRODUCTION_BYTES = 64
_MAX_STRANGERS = 64

T = TypeVar("T")


class QuorumOutbox:
    """Sends what one turn of the event loop produces in one piece."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts: list[bytes] = []

    def send(self, data: bytes) -> None:
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._connection.send([b"".join(parts)] if len(parts) > 1 else parts)
            if self._connection.unsent_bytes > _MAX_UNSENT_BYTES:
                logger.warning("Closing the connection to %s: it does not read", self._connection.peer)
                self._connection.close()


class Elector(Protocol):
    """Leader election."""

    async def elect(self, last_zxid: int, current_epoch: int) -> int:
        """The id of the leader that a quorum votes for."""
        ...

    def establish_epoch(self, epoch: int) -> None:
        """This server is in the epoch of its leader; servers that look for a leader learn it."""
        ...

    def reconfigure(self, configuration: QuorumConfiguration, following: QuorumConfiguration | None = None) -> None:
        """Elect by another configuration, and by the one that is proposed."""
        ...

    def designate(self, leader_id: int, zxid: int, epoch: int) -> None:
        """A reconfiguration has chosen the leader."""
        ...


class FileReads:
    """Runs work with files on another thread, then calls ``done``: a `RunsInThread`."""

    def __init__(self, executor: Executor | None, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """``ready`` is awaited before the work begins."""
        self._executor = executor
        self._ready = ready
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        async def run() -> None:
            result: T | Exception
            if self._ready is not None:
                await self._ready()
            try:
                result = await asyncio.get_running_loop().run_in_executor(self._executor, work)
            except (OSError, BarnabasError) as error:
                result = error
            done(result)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until nothing runs."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))


class LeaderHost(Protocol):
    """What a leader's connections need of its server."""

    @property
    def database(self) -> Database: ...

    @property
    def max_packet_bytes(self) -> int: ...

    def now_ms(self) -> int: ...

    def disk_failed(self, error: OSError) -> None:
        """An epoch could not be written."""
        ...

    @property
    def run_reads(self) -> RunsInThread:
        """Runs what reads the log."""
        ...


class LearnerConnection:
    """The leader's side of a connection with a learner."""

    def __init__(self, leader: Leader, host: LeaderHost, connection: Connection) -> None:
        connection.is_stream = True
        self._leader = leader
        self._host = host
        self._connection = connection
        self._outbox = QuorumOutbox(connection)
        self._reader = PacketReader(_MAX_INTRODUCTION_BYTES)
        self._snapshot: Generator[bytes, None, None] | None = None
        self._sends_history = False
        self._behind: list[bytes] = []
        self._is_closed = False
        self.handler: LearnerHandler = leader.connected(self, host.now_ms())
        self._statistics = self.handler.statistics
        self._statistics.address = "{}:{}".format(*connection.peer)
        self._statistics.since_ms = host.now_ms()
        if len(leader.handlers) > len(leader.quorums.current.servers) + _MAX_STRANGERS:
            self.close("too many servers have connected without saying who they are")
        asyncio.get_running_loop().call_later(_INTRODUCTION_S, self._check_introduction)

    # From the network

    def frame(self, data: memoryview) -> None:
        self._reader.feed(data)
        try:
            packets = self._reader.runs()
        except MalformedRecordError as error:
            self.close(f"it does not speak the protocol of the quorum port: {error}")
            return
        self._statistics.received += sum([len(each.zxids) if isinstance(each, PacketRun) else 1 for each in packets])
        try:
            self._leader.packets(self.handler, packets, self._host.now_ms())
        except OSError as error:
            self._host.disk_failed(error)
            return
        if self.handler.is_introduced:
            self._reader.max_data_bytes = self._host.max_packet_bytes

    def _check_introduction(self) -> None:
        """Do not wait for a stranger."""
        if not self.handler.is_introduced and not self._is_closed:
            self.close("it has not said who it is")

    def bad_length(self, prefix: bytes) -> None: ...  # a stream has no lengths

    def closed(self, error: Exception | None) -> None:
        self._is_closed = True
        if self._snapshot is not None:
            self._snapshot.close()  # so that the tree keeps nothing for it any more
            self._snapshot = None
        self._behind.clear()
        logger.info("The connection of server %d is closed (%s)", self.handler.server_id, error or "by it or by us")
        self._leader.disconnected(self.handler, self._host.now_ms())

    # From the leader

    def send(self, data: bytes) -> None:
        self._statistics.sent += 1
        if self._snapshot is not None or self._sends_history:
            self._behind.append(data)
        elif data and not self._is_closed:
            self._outbox.send(data)

    def send_snapshot(self) -> None:
        parts = encode_snapshot_for_learner(self._host.database)
        self._outbox.send(next(parts))
        self._snapshot = parts
        self._send_slices()

    def _send_slices(self) -> None:
        if self._is_closed:
            return
        assert self._snapshot is not None
        self._outbox.flush()
        end_ms = self._host.now_ms() + _SNAPSHOT_STEP_MS
        while self._connection.unsent_bytes < _SNAPSHOT_UNSENT_BYTES:
            part = next(self._snapshot, None)
            if part is None:
                self._snapshot = None
                self._outbox.send(SNAPSHOT_SIGNATURE)
                self._send_behind()
                return
            self._connection.send([part])
            if self._host.now_ms() >= end_ms:
                # Others have their turn first.
                asyncio.get_running_loop().call_soon(self._send_slices)
                return
        asyncio.get_running_loop().call_later(_SNAPSHOT_PAUSE_S, self._send_slices)

    def send_history(self, history: LoggedHistory, before_zxid: int) -> None:
        self._outbox.flush()
        self._sends_history = True
        HistorySender(
            history,
            before_zxid,
            self._connection,
            lambda: self._is_closed,
            run=self._host.run_reads,
            later=asyncio.get_running_loop().call_later,
            done=self._history_sent,
        ).start()

    def _history_sent(self, error: Exception | None) -> None:
        self._sends_history = False
        if error is not None:
            self.close(f"its part of the log cannot be read: {error}")
        self._send_behind()

    def _send_behind(self) -> None:
        behind, self._behind = self._behind, []
        if behind and not self._is_closed:
            self._outbox.send(b"".join(behind))

    def close(self, reason: str) -> None:
        logger.warning("Closing the connection of %s: %s", self._connection.peer, reason)
        self._connection.close()
