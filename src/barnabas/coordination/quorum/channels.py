"""Connections between members that authenticate each other before anything else is said: a
`Network` on another one.

The owner of a connection gets it when the exchange is over; `connect` returns then, and
raises PermissionError if the other side refuses this server or is not who it must be. What
strangers can make a server hold is bounded: an exchange has two seconds, and of more than 64
at a time the oldest ends.

On the election port the server that connects says who it is before it authenticates. That greeting
is sent here, and the other side's is kept until its authentication is over. A server that
authenticates does so at once. Where authentication is not required, a server that sends nothing
more within 0.3 s is accepted: it waits for this server's vote.

In ZooKeeper: the calls of QuorumAuthServer and QuorumAuthLearner in QuorumCnxManager,
Learner and LearnerHandler.
"""

import asyncio
import logging
from collections.abc import Callable

from barnabas.base.errors import BarnabasError
from barnabas.base.network import Accept, Connection, FrameHandler, Listener, Network
from barnabas.coordination.quorum.authentication import QuorumAuthentication, QuorumAuthLearner, QuorumAuthServer

__all__ = ["AuthenticatedNetwork"]

logger = logging.getLogger(__name__)
_PATIENCE_S = 2
_SILENCE_S = 0.3
_MAX_EXCHANGES = 64


class AuthenticatedNetwork:
    """Connections of members that authenticate each other."""

    def __init__(
        self,
        network: Network,
        authentication: QuorumAuthentication,
        *,
        greeting: bytes = b"",
        find_greeting: Callable[[bytearray], int | None] = lambda data: 0,  # noqa: ARG005  # no greeting
    ) -> None:
        """``greeting`` is sent on each connection that is made, before the authentication.

        ``find_greeting`` returns the length of the greeting of a server that connects, or None
        until it is whole. It raises `BarnabasError` for bytes that no member sends.
        """
        self._network = network
        self._authentication = authentication
        self._greeting = greeting
        self._find_greeting = find_greeting
        self._exchanges: dict[_ServerSide, None] = {}

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> Listener:
        """Like `Network.listen`.

        A close ends the exchanges: nothing else knows of their connections."""
        port_id = object()

        def accepted(connection: Connection) -> _ServerSide:
            side = _ServerSide(connection, accept, self._authentication, self._find_greeting, self._exchanges, port_id)
            self._exchanges[side] = None
            if len(self._exchanges) > _MAX_EXCHANGES:
                next(iter(self._exchanges)).end("too many others wait to authenticate")
            return side

        listener = await self._network.listen(host, port, accepted, max_frame_bytes=max_frame_bytes)
        return _Listener(listener, self._exchanges, port_id)

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        """Like `Network.connect`."""
        sides: list[_LearnerSide] = []
        new_learner = self._authentication.new_learner

        def connected(connection: Connection) -> FrameHandler:
            if self._greeting:
                connection.send([self._greeting])
            if new_learner is None:
                return accept(connection)
            sides.append(_LearnerSide(connection, accept, QuorumAuthLearner(new_learner())))
            return sides[0]

        async with asyncio.timeout(timeout_ms / 1000):
            connection = await self._network.connect(
                host, port, connected, max_frame_bytes=max_frame_bytes, timeout_ms=timeout_ms
            )
            if sides:
                try:
                    await sides[0].done
                except BaseException:
                    connection.close()
                    raise
            return connection


class _Listener(Listener):
    def __init__(self, listener: Listener, exchanges: "dict[_ServerSide, None]", port_id: object) -> None:
        self._listener = listener
        self._exchanges = exchanges
        self._port_id = port_id

    @property
    def port(self) -> int:
        return self._listener.port

    async def close(self) -> None:
        await self._listener.close()
        for side in [each for each in self._exchanges if each.port_id is self._port_id]:
            side.close()


