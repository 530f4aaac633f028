"""The ports of a web server on aiohttp: for the schema registry and the REST proxy.

It takes its addresses first, and listens later. Connections have the limits of
`barnabas.net.web_connections`.

In Confluent's servers: `ApplicationServer` of ``rest-utils``, on Jetty.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence

from aiohttp import web

from barnabas.net.listeners import close_server
from barnabas.net.web_access import WebListener
from barnabas.net.web_connections import LimitedConnection, WebConnections

__all__ = ["WebServer"]

_BACKLOG = 1024
_SHUTDOWN_S = 5.0


class WebServer:
    """From `bind` to `close`, on one event loop.

    ``most_connections`` of 0 is no limit; a connection without a request is closed after
    ``idle_s``."""

    def __init__(self, application: web.Application, most_connections: int, idle_s: float) -> None:
        self.connections = WebConnections(most_connections, idle_s)
        application.middlewares.insert(0, _marks_as_served)
        # The connection's own limit is the shorter one, and begins before the first request.
        self._runner = web.AppRunner(
            application,
            handle_signals=False,
            access_log=None,
            keepalive_timeout=2 * idle_s,
            shutdown_timeout=_SHUTDOWN_S,
        )
        self._bound: list[tuple[WebListener, socket.socket]] = []
        """What is bound, and does not listen yet."""
        self._servers: list[asyncio.Server] = []

    def bind(self, listeners: Sequence[WebListener]) -> list[int]:
        """Take the addresses, at which nothing is answered yet; returns the port of each listener.

        Raises OSError."""
        ports = []
        for listener in listeners:
            port = listener.port
            for made in _bound_sockets(listener.host, port):
                self._bound.append((listener, made))
                port = port or int(made.getsockname()[1])
            ports.append(port)
        return ports

    async def listen(self, tls: ssl.SSLContext | None) -> None:
        """Answer requests; ``tls`` is for the listeners with https."""
        await self._runner.setup()
        serve = self._runner.server
        assert serve is not None, "setup makes it"
        while self._bound:
            listener, made = self._bound[0]
            context = tls if listener.scheme == "https" else None
            server = await asyncio.get_running_loop().create_server(
                lambda: self.connections.limited(serve()), sock=made, ssl=context, backlog=_BACKLOG
            )
            self._servers.append(server)
            del self._bound[0]

    async def close(self) -> None:
        """Answer what is under way, and end."""
        while self._bound:
            self._bound.pop()[1].close()
        while self._servers:
            await close_server(self._servers.pop())
        await self._runner.cleanup()


@web.middleware
async def _marks_as_served(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    connection = LimitedConnection.of(request.transport)
    if connection is None:
        return await handler(request)
    connection.request_begins()
    try:
        return await handler(request)
    finally:
        connection.request_ends()


def _bound_sockets(host: str, port: int) -> Iterator[socket.socket]:
    """A socket for each address of a host; all of them have the port of the first."""
    flags = socket.AI_PASSIVE if not host else 0
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    for family, kind, protocol, _, address in dict.fromkeys(found):
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address[0], port, *address[2:]))
        except BaseException:
            made.close()
            raise
        port = port or made.getsockname()[1]
        yield made
