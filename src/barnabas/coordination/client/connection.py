"""The client of a coordination service, ours or Apache ZooKeeper's: one session, kept alive across connections.

Requests are pipelined: each is sent at once, replies come in the order of the requests. What a lost connection means:

- a request that was not sent waits for the next connection;
- a read that was sent is sent again;
- a write that was sent raises CONNECTION_LOSS, for nobody knows whether it happened. Callers decide: a conditional
  write can be repeated (`CoordinationClient.run` with ``retry``), and then NODE_EXISTS, NO_NODE or BAD_VERSION may be
  the trace of the first attempt; `CoordinationClient.create_own_ephemeral` knows its own node.

The session survives as long as one server hears of it within the time-out; watches are registered anew after each
reconnection. When the service says that the session expired, everything waiting raises SESSION_EXPIRED, watches are
forgotten, listeners hear `SessionEvent.EXPIRED`, and a new session begins.
"""

import asyncio
import contextlib
import logging
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, NamedTuple, Self, TypeVar

from barnabas.base.errors import ConfigError
from barnabas.base.network import Connection, Network, Part
from barnabas.base.randomness import Random
from barnabas.coordination.client.operations import (
    Operation,
    WatchCallback,
    WatchEvent,
    WatchKind,
    create,
    delete,
    exists,
    get,
    get_acl,
    get_children,
    multi,
    multi_create,
    multi_set,
    set_acl,
    set_data,
    sync,
    under_chroot,
)
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import decode_connect_response, encode_connect_request, encode_request
from barnabas.wire.jute.opcodes import ANY_VERSION, CreateMode, EventType, OpCode, Xid
from barnabas.wire.jute.records import ACL, AuthPacket, ConnectRequest, SetWatches, Stat, WatcherEvent

