"""Limits for the connections of a web server: how many there are, and how long one may be silent.

A library for HTTP reads requests from a connection; this class stands between both. It counts
connections, and closes one that has no whole head of a request for too long. The time begins when
the connection is made, when an answer ends, and once more with the first bytes after that: a client
that sends a head byte by byte does not keep a connection. While a request is served the time does
not run, because bodies and answers have limits of their own.

In Confluent's servers: Jetty's `ConnectionLimit` and its idle time limit.
"""

import asyncio
import logging
from typing import cast

__all__ = ["LimitedConnection", "WebConnections"]

logger = logging.getLogger(__name__)

_SILENCE_S = 10.0
"""After a warning, others of its kind wait so long."""


class WebConnections:
    """The connections of one server. ``most`` of 0 is no limit."""

    def __init__(self, most: int, idle_s: float) -> None:
        self._most = most
        self.idle_s = idle_s
        self._open: set[LimitedConnection] = set()
        self._refused = 0
        self._silent_until_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def limited(self, made: asyncio.Protocol) -> "LimitedConnection":
        """The protocol for a connection that ``made`` serves."""
        return LimitedConnection(made, self)

    def admit(self, connection: "LimitedConnection") -> bool:
        """Count a connection; False where there are too many."""
        if self._most and len(self._open) >= self._most:
            self._refused += 1
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._silent_until_s:
                logger.warning(
                    "%d connections were refused: %d are open (server.connection.limit)", self._refused, len(self._open)
                )
                self._refused, self._silent_until_s = 0, now_s + _SILENCE_S
            return False
        self._open.add(connection)
        return True

    def forget(self, connection: "LimitedConnection") -> None:
        """A connection has ended."""
        self._open.discard(connection)


class LimitedConnection(asyncio.Protocol):
    """Hands everything to the protocol of the library, and closes a connection that is idle."""

    def __init__(self, served_by: asyncio.Protocol, connections: WebConnections) -> None:
        self._served_by = served_by
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        """Bytes of a request have come since the last answer."""
        self._unsent = 0
        """Bytes of answers that waited for the client when the time was last over."""

    @staticmethod
    def of(transport: asyncio.BaseTransport | None) -> "LimitedConnection | None":
        """The connection of a transport; None where it is gone."""
        protocol = transport.get_protocol() if transport is not None else None
        return protocol if isinstance(protocol, LimitedConnection) else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._connections.admit(self):
            self._transport.abort()
            self._transport = None
            return
        self._served_by.connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._timer is not None and not self._has_begun:
            self._has_begun = True
            self._start_timer()
        self._served_by.data_received(data)

    def eof_received(self) -> bool | None:
        return self._served_by.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        self._served_by.pause_writing()

    def resume_writing(self) -> None:
        self._served_by.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._connections.forget(self)
        if self._transport is not None:
            self._transport = None
            self._served_by.connection_lost(exc)

    def request_begins(self) -> None:
        """The head of a request is whole."""
        self._stop_timer()

    def request_ends(self) -> None:
        """Its answer is made; the client may still read it."""
        if self._transport is not None:
            self._wait_for_request()

    def _wait_for_request(self) -> None:
        self._has_begun = False
        self._unsent = 0
        self._start_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._connections.idle_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Close it, unless the client still reads the last answer."""
        self._timer = None
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self._start_timer()
            return
        self._transport.abort()
