"""Framed connections over TLS, on asyncio's own transports.

`barnabas.net.sockets` drives plain sockets itself, for speed; here the event loop encrypts. The
rules are the same: a frame is checked by its length before it is kept, memory follows the bytes
that came, and a peer that does not read its answers is not read from. A handler exists from the end
of the handshake on, which has a time limit.

In ZooKeeper: NettyServerCnxnFactory with X509Util, ClientCnxnSocketNetty.
"""

import asyncio
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from barnabas.base.files import FileSlice
from barnabas.base.network import Accept, Connection, FrameHandler, Listener, Part, Standing
from barnabas.net.event_loop import measured
from barnabas.net.listeners import close_server

__all__ = ["TlsConnection", "TlsNetwork"]

_LENGTH = struct.Struct(">i")
_MAX_UNSENT_BYTES = 1024 * 1024
_HANDSHAKE_TIMEOUT_S = 10
_SHUTDOWN_TIMEOUT_S = 2
_NEVER_HELD_BYTES = 1 << 30  # the largest that event loops take
_BACKLOG = 1024
_DELIVERY_S = 0.005
"""How long frames that came together are handed on in one step of the event loop."""


class TlsNetwork:
    """TCP with TLS, for the running event loop."""

    def __init__(self, *, server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None) -> None:
        self._server_context = server
        self._client_context = client

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> "_TlsListener":
        assert self._server_context is not None, "this network has no certificate to show"
        server = await asyncio.get_running_loop().create_server(
            lambda: TlsConnection(accept, max_frame_bytes),
            host or None,
            port,
            ssl=self._server_context,
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            backlog=_BACKLOG,
        )
        return _TlsListener(server)

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        assert self._client_context is not None, "this network trusts no server"
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await asyncio.get_running_loop().create_connection(
                # As with plain sockets, the side that connects reads whatever waits to be sent: two
                # sides that both stopped would wait for each other.
                lambda: TlsConnection(accept, max_frame_bytes, max_unsent_bytes=_NEVER_HELD_BYTES),
                host,
                port,
                ssl=self._client_context,
                server_hostname=host if self._client_context.check_hostname else "",
            )
        return connection


class _TlsListener(Listener):
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        await close_server(self._server)


class TlsConnection(asyncio.Protocol):
    """One side of a connection, from the end of its handshake."""

    def __init__(
        self,
        accept: Accept,
        max_frame_bytes: int,
        is_expected: "Callable[[TlsConnection], bool]" = lambda connection: True,  # noqa: ARG005
        *,
        max_unsent_bytes: int = _MAX_UNSENT_BYTES,
    ) -> None:
        """A connection that is not expected is closed before it has a handler."""
        self._accept = accept
        self._is_expected = is_expected
        self._max_unsent_bytes = max_unsent_bytes
        self._handler: FrameHandler | None = None
        self.max_frame_bytes = max_frame_bytes
        self.is_stream = False
        self.standing = Standing.CLIENT
        self.served_bytes = 0
        self.has_room = True
        self.on_drained: Callable[[], None] | None = None
        self._failure: OSError | None = None
        self._received = bytearray()
        self._receive: Callable[[bytes], object] | None = None  # while there is a transport
        self._is_paused = False
        self._is_held = False  # not reading until what is unsent has left
        self._is_closing = False
        self._is_delivering = False

    # From the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base class
        self._receive = measured(asyncio.get_running_loop(), self._take)
        transport = self._transport
        self.peer: tuple[str, int] = transport.get_extra_info("peername")[:2]
        self.local: tuple[str, int] = transport.get_extra_info("sockname")[:2]
        transport.set_write_buffer_limits(high=self._max_unsent_bytes)
        if self._is_expected(self):
            self._handler = self._accept(self)
        else:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._receive is not None:
            self._receive(data)

    def _take(self, data: bytes) -> None:
        self._received += data
        self._deliver()

    def pause_writing(self) -> None:
        self._is_held = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_held = False
        if self.on_drained is not None:
            asyncio.get_running_loop().call_soon(self.on_drained)
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self.on_drained = None
        self._receive = None  # it refers to this connection
        self._received.clear()
        if self._handler is not None:
            self._handler.closed(self._failure or exc)

    # Reading

    def _deliver(self) -> None:
        """Hand on the whole frames; keep the rest."""
        handler = self._handler
        if self._is_delivering or handler is None:
            return
        self._is_delivering = True
        try:
            self._hand_on(handler)
        except BaseException:
            self.close()  # the frame that failed would be handed on again
            raise
        finally:
            self._is_delivering = False

    def _hand_on(self, handler: FrameHandler) -> None:
        received = self._received
        position = 0
        deadline_s = time.perf_counter() + _DELIVERY_S
        if self.is_stream and received and not (self._is_paused or self._is_held or self._is_closing):
            position = len(received)
            handler.frame(memoryview(bytearray(received)))
        while (
            not self.is_stream
            and len(received) - position >= 4
            and not (self._is_paused or self._is_held or self._is_closing)
        ):
            if position and time.perf_counter() > deadline_s:
                self._transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._read_on)
                break
            (size,) = _LENGTH.unpack_from(received, position)
            if not 0 <= size <= self.max_frame_bytes:
                prefix = bytes(received[position : position + 12])
                self.pause()
                handler.bad_length(prefix)
                position = len(received)
                break
            stop = position + 4 + size
            if stop > len(received):
                break
            handler.frame(memoryview(received[position + 4 : stop]))
            position = stop
        del received[:position]

    def _read_on(self) -> None:
        if not (self._is_paused or self._is_held or self._is_closing):
            self._transport.resume_reading()
            if self._received:
                # Not from here: the caller may be in the middle of answering the frame before.
                asyncio.get_running_loop().call_soon(self._deliver)

    # For the handler

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def peer_certificate(self) -> Mapping[str, object] | None:
        """What the peer's certificate says, if it has shown one that was verified."""
        found: Mapping[str, object] | None = self._transport.get_extra_info("peercert")
        return found

    def send(self, parts: Sequence[Part]) -> None:
        if self._transport.is_closing():
            return
        for part in parts:
            data = part.read() if isinstance(part, FileSlice) else part
            if len(data) < len(part):
                self._failure = OSError(f"a range of a file ended {len(part) - len(data)} bytes early")
                self._transport.abort()
                return
            self._transport.write(data)

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and not self._is_closing:
            self._is_paused = False
            self._read_on()

    def close(self, *, after_sending: bool = False) -> None:
        self._is_closing = True
        if after_sending:
            self._transport.close()
        else:
            self._transport.abort()
