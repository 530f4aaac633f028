"""The ports of a web server on aiohttp: for the schema registry and the REST proxy.

It takes its addresses first, and listens later. Connections have the limits of
`barnabas.net.web_connections`.

In Confluent's servers: `ApplicationServer` of ``rest-utils``, on Jetty.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from aiohttp import web

from barnabas.base.errors import BarnabasError
from barnabas.net.http import HttpResponse
from barnabas.net.http_server import HttpServer, metrics_handler
from barnabas.net.listeners import close_server
from barnabas.net.machine import process_figures
from barnabas.net.metrics_address import METRICS_ADDRESS, parse_metrics_address
from barnabas.net.prometheus import encode_metrics, figure_lines
from barnabas.net.web_access import WebListener
from barnabas.net.web_connections import LimitedConnection, WebConnections
from barnabas.net.web_figures import WebFigures

__all__ = ["WebServer"]

_BACKLOG = 1024
_SHUTDOWN_S = 5.0
_METRICS_STEP_S = 10.0


class WebServer:
    """From `bind` to `close`, on one event loop.

    ``most_connections`` of 0 is no limit; a connection without a request is closed after
    ``idle_s``."""

    def __init__(self, application: web.Application, most_connections: int, idle_s: float) -> None:
        self.connections = WebConnections(most_connections, idle_s)
        self._figures = WebFigures()
        self._metrics: HttpServer | None = None
        application.middlewares.insert(0, _marks_as_served)
        application.middlewares.insert(0, self._counts)
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

    async def open_metrics(self, address: str, more: Callable[[], list[str]] = list) -> None:
        """Show Prometheus what was answered, at metrics.http.address; nowhere if that is empty.

        ``more`` gives other lines. Raises `BarnabasError`."""
        if not address:
            return
        host, port = parse_metrics_address(address)

        async def page() -> HttpResponse:
            return encode_metrics([*self._figures.lines(), *more(), *figure_lines(process_figures())])

        self._metrics = HttpServer(metrics_handler(page, _METRICS_STEP_S), _METRICS_STEP_S)
        try:
            await self._metrics.open(host, port, METRICS_ADDRESS)
        except OSError as error:
            self._metrics = None
            raise BarnabasError(
                f"{METRICS_ADDRESS}: {address} cannot be opened: {error.strerror or error}; choose another address"
            ) from None

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics page; None without one."""
        return None if self._metrics is None else self._metrics.port

    @web.middleware
    async def _counts(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        began_s, status = time.monotonic(), 499  # the client went away, as nginx says it
        try:
            answer = await handler(request)
            status = answer.status
            return answer
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            self._figures.answered(request.method, status, time.monotonic() - began_s)

    async def close(self) -> None:
        """Answer what is under way, and end."""
        if self._metrics is not None:
            await self._metrics.close()
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