__all__ = ["BlockingClient", "CoordinationClient", "ServerList", "SessionEvent"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_REPLY = struct.Struct(">iqi")
_MAX_FRAME_BYTES = 64 * 1024 * 1024
_MAX_IN_FLIGHT = 1000  # ZooKeeper's own limit of outstanding requests
_BACKOFF_FIRST_MS = 20
_BACKOFF_MAX_MS = 1000
_SET_WATCHES_BYTES = 128 * 1024
_DEFAULT_PORT = 2181


class SessionEvent(Enum):
    """What happens to a session."""

    CREATED = "created"
    REATTACHED = "reattached"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"
    AUTH_FAILED = "auth failed"


class ServerList(NamedTuple):
    """``host:port,host:port/chroot`` taken apart; the chroot is "" for none."""

    servers: tuple[tuple[str, int], ...]
    chroot: str

    @classmethod
    def parse(cls, text: str) -> "ServerList":
        """Raises `ConfigError`."""
        addresses, slash, path = text.partition("/")
        chroot = slash + path.rstrip("/")
        servers = []
        for address in addresses.split(","):
            host, _, port = address.strip().rpartition(":") if ":" in address else (address.strip(), "", "2181")
            host = host.strip("[]")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise ConfigError(
                    f"{text!r} is no list of coordination servers: host:port,host:port/chroot is expected"
                )
            servers.append((host, int(port)))
        return cls(tuple(servers), "" if chroot == "/" else chroot)


class CoordinationClient:
    """A session, for the running event loop. All methods are called from that loop."""

    def __init__(self, network: Network, servers: str, *, rng: Random, session_timeout_ms: int = 18_000) -> None:
        """``servers`` as in `ServerList`; ``rng`` orders them, so that clients spread."""
        self._network = network
        parsed = ServerList.parse(servers)
        self._chroot = parsed.chroot
        self._servers = list(parsed.servers)
        rng.shuffle(self._servers)
        self._wanted_timeout_ms = session_timeout_ms
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._watches: dict[WatchKind, dict[str, dict[WatchCallback, None]]] = {kind: {} for kind in WatchKind}
        self._queue: deque[Operation] = deque()
        self._in_flight: deque[Operation] = deque()
        self._auth: list[tuple[str, bytes]] = []
        self._xid = 0
        self._last_zxid = 0
        self._link: _Link | None = None
        self._session_id = 0
        self._password: bytes | None = bytes(16)
        self._timeout_ms = session_timeout_ms
        self._past_sessions: set[int] = set()
        self._runner: asyncio.Task[None] | None = None
        self._attached = asyncio.Event()
        self._closing = False
        self._flush_planned = False

    # The session

    @property
    def session_id(self) -> int:
        """The session's number, 0 before the first connection."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """What the service granted."""
        return self._timeout_ms

    @property
    def is_connected(self) -> bool:
        return self._attached.is_set()

    def on_session(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call ``listener`` at every `SessionEvent`, from the loop, in order with replies and watches."""
        self._listeners.append(listener)

    async def start(self, timeout_ms: int) -> None:
        """Connect; raises CONNECTION_LOSS when there is no session in time. Without `start` nothing is sent."""
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._keep_connected())
        await self.wait_connected(timeout_ms)

    async def wait_connected(self, timeout_ms: int | None = None) -> None:
        """Return when there is a session with a connection; raises CONNECTION_LOSS after the time."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._attached.wait()
        except TimeoutError:
            where = ",".join(f"{host}:{port}" for host, port in self._servers)
            raise KeeperError(ErrorCode.CONNECTION_LOSS, where) from None

    async def close(self) -> None:
        """End the session, so that its ephemerals go at once, and the connection."""
        if self._closing:
            return
        self._closing = True
        link = self._link
        if link is not None and self._attached.is_set():
            operation = Operation(OpCode.CLOSE_SESSION, "", lambda _: None, lambda _data, _offset: None, writes=True)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            operation.finished = lambda _result, _error: None if done.done() else done.set_result(None)
            self._queue.append(operation)
            self._plan_flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await done
        if self._runner is not None:
            self._runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._runner
        if self._link is not None:
            self._link.drop()
        self._attached.clear()
        self._fail_all(ErrorCode.SESSION_EXPIRED)

    # Requests

    def submit(self, operation: Operation) -> "asyncio.Future[Any]":
        """Send an operation as soon as may be; the future has its result, or a `KeeperError`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def finished(result: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        operation.finished = finished
        self._enqueue(operation)
        return future

    async def run(self, operation: Operation, *, retry: bool = False) -> Any:
        """The operation's result; with ``retry`` it is repeated after CONNECTION_LOSS until its fate is known."""
        while True:
            try:
                return await self.submit(operation)
            except KeeperError as error:
                if not retry or error.code is not ErrorCode.CONNECTION_LOSS:
                    raise

    async def batch(self, operations: Sequence[Operation], *, retry: bool = False) -> list[Any]:
        """All results in order, a `KeeperError` in place of each that failed; ``retry`` as in `run`."""
        results: list[Any] = [None] * len(operations)
        waiting = list(range(len(operations)))
        while waiting:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            left = len(waiting)

            def finished_at(index: int, done: "asyncio.Future[None]" = done) -> Callable[[Any, Exception | None], None]:
                def finished(result: Any, error: Exception | None) -> None:
                    nonlocal left
                    results[index] = result if error is None else error
                    left -= 1
                    if not left and not done.done():
                        done.set_result(None)

                return finished

            for index in waiting:
                operations[index].finished = finished_at(index)
                self._enqueue(operations[index])
            await done
            waiting = [index for index in waiting if retry and _is_connection_loss(results[index])]
        return results

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes | None, Stat]:
        """Data and stat. ``watch`` is called once when the data changes or the node goes."""
        found: tuple[bytes | None, Stat] = await self.submit(get(path, watch))
        return found

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """The stat, or None. ``watch`` is called once when the node comes, changes or goes."""
        stat: Stat | None = await self.submit(exists(path, watch))
        return stat

    async def get_children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        """Names, in no order, and the stat. ``watch`` is called once when a child comes or goes, or the node goes."""
        found: tuple[list[str], Stat] = await self.submit(get_children(path, watch))
        return found

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        mode: CreateMode = CreateMode.PERSISTENT,
        acl: Sequence[ACL] | None = None,
    ) -> tuple[str, Stat]:
        """Make a node; returns its path, with the sequence number if it has one, and its stat."""
        made: tuple[str, Stat] = await self.submit(create(path, data, mode, acl))
        return made

    async def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        stat: Stat = await self.submit(set_data(path, data, version))
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.submit(delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        """All or nothing; see `client_operations.multi`."""
        results: list[Any] = await self.submit(multi(operations))
        return results

    async def sync(self, path: str) -> None:
        """Return when the server has seen all that was committed before."""
        await self.submit(sync(path))

    async def get_acl(self, path: str) -> tuple[list[ACL], Stat]:
        found: tuple[list[ACL], Stat] = await self.submit(get_acl(path))
        return found

    async def set_acl(self, path: str, acl: Sequence[ACL], version: int = ANY_VERSION) -> Stat:
        stat: Stat = await self.submit(set_acl(path, acl, version))
        return stat

    def add_auth(self, scheme: str, auth: bytes) -> None:
        """Add an identity to this and every later connection; a refusal comes as `SessionEvent.AUTH_FAILED`."""
        self._auth.append((scheme, auth))
        if self._attached.is_set() and self._link is not None:
            self._link.send([encode_request(Xid.AUTH, OpCode.AUTH, AuthPacket(0, scheme, auth))])

    async def ensure_path(self, path: str) -> None:
        """Make a persistent node and its missing parents; existing ones are fine. The chroot comes first."""
        names = [name for name in path.split("/") if name]
        steps = ["/" + "/".join(names[: n + 1]) for n in range(len(names))]
        for result in await self.batch([create(step, None) for step in steps], retry=True):
            if isinstance(result, KeeperError) and result.code is not ErrorCode.NODE_EXISTS:
                raise result

    async def ensure_chroot(self) -> None:
        """Make the chroot's own nodes; nothing else can be done in a chroot that is not there."""
        chroot, self._chroot = self._chroot, ""
        try:
            await self.ensure_path(chroot)
        finally:
            self._chroot = chroot

    async def create_own_ephemeral(self, path: str, data: bytes) -> Stat:
        """Make an ephemeral node and be sure that it is this session's, whatever connections are lost meanwhile.

        A node left by an earlier session of this client is replaced. Raises NODE_EXISTS for another client's.
        """
        while True:
            try:
                results = await self.run(
                    multi([multi_create(path, None, CreateMode.EPHEMERAL), multi_set(path, data, 0)]), retry=True
                )
                stat: Stat = results[1]
                return stat
            except KeeperError as error:
                if error.code is not ErrorCode.NODE_EXISTS:
                    raise
            found = await self.exists(path)
            if found is None:
                continue
            if found.ephemeral_owner == self._session_id:
                return found
            if found.ephemeral_owner not in self._past_sessions:
                raise KeeperError(ErrorCode.NODE_EXISTS, path)
            (gone,) = await self.batch([delete(path, found.version)], retry=True)
            if gone is not None and gone.code is not ErrorCode.NO_NODE:
                raise gone

    # Sending

    def _enqueue(self, operation: Operation) -> None:
        if self._closing:
            operation.finished(None, KeeperError(ErrorCode.SESSION_EXPIRED, operation.path))
            return
        self._queue.append(operation)
        self._plan_flush()

    def _plan_flush(self) -> None:
        """Requests of one turn of the loop leave together."""
        if not self._flush_planned and self._attached.is_set():
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        link = self._link
        if link is None or not self._attached.is_set():
            return
        parts: list[Part] = []
        queue, in_flight = self._queue, self._in_flight
        while queue and len(in_flight) < _MAX_IN_FLIGHT:
            operation = queue.popleft()
            self._xid = self._xid + 1 & 0x7FFFFFFF or 1
            operation.xid = self._xid
            parts.append(operation.encode(self._chroot))
            in_flight.append(operation)
        if parts:
            link.send(parts)

    # Hearing

    def _heard(self, raw: bytes) -> None:
        """A frame of an attached session."""
        xid, zxid, err = _REPLY.unpack_from(raw)
        if zxid > 0:
            self._last_zxid = zxid
        if xid >= 0:
            self._reply(xid, err, raw)
        elif xid == Xid.WATCHER_EVENT:
            self._fire(decode(WatcherEvent, raw, _REPLY.size))
        elif xid == Xid.AUTH and err != 0:
            log.error("The coordination service refused an identity: %s", _error(err, "").code.name)
            self._tell(SessionEvent.AUTH_FAILED)

    def _reply(self, xid: int, err: int, raw: bytes) -> None:
        if not self._in_flight or self._in_flight[0].xid != xid:
            raise MalformedRecordError(f"a reply to request {xid}, which is not the next one")
        operation = self._in_flight.popleft()
        if self._queue:
            self._plan_flush()
        if operation.watch is not None and (kind := operation.watch_kind(err)):
            path = under_chroot(self._chroot, operation.path)
            self._watches[kind].setdefault(path, {})[operation.watch] = None
        if err and err not in operation.expected_errors:
            operation.finished(None, _error(err, operation.path))
            return
        try:
            result = operation.parse(None if err else raw, _REPLY.size)
        except KeeperError as error:
            operation.finished(None, error)
            return
        except MalformedRecordError as error:
            operation.finished(None, KeeperError(ErrorCode.MARSHALLING_ERROR, operation.path))
            raise MalformedRecordError(f"the reply to {operation!r}: {error}") from error
        operation.finished(result, None)

    def _fire(self, event: WatcherEvent) -> None:
        kinds: tuple[WatchKind, ...]
        match event.type:
            case EventType.NODE_CREATED | EventType.NODE_DATA_CHANGED:
                kinds = (WatchKind.DATA, WatchKind.EXISTS)
            case EventType.NODE_CHILDREN_CHANGED:
                kinds = (WatchKind.CHILDREN,)
            case EventType.NODE_DELETED:
                kinds = (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN)
            case _:
                return
        callbacks: dict[WatchCallback, None] = {}
        for kind in kinds:
            callbacks.update(self._watches[kind].pop(event.path, {}))
        told = WatchEvent(EventType(event.type), event.path.removeprefix(self._chroot) or "/")
        for callback in callbacks:
            callback(told)

    def _tell(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            listener(event)

    # Connecting

    async def _keep_connected(self) -> None:
        backoff_ms = _BACKOFF_FIRST_MS
        while not self._closing:
            for host, port in list(self._servers):
                if await self._attach(host, port):
                    backoff_ms = _BACKOFF_FIRST_MS
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, _BACKOFF_MAX_MS)

    async def _attach(self, host: str, port: int) -> bool:
        """One connection, from its opening to its end; returns whether it ever served the session."""
        timeout_ms = max(500, self._wanted_timeout_ms // len(self._servers))
        loop = asyncio.get_running_loop()
        link = _Link(loop, self)
        try:
            await self._network.connect(
                host, port, link.opened, max_frame_bytes=_MAX_FRAME_BYTES, timeout_ms=timeout_ms
            )
        except OSError as error:
            log.debug("No coordination server at %s:%d: %s", host, port, error)
            return False
        request = ConnectRequest(0, self._last_zxid, self._wanted_timeout_ms, self._session_id, self._password)
        link.send([encode_connect_request(request)])
        link.expect_within(timeout_ms)
        try:
            await link.ended
        finally:
            link.drop()
        if self._link is not link:
            return False
        self._link = None
        self._attached.clear()
        self._connection_lost()
        return True

    def _connected(self, link: "_Link", raw: bytes) -> None:
        """The service's answer to a connection: a session, ours again, or the news that ours has expired."""
        response, _ = decode_connect_response(raw)
        if response.timeout_ms <= 0:
            link.drop()
            self._expire()
            return
        fresh = response.session_id != self._session_id
        self._session_id = response.session_id
        self._password = response.password
        self._timeout_ms = response.timeout_ms
        self._link = link
        link.attached(self._timeout_ms)
        preamble: list[Part] = [
            encode_request(Xid.AUTH, OpCode.AUTH, AuthPacket(0, scheme, auth)) for scheme, auth in self._auth
        ]
        preamble += self._set_watches()
        if preamble:
            link.send(preamble)
        self._attached.set()
        log.debug("Session 0x%x on %s", self._session_id, link.peer)
        self._tell(SessionEvent.CREATED if fresh else SessionEvent.REATTACHED)
        self._plan_flush()

    def _set_watches(self) -> list[Part]:
        """Requests that register all watches again, each of bounded size."""
        frames: list[Part] = []
        lists: dict[WatchKind, list[str]] = {kind: [] for kind in WatchKind}
        size = 0

        def flush() -> None:
            record = SetWatches(
                self._last_zxid, lists[WatchKind.DATA], lists[WatchKind.EXISTS], lists[WatchKind.CHILDREN]
            )
            frames.append(encode_request(Xid.SET_WATCHES, OpCode.SET_WATCHES, record))

        for kind, paths in self._watches.items():
            for path in paths:
                if size > _SET_WATCHES_BYTES:
                    flush()
                    lists = {kind: [] for kind in WatchKind}
                    size = 0
                lists[kind].append(path)
                size += 4 + len(path)
        if size:
            flush()
        return frames

    def _expire(self) -> None:
        log.warning("Session 0x%x expired", self._session_id)
        self._past_sessions.add(self._session_id)
        self._session_id = 0
        self._password = bytes(16)
        for watched in self._watches.values():
            watched.clear()
        self._fail_all(ErrorCode.SESSION_EXPIRED)
        self._tell(SessionEvent.EXPIRED)

    def _connection_lost(self) -> None:
        lost, self._in_flight = self._in_flight, deque()
        self._queue.extendleft(operation for operation in reversed(lost) if not operation.writes)
        for operation in lost:
            if operation.writes:
                operation.finished(None, KeeperError(ErrorCode.CONNECTION_LOSS, operation.path))
        if not self._closing:
            log.info("The connection of session 0x%x was lost", self._session_id)
            self._tell(SessionEvent.DISCONNECTED)

    def _fail_all(self, code: ErrorCode) -> None:
        waiting = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        for operation in waiting:
            operation.finished(None, KeeperError(code, operation.path))


def _error(err: int, path: str) -> KeeperError:
    try:
        return KeeperError(ErrorCode(err), path)
    except ValueError:
        return KeeperError(ErrorCode.SYSTEM_ERROR, f"{path} (unknown error {err})")


def _is_connection_loss(result: object) -> bool:
    return isinstance(result, KeeperError) and result.code is ErrorCode.CONNECTION_LOSS


class _Link:
    """One connection: its first frame is the session's answer, and it is dropped when it stays silent too long."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: CoordinationClient) -> None:
        self._loop = loop
        self._client = client
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_attached = False
        self._timeout_s = 0.0
        self._heard_at = self._sent_at = loop.time()
        self.ended: asyncio.Future[None] = loop.create_future()

    def opened(self, connection: Connection) -> "_Link":
        self._connection = connection
        return self

    @property
    def peer(self) -> str:
        return "{}:{}".format(*self._connection.peer) if self._connection else ""

    def send(self, parts: Sequence[Part]) -> None:
        self._sent_at = self._loop.time()
        if self._connection is not None:
            self._connection.send(parts)

    def expect_within(self, timeout_ms: int) -> None:
        """Drop the connection if the session's answer does not come in time."""
        self._timer = self._loop.call_later(timeout_ms / 1000, self.drop)

    def attached(self, timeout_ms: int) -> None:
        """From now on ping, and listen for the service's silence."""
        self._is_attached = True
        self._timeout_s = timeout_ms / 1000
        self._cancel_timer()
        self._timer = self._loop.call_later(self._timeout_s / 6, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if now - self._heard_at > self._timeout_s * 2 / 3:
            log.warning("The coordination server at %s has been silent for %.1f s", self.peer, now - self._heard_at)
            self.drop()
            return
        if now - self._sent_at >= self._timeout_s / 3:
            self.send([encode_request(Xid.PING, OpCode.PING, None)])
        self._timer = self._loop.call_later(self._timeout_s / 6, self._tick)

    def frame(self, data: memoryview) -> None:
        self._heard_at = self._loop.time()
        if self.ended.done():
            return
        try:
            if self._is_attached:
                self._client._heard(bytes(data))
            else:
                self._client._connected(self, bytes(data))
        except (MalformedRecordError, struct.error) as error:
            log.error("The coordination server at %s sent what cannot be: %s", self.peer, error)
            self.drop()

    def bad_length(self, prefix: bytes) -> None:
        log.error("The coordination server at %s sent a frame of impossible length: %s", self.peer, prefix.hex())
        self.drop()

    def closed(self, error: Exception | None) -> None:
        if error is not None:
            log.debug("The connection to %s failed: %s", self.peer, error)
        self._end()

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._end()

    def _end(self) -> None:
        self._cancel_timer()
        if not self.ended.done():
            self.ended.set_result(None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BlockingClient:
    """The same session for threads and tools without a loop: it runs one in a thread of its own."""

    def __init__(self, network: Callable[[], Network], servers: str, *, rng: Random, session_timeout_ms: int = 18_000):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="coordination-client", daemon=True)
        self._thread.start()

        async def build() -> CoordinationClient:
            return CoordinationClient(network(), servers, rng=rng, session_timeout_ms=session_timeout_ms)

        self.client = self._wait(build())

    def start(self, timeout_ms: int) -> None:
        """See `CoordinationClient.start`."""
        self._wait(self.client.start(timeout_ms))

    def call(self, request: Callable[[CoordinationClient], Awaitable[T]]) -> T:
        """Wait for ``request(client)``: ``blocking.call(lambda client: client.get("/brokers"))``."""

        async def run() -> T:
            return await request(self.client)

        return self._wait(run())

    def close(self) -> None:
        """End the session and the thread."""
        self._wait(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
