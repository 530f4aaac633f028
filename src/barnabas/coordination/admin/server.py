"""The edge of the admin server: a small HTTP server, off by default, beside the server for clients.

It answers requests of bounded size, one for each connection, and a bounded number at once. Each step of a request has a time
limit. Only the commands that take or restore a snapshot stream what has no bound.

In ZooKeeper: JettyAdminServer, and the Jetty server of PrometheusMetricsProvider.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Protocol

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings import Values
from barnabas.coordination.admin.commands import AdminResponse, answer_command, json_response
from barnabas.coordination.admin.http import (
    BadRequestError,
    HttpRequest,
    encode_admin_response,
    encode_head,
    parse_head,
)
from barnabas.coordination.admin.metrics_page import metrics_page
from barnabas.coordination.admin.state_commands import StateCommands, state_command_of
from barnabas.coordination.server.access_settings import PROMETHEUS_PROVIDER
from barnabas.coordination.server.view import ServerView
from barnabas.coordination.storage.restoration import NoRoomError
from barnabas.coordination.storage.service import SnapshotService

__all__ = ["AdminServer", "AdministeredServer"]

logger = logging.getLogger(__name__)
_MAX_REQUEST_BYTES = 8192
_MAX_CONNECTIONS = 32
_PART_BYTES = 1 << 16
_LINGER_S = 2.0


class AdministeredServer(Protocol):
    """What the admin server needs of the server for clients, on the same loop."""

    @property
    def snapshots(self) -> SnapshotService:
        """Writes snapshots."""
        ...

    def view(self) -> ServerView:
        """The present state."""
        ...

    async def restore(self, parts: AsyncIterator[bytes], size_bytes: int) -> int:
        """Replace the state by a snapshot of that size (0: unknown); its zxid. Raises `BarnabasError` and OSError."""
        ...


class _Exchange:
    """A connection with one request. Each step has a time limit: TimeoutError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._limit_s = limit_s
        self.address: str = (writer.get_extra_info("peername") or ("",))[0]

    async def head(self) -> HttpRequest:
        """Read it. Raises `BadRequestError`."""
        async with asyncio.timeout(self._limit_s):
            try:
                return parse_head(await self._reader.readuntil(b"\r\n\r\n"))
            except asyncio.LimitOverrunError:
                raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long") from None

    async def body(self, request: HttpRequest) -> AsyncIterator[bytes]:
        """Read it, in parts. Raises `BadRequestError` for one that is cut off or of unknown length."""
        if request.expects_continue:
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            if request.is_chunked:
                while left := int((await self._line()).partition(b";")[0], 16):
                    async for part in self._exactly(left):
                        yield part
                    await self._line()
            else:
                async for part in self._exactly(int(request.headers["content-length"])):
                    yield part
        except (KeyError, ValueError, EOFError, asyncio.LimitOverrunError):
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "the body is cut off, or its length is not known") from None

    async def _line(self) -> bytes:
        async with asyncio.timeout(self._limit_s):
            return await self._reader.readuntil(b"\r\n")

    async def _exactly(self, left: int) -> AsyncIterator[bytes]:
        while left > 0:
            async with asyncio.timeout(self._limit_s):
                part = await self._reader.read(min(left, _PART_BYTES))
            if not part:
                raise EOFError
            left -= len(part)
            yield part

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(self._limit_s):
            await self._writer.drain()

    async def linger(self) -> None:
        """Read what the client still sends, for a moment: it would lose the answer if the connection were reset."""
        with contextlib.suppress(TimeoutError, OSError):
            self._writer.write_eof()
            async with asyncio.timeout(_LINGER_S):
                while await self._reader.read(_PART_BYTES):
                    pass


_Handler = Callable[[HttpRequest, _Exchange], Awaitable[AdminResponse | None]]
"""``await handler(request, exchange)``; None if it has answered by itself."""


