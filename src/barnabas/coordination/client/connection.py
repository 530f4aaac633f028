"""The edge of the client: one session of a coordination service, ours or Apache
ZooKeeper's, on an asyncio loop.

`ClientSession` decides; here are its socket, its timer, and the coroutines for callers:
ZooKeeper's ClientCnxn (SendThread) and the ZooKeeper class. What a lost connection means for an
operation stands in `barnabas.coordination.client.session`. A conditional write can be repeated
after CONNECTION_LOSS (`CoordinationClient.run` with ``retry``); NODE_EXISTS, NO_NODE or
BAD_VERSION may then be the trace of the first attempt. `CoordinationClient.create_own_ephemeral`
recognises its own node.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.base.network import Connection, Network, Part
from barnabas.base.randomness import Random
from barnabas.coordination.client.connect_string import ConnectString
from barnabas.coordination.client.operations import (
    Operation,
    WatchCallback,
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
)
from barnabas.coordination.client.session import (
    ClientSession,
    Connect,
    Disconnect,
    SaslClient,
    SessionEvent,
    State,
    Wake,
)
from barnabas.wire.jute.codec import MalformedRecordError
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import ANY_VERSION, CreateMode
from barnabas.wire.jute.records import ACL, Stat

__all__ = ["CoordinationClient"]

logger = logging.getLogger(__name__)

_MAX_FRAME_BYTES = 64 * 1024 * 1024


class CoordinationClient:
    """A session, for the running event loop. All methods are called from that loop."""

    def __init__(
        self,
        network: Network,
        servers: str,
        *,
        rng: Random,
        session_timeout_ms: int = 18_000,
        new_sasl_client: Callable[[], SaslClient] | None = None,
    ) -> None:
        """``servers`` is a `ConnectString`.

        ``rng`` puts its servers in order, so that clients spread over them. With
        ``new_sasl_client`` each connection authenticates with SASL before its first operation.
        """
        self._driver = _Driver(network, servers, rng, session_timeout_ms, new_sasl_client)
        self._session = self._driver.session

    # The session

    @property
    def session_id(self) -> int:
        """The session's number, 0 while there is none."""
        return self._session.id

    @property
    def session_timeout_ms(self) -> int:
        """The timeout that the server granted."""
        return self._session.timeout_ms

    @property
    def is_connected(self) -> bool:
        return self._session.is_connected

    @property
    def connection_error(self) -> OSError | None:
        """Why the last attempt to connect failed; None when it did not."""
        return self._driver.connection_error

    @property
    def protocol_error(self) -> str:
        """Which server violated the protocol, and how; "" when none did."""
        return self._driver.protocol_error

    @property
    def refusal(self) -> str:
        """Why a server refused an identity; "" when none did."""
        return self._session.refusal

    def on_session(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call ``listener`` at every `SessionEvent`, from the loop, in order with
        replies and watches."""
        self._driver.listeners.append(listener)

    async def start(self, timeout_ms: int) -> None:
        """Connect; raises CONNECTION_LOSS when there is no session in time.

        Without `start` nothing is sent."""
        self._driver.start()
        await self.wait_connected(timeout_ms)

    async def wait_connected(self, timeout_ms: int | None = None) -> None:
        """Return when there is a session with a connection.

        Raises CONNECTION_LOSS after the time."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._driver.connected.wait()
        except TimeoutError:
            where = ",".join(f"{host}:{port}" for host, port in self._session.servers)
            raise KeeperError(ErrorCode.CONNECTION_LOSS, where) from None

    async def watch_connection(self, patience_ms: int) -> None:
        """Wait while there is a connection.

        Raises CONNECTION_LOSS after ``patience_ms`` without one."""
        while True:
            await self.wait_connected(patience_ms)
            await self._driver.disconnected.wait()

    async def close(self) -> None:
        """End the session, so that its ephemerals go at once, and the connection."""
        await self._driver.close()

    def add_auth(self, scheme: str, auth: bytes) -> None:
        """Add an identity to this and every later connection.

        A refusal comes as `SessionEvent.AUTH_FAILED`."""
        self._driver.add_auth(scheme, auth)

    # Requests

    def submit(self, operation: Operation) -> "asyncio.Future[Any]":
        """Send an operation as soon as possible; the future has its result, or a `KeeperError`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def finished(result: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        operation.finished = finished
        self._driver.submit(operation)
        return future

    async def run(self, operation: Operation, *, retry: bool = False) -> Any:
        """The operation's result; with ``retry`` it is repeated after CONNECTION_LOSS
        until its outcome is known."""
        while True:
            try:
                return await self.submit(operation)
            except KeeperError as error:
                if not retry or error.code is not ErrorCode.CONNECTION_LOSS:
                    raise

    async def batch(self, operations: Sequence[Operation], *, retry: bool = False) -> list[Any]:
        """All results in order, a `KeeperError` in place of each that failed.

        ``retry`` as in `run`."""
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
                self._driver.submit(operations[index])
            await done
            waiting = [index for index in waiting if retry and _is_connection_loss(results[index])]
        return results

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes | None, Stat]:
        """Data and stat. ``watch`` is called once, when the data changes or the node is deleted."""
        found: tuple[bytes | None, Stat] = await self.submit(get(path, watch))
        return found

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """The stat, or None.

        ``watch`` is called once, when the node is created, changed or deleted."""
        stat: Stat | None = await self.submit(exists(path, watch))
        return stat

    async def get_children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        """Names, in no order, and the stat.

        ``watch`` is called once, when the children change or the node is deleted."""
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
        """All or nothing; see `operations.multi`."""
        results: list[Any] = await self.submit(multi(operations))
        return results

    async def sync(self, path: str) -> None:
        """Return when the server has applied everything that was committed before."""
        await self.submit(sync(path))

    async def get_acl(self, path: str) -> tuple[list[ACL], Stat]:
        found: tuple[list[ACL], Stat] = await self.submit(get_acl(path))
        return found

    async def set_acl(self, path: str, acl: Sequence[ACL], version: int = ANY_VERSION) -> Stat:
        stat: Stat = await self.submit(set_acl(path, acl, version))
        return stat

    async def ensure_path(self, path: str) -> None:
        """Make a persistent node and its missing parents; existing ones are fine."""
        await self._ensure(path, in_chroot=True)

    async def ensure_chroot(self) -> None:
        """Make the chroot's own nodes; nothing else can be done in a chroot that is not there."""
        await self._ensure(self._session.chroot, in_chroot=False)

    async def _ensure(self, path: str, *, in_chroot: bool) -> None:
        names = [name for name in path.split("/") if name]
        steps = [create("/" + "/".join(names[: n + 1]), None) for n in range(len(names))]
        for step in steps:
            step.in_chroot = in_chroot
        for result in await self.batch(steps, retry=True):
            if isinstance(result, KeeperError) and result.code is not ErrorCode.NODE_EXISTS:
                raise result

    async def create_own_ephemeral(self, path: str, data: bytes) -> Stat:
        """Make an ephemeral node that is certain to be this session's, even if
        connections are lost meanwhile.

        A node left by an earlier session of this client is replaced. Raises
        NODE_EXISTS for another client's.
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
            if found.ephemeral_owner == self._session.id:
                return found
            if found.ephemeral_owner not in self._session.past_ids:
                raise KeeperError(ErrorCode.NODE_EXISTS, path)
            (failure,) = await self.batch([delete(path, found.version)], retry=True)
            if failure is not None and failure.code is not ErrorCode.NO_NODE:
                raise failure


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _is_connection_loss(result: object) -> bool:
    return isinstance(result, KeeperError) and result.code is ErrorCode.CONNECTION_LOSS


class _Driver:
    """Runs a session: its connections, its timer, and the turns of the loop in which
    its frames leave."""

    def __init__(
        self,
        network: Network,
        servers: str,
        rng: Random,
        session_timeout_ms: int,
        new_sasl_client: Callable[[], SaslClient] | None,
    ) -> None:
        parsed = ConnectString.parse(servers)
        addresses = list(parsed.servers)
        rng.shuffle(addresses)
        self.session = ClientSession(addresses, parsed.chroot, session_timeout_ms, self._changed, new_sasl_client)
        self.listeners: list[Callable[[SessionEvent], None]] = []
        self.connected = asyncio.Event()
        self.disconnected = asyncio.Event()
        """Set while `connected` is not."""
        self.disconnected.set()
        self.link: _Link | None = None
        self.connection_error: OSError | None = None
        self.protocol_error = ""
        self._network = network
        self._closed = asyncio.Event()
        self._is_started = False
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_planned = False

    def start(self) -> None:
        """Begin to connect; a second call does nothing."""
        if not self._is_started and self.session.state is State.NOT_CONNECTED:
            self._is_started = True
            self.session.start()
            self._perform()

    async def close(self) -> None:
        """End the session and the connection."""
        connecting = self._connecting
        self.session.close(_now_ms())
        self._perform()
        await self._closed.wait()
        if connecting is not None:
            await asyncio.wait([connecting])

    def submit(self, operation: Operation) -> None:
        self.session.submit(operation)
        self._plan_flush()

    def add_auth(self, scheme: str, auth: bytes) -> None:
        self.session.add_auth(scheme, auth)
        self._plan_flush()

    def received(self, frame: bytes) -> None:
        """A frame has arrived on the present connection."""
        self.session.receive(frame, _now_ms())
        if self.session.has_effects:
            self._perform()
        else:
            self._plan_flush()

    def lost(self, *, protocol_violated: bool = False) -> None:
        """The present connection is closed, or could not be opened."""
        self.link = None
        self.session.connection_lost(_now_ms(), protocol_violated=protocol_violated)
        self._perform()

    def _changed(self, event: SessionEvent) -> None:
        self._note_connection(is_connected=self.session.is_connected)
        for listener in list(self.listeners):
            listener(event)

    def _note_connection(self, *, is_connected: bool) -> None:
        now, before = (self.connected, self.disconnected) if is_connected else (self.disconnected, self.connected)
        now.set()
        before.clear()

    def _tick(self, at_ms: int) -> None:
        self._timer = None
        self.session.tick(max(at_ms, _now_ms()))
        self._perform()

    def _perform(self) -> None:
        """Do what the session has decided."""
        while self.session.has_effects:
            for effect in self.session.take_effects():
                match effect:
                    case Connect():
                        self._connecting = asyncio.get_running_loop().create_task(self._connect(effect))
                    case Disconnect():
                        self._disconnect()
                    case Wake(at_ms):
                        self._cancel_timer()
                        self._timer = asyncio.get_running_loop().call_at(at_ms / 1000, self._tick, at_ms)
        self._plan_flush()
        if self.session.state is State.CLOSED and not self._closed.is_set():
            self._note_connection(is_connected=False)
            self._cancel_timer()
            self._closed.set()

    async def _connect(self, wanted: Connect) -> None:
        link = _Link(self)
        try:
            await self._network.connect(
                wanted.host, wanted.port, link.opened, max_frame_bytes=_MAX_FRAME_BYTES, timeout_ms=wanted.timeout_ms
            )
        except OSError as error:
            logger.debug("No coordination server at %s:%d: %s", wanted.host, wanted.port, error)
            self._connecting = None
            self.connection_error = error
            self.lost()
        except BaseException:
            link.drop()
            raise
        else:
            self._connecting = None
            self.connection_error = None
            if not link.is_ended:
                self.link = link
                self.session.connection_opened(_now_ms())
                self._perform()

    def _disconnect(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.drop()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan_flush(self) -> None:
        """Requests of one turn of the loop leave together."""
        if not self._flush_planned and self.session.wants_to_send:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        link = self.link
        if link is not None and (frames := self.session.frames_to_send(_now_ms())):
            link.send(frames)


class _Link:
    """One connection. After `drop` it reports nothing more."""

    def __init__(self, driver: _Driver) -> None:
        self._driver = driver
        self._connection: Connection | None = None
        self.is_ended = False

    def opened(self, connection: Connection) -> "_Link":
        self._connection = connection
        return self

    @property
    def peer(self) -> str:
        return "{}:{}".format(*self._connection.peer) if self._connection else ""

    def send(self, frames: Sequence[Part]) -> None:
        if self._connection is not None:
            self._connection.send(frames)

    def frame(self, data: memoryview) -> None:
        if self.is_ended:
            return
        try:
            self._driver.received(bytes(data))
        except MalformedRecordError as error:
            self._refuse(str(error))

    def bad_length(self, prefix: bytes) -> None:
        self._refuse(f"a frame of impossible length, {prefix[:4].hex()}")

    def _refuse(self, why: str) -> None:
        """The server violated the protocol.

        Logged once while it goes on, for each attempt to connect may end so."""
        problem = f"{self.peer} does not speak ZooKeeper's protocol: {why}"
        if self._driver.protocol_error != problem:
            logger.error("Closing the connection: %s", problem)
        self._driver.protocol_error = problem
        self.lose(protocol_violated=True)

    def closed(self, error: Exception | None) -> None:
        if error is not None:
            logger.debug("The connection to %s failed: %s", self.peer, error)
        self.lose()

    def lose(self, *, protocol_violated: bool = False) -> None:
        """Close the connection; the session tries the next server."""
        if not self.is_ended:
            self.drop()
            self._driver.lost(protocol_violated=protocol_violated)

    def drop(self) -> None:
        """Close the connection; the session knows."""
        self.is_ended = True
        if self._connection is not None:
            self._connection.close()