class _Side:
    """The handler of a connection: it runs the exchange, then hands everything on to
    the owner's handler."""

    def __init__(self, connection: Connection, accept: Accept) -> None:
        connection.is_stream = True
        self._connection = connection
        self._accept = accept
        self._handler: FrameHandler | None = None
        """None until the exchange is over"""

    def bad_length(self, prefix: bytes) -> None: ...  # a stream has no lengths

    def frame(self, data: memoryview) -> None:
        if self._handler is not None:
            self._handler.frame(data)
        else:
            self._exchange_bytes(data)

    def _exchange_bytes(self, data: memoryview) -> None:
        """Bytes came before the exchange is over."""
        raise NotImplementedError

    def _begin(self, data: bytes) -> None:
        handler = self._handler = self._accept(self._connection)
        if data:
            handler.frame(memoryview(bytearray(data)))


class _ServerSide(_Side):
    def __init__(
        self,
        connection: Connection,
        accept: Accept,
        authentication: QuorumAuthentication,
        find_greeting: Callable[[bytearray], int | None],
        exchanges: dict["_ServerSide", None],
        port_id: object,
    ) -> None:
        super().__init__(connection, accept)
        self.port_id = port_id
        """The port that the connection came to."""
        self._exchange = QuorumAuthServer(authentication)
        self._find_greeting = find_greeting
        self._exchanges = exchanges
        self._greeting = bytearray()
        self._has_greeting = False
        self._has_begun = False
        """Whether something came behind the greeting."""
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self.end, "it has not authenticated in time")

    def end(self, reason: str) -> None:
        """Close the connection of a peer that may not go on."""
        if self in self._exchanges:
            self._leave()
            logger.warning(
                "Closing the connection of %s, which is not authenticated: %s", self._connection.peer, reason
            )
            self._connection.close(after_sending=True)
            asyncio.get_running_loop().call_later(_PATIENCE_S, self._connection.close)

    def close(self) -> None:
        """The port is closed."""
        self._leave()
        self._connection.close()

    def _leave(self) -> None:
        self._timer.cancel()
        self._exchanges.pop(self, None)

    def _exchange_bytes(self, data: memoryview) -> None:
        if self not in self._exchanges:
            return
        if not self._has_greeting:
            self._greeting += data
            try:
                size = self._find_greeting(self._greeting)
            except BarnabasError as error:
                self.end(str(error))
                return
            if size is None:
                return
            self._has_greeting = True
            data = memoryview(bytes(self._greeting[size:]))
            del self._greeting[size:]
            if not data:
                if not self._exchange.is_required:
                    asyncio.get_running_loop().call_later(_SILENCE_S, self._go_on_without)
                return
        self._has_begun = True
        exchange = self._exchange
        answer = exchange.feed(data)
        if answer:
            self._connection.send([answer])
        if exchange.failure:
            self.end(exchange.failure)
        elif exchange.is_complete:
            self._leave()
            if exchange.user:
                logger.info("Authenticated %s as %s", self._connection.peer, exchange.user)
            self._begin(bytes(self._greeting) + exchange.rest)

    def _go_on_without(self) -> None:
        """Nothing came behind the greeting: the other server does not authenticate,
        and need not."""
        if self in self._exchanges and not self._has_begun:
            self._leave()
            self._begin(bytes(self._greeting))

    def closed(self, error: Exception | None) -> None:
        if self in self._exchanges:
            self._leave()
            if self._greeting and self._has_greeting and not self._exchange.is_required:
                # The greeting alone says that the server wants a connection.
                self._begin(bytes(self._greeting))
        handler = self._handler
        if handler is not None:
            handler.closed(error)


class _LearnerSide(_Side):
    def __init__(self, connection: Connection, accept: Accept, exchange: QuorumAuthLearner) -> None:
        super().__init__(connection, accept)
        self._exchange = exchange
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.send([exchange.start()])

    def _fail(self, error: OSError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # the caller may have stopped waiting

    def _exchange_bytes(self, data: memoryview) -> None:
        if self.done.done():
            return
        exchange = self._exchange
        answer = exchange.feed(data)
        if answer:
            self._connection.send([answer])
        if exchange.failure:
            self._fail(PermissionError(f"the other server does not authenticate: {exchange.failure}"))
            self._connection.close()
        elif exchange.is_complete:
            self.done.set_result(None)
            self._begin(exchange.rest)

    def closed(self, error: Exception | None) -> None:
        if self._handler is not None:
            self._handler.closed(error)
        else:
            self._fail(ConnectionResetError(f"closed during the authentication ({error or 'by the other server'})"))