class AdminServer:
    """The admin server and the metrics page, as far as the settings switch them on."""

    def __init__(self, settings: Values, server: AdministeredServer) -> None:
        self._settings = settings
        self._administered = server
        self._state_commands = StateCommands(settings)
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

    async def _listen(self, host: str, port: int, name: str, handler: _Handler) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, handler)

        try:
            server = await asyncio.start_server(serve, host or None, port, limit=_MAX_REQUEST_BYTES)
        except OSError as error:
            await self.close()
            raise ConfigError(f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror or error}") from error
        self._servers.append(server)
        logger.info("Serving HTTP on port %d (%s)", server.sockets[0].getsockname()[1], name)

    async def _command(self, request: HttpRequest, exchange: _Exchange) -> AdminResponse | None:
        root = self._settings["admin.commandURL"].rstrip("/")
        path = request.path
        if path != root and not path.startswith(root + "/"):
            raise BadRequestError(HTTPStatus.NOT_FOUND, "there is no such page")
        name = path[len(root) :].strip("/")
        view = self._administered.view()
        command = state_command_of(name)
        if command is not None:
            authorization = request.headers.get("authorization")
            refusal = self._state_commands.admit(command, request.method, authorization, exchange.address, view)
            if refusal is not None:
                return refusal
            return await (self._snapshot if command == "snapshot" else self._restore)(request, exchange)
        if request.method != "GET":
            raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"{name[:100]} is a GET request")
        return answer_command(view, name, request.parameters, root)

    async def _snapshot(self, request: HttpRequest, exchange: _Exchange) -> AdminResponse | None:
        """Take one, and send it unless the client does not want it."""
        try:
            taken = await self._administered.snapshots.take()
        except OSError as error:
            return json_response("snapshot", str(error), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        logger.info("Giving the snapshot %s to %s", taken.path, exchange.address)
        headers = (("last_zxid", f"0x{taken.zxid:x}"), ("snapshot_size", str(taken.size_bytes)))
        if request.parameters.get("streaming", "true").lower() != "true":
            return json_response("snapshot")._replace(headers=headers)
        await exchange.send(encode_head("application/octet-stream", taken.size_bytes, headers))
        async for part in self._administered.snapshots.read(taken):
            await exchange.send(part)
        return None

    async def _restore(self, request: HttpRequest, exchange: _Exchange) -> AdminResponse:
        logger.warning("Restoring a snapshot that %s sends", exchange.address)
        try:
            zxid = await self._administered.restore(exchange.body(request), request.body_bytes)
        except (BarnabasError, OSError) as error:
            logger.error("The snapshot of %s cannot be restored: %s", exchange.address, error)
            is_full = isinstance(error, NoRoomError) or getattr(error, "errno", None) == errno.ENOSPC
            status = HTTPStatus.INSUFFICIENT_STORAGE if is_full else HTTPStatus.INTERNAL_SERVER_ERROR
            return json_response("restore", str(error), status=status)
        return json_response("restore", fields={"last_zxid": zxid})

    async def _metrics(self, request: HttpRequest, _exchange: _Exchange) -> AdminResponse:
        if request.path != "/metrics":
            raise BadRequestError(HTTPStatus.NOT_FOUND, "there is no such page")
        if request.method != "GET":
            raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is offered")
        return metrics_page(self._administered.view())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: _Handler) -> None:
        self._open_connections += 1
        exchange = _Exchange(reader, writer, self._settings["admin.idleTimeout"] / 1000)
        try:
            if self._open_connections > _MAX_CONNECTIONS:
                busy = BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
                await exchange.send(encode_admin_response(busy.response))
            else:
                await _answer(exchange, handler)
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


async def _answer(exchange: _Exchange, handler: _Handler) -> None:
    is_post = False
    try:
        request = await exchange.head()
        is_post = request.method == "POST"
        answer = await handler(request, exchange)
    except BadRequestError as error:
        answer = error.response
    if answer is not None:
        await exchange.send(encode_admin_response(answer))
        if is_post:
            await exchange.linger()
