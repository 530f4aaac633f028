"""The edge of the admin server: a small HTTP server, off by default, beside the server for clients.

It answers GET requests of bounded size, one for each connection, within a time limit, and a bounded number at once.

In ZooKeeper: JettyAdminServer, and the Jetty server of PrometheusMetricsProvider.
"""

import asyncio
import contextlib
import http
import logging
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlsplit

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.coordination.admin.commands import AdminResponse, answer_command, metrics_page
from barnabas.coordination.server.access_settings import PROMETHEUS_PROVIDER
from barnabas.coordination.server.view import ServerView

__all__ = ["AdminServer"]

logger = logging.getLogger(__name__)
_MAX_REQUEST_BYTES = 8192
_MAX_CONNECTIONS = 32

Handler = Callable[[str, Mapping[str, str]], AdminResponse | None]
"""``handler(path, parameters)``; None for a path that is not there."""


class AdminServer:
    """The admin server and the metrics page, as far as the settings switch them on.

    ``view`` gives the server's present state; it is called on the loop.
    """

    def __init__(self, settings: Values, view: Callable[[], ServerView]) -> None:
        self._settings = settings
        self._view = view
        self._servers: list[asyncio.Server] = []
        self._open_connections = 0

    @property
    def ports(self) -> list[int]:
        """The ports that are open: the admin server's, then the metrics'."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def start(self) -> None:
        """Open the ports. Raises `ConfigError`."""
        settings = self._settings
        if settings["admin.enableServer"]:
            await self._listen(
                settings["admin.serverAddress"], settings["admin.serverPort"], "admin.serverPort", self._command
            )
        if settings["metricsProvider.className"] == PROMETHEUS_PROVIDER:
            await self._listen(
                settings["metricsProvider.httpHost"],
                settings["metricsProvider.httpPort"],
                "metricsProvider.httpPort",
                self._metrics,
            )

    async def close(self) -> None:
        """Close the ports; answers that are on their way may still leave."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _listen(self, host: str, port: int, name: str, handler: Handler) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, handler)

        try:
            server = await asyncio.start_server(serve, host or None, port, limit=_MAX_REQUEST_BYTES)
        except OSError as error:
            await self.close()
            raise ConfigError(f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror or error}") from error
        self._servers.append(server)
        logger.info("Serving HTTP on port %d (%s)", server.sockets[0].getsockname()[1], name)

    def _command(self, path: str, parameters: Mapping[str, str]) -> AdminResponse | None:
        root = self._settings["admin.commandURL"].rstrip("/")
        if path != root and not path.startswith(root + "/"):
            return None
        return answer_command(self._view(), path[len(root) :].strip("/"), parameters, root)

    def _metrics(self, path: str, _parameters: Mapping[str, str]) -> AdminResponse | None:
        return metrics_page(self._view()) if path == "/metrics" else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._open_connections += 1
        try:
            async with asyncio.timeout(self._settings["admin.idleTimeout"] / 1000):
                if self._open_connections > _MAX_CONNECTIONS:
                    answer = _text(503, "too many connections")
                else:
                    answer = await _answer(reader, handler)
                writer.write(_encode(answer))
                await writer.drain()
        except (TimeoutError, OSError, EOFError):
            writer.transport.abort()
        except Exception:
            logger.exception("A request of the admin server failed")
            writer.transport.abort()
        finally:
            self._open_connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader, handler: Handler) -> AdminResponse:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _text(431, "the request is too long")
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _text(400, "this is not a request of HTTP/1.1")
    if words[0] != "GET":
        return _text(405, "only GET is offered")
    try:
        target = urlsplit(words[1])
    except ValueError:
        return _text(400, "this is not a URL")
    return handler(target.path, dict(parse_qsl(target.query, max_num_fields=50))) or _text(404, "there is no such page")


def _text(status: int, text: str) -> AdminResponse:
    return AdminResponse(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def _encode(answer: AdminResponse) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + answer.body
