"""The edge of the admin server: commands and metrics over HTTP, off by default,
beside the server for clients.

Only the commands that take or restore a snapshot stream what has no bound.

In ZooKeeper: JettyAdminServer, and the Jetty server of PrometheusMetricsProvider.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Protocol

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings import Values
from barnabas.base.task_futures import future_of
from barnabas.base.tasks import Runner
from barnabas.coordination.admin.commands import answer_command, json_response, method_of
from barnabas.coordination.admin.metrics_page import metrics_page
from barnabas.coordination.admin.state_commands import StateCommands, state_command_of
from barnabas.coordination.server.access_settings import PROMETHEUS_PROVIDER
from barnabas.coordination.server.view import ServerView
from barnabas.coordination.storage.restoration import NoRoomError
from barnabas.coordination.storage.service import SnapshotService
from barnabas.net.event_loop import budget_of
from barnabas.net.http import BadRequestError, HttpRequest, HttpResponse, encode_head, is_expected_host, is_of_this_site
from barnabas.net.http_server import HttpExchange, HttpHandler, HttpServer, metrics_handler
from barnabas.net.prometheus import slow_place_lines

__all__ = ["AdminServer", "AdministeredServer"]

logger = logging.getLogger(__name__)


class AdministeredServer(Protocol):
    """What the admin server needs of the server for clients, on the same loop."""

    @property
    def snapshots(self) -> SnapshotService:
        """Writes snapshots."""
        ...

    @property
    def runner(self) -> Runner:
        """Runs what takes long."""
        ...

    def view(self) -> ServerView:
        """The present state."""
        ...

    async def restore(self, parts: AsyncIterator[bytes], size_bytes: int) -> int:
        """Replace the state by a snapshot of that size (0: unknown); its zxid.

        Raises `BarnabasError` and OSError."""
        ...


class AdminServer:
    """The admin server and the metrics page, as far as the settings switch them on."""

    def __init__(self, settings: Values, server: AdministeredServer) -> None:
        self._settings = settings
        self._administered = server
        self._state_commands = StateCommands(settings)
        self._servers: list[HttpServer] = []

    @property
    def ports(self) -> list[int]:
        """The ports that are open: the admin server's, then the metrics'."""
        return [server.port for server in self._servers]

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
                metrics_handler(self._metrics, settings["admin.idleTimeout"] / 1000),
            )

    async def close(self) -> None:
        """Close the ports."""
        for server in self._servers:
            await server.close()
        self._servers.clear()

    async def _listen(self, host: str, port: int, name: str, handler: HttpHandler) -> None:
        server = HttpServer(handler, self._settings["admin.idleTimeout"] / 1000)
        try:
            await server.open(host, port, name)
        except OSError as error:
            await self.close()
            raise ConfigError(f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror or error}") from error
        self._servers.append(server)

    async def _command(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
        self._require_this_site(request)
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
        if request.method != method_of(name):
            raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"{name[:100]} is a {method_of(name)} request")
        return await future_of(self._administered.runner, answer_command(view, name, request.parameters, root))

    def _require_this_site(self, request: HttpRequest) -> None:
        """Raises `BadRequestError` for what a page of another site makes a browser ask."""
        host = request.headers.get("host")  # a browser always sends it
        if host is not None and not is_expected_host(host, self._names()):
            raise BadRequestError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this is not a name of the admin server: ask for it by its address, or add the name to admin.allowedHosts",
            )
        if request.method == "POST" and not is_of_this_site(request):
            raise BadRequestError(HTTPStatus.FORBIDDEN, "a page of another site sends this request")

    def _names(self) -> set[str]:
        settings, quorum = self._settings, self._administered.view().state.quorum
        members = [] if quorum is None else quorum.configuration.servers.values()
        return {
            socket.gethostname(),
            settings["admin.serverAddress"],
            settings["clientPortAddress"],
            *settings["admin.allowedHosts"],
            *(each.host for each in members),
        }

    async def _snapshot(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
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

    async def _restore(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse:
        logger.warning("Restoring a snapshot that %s sends", exchange.address)
        try:
            zxid = await self._administered.restore(exchange.body(request), request.body_bytes)
        except (BarnabasError, OSError) as error:
            logger.error("The snapshot of %s cannot be restored: %s", exchange.address, error)
            is_full = isinstance(error, NoRoomError) or getattr(error, "errno", None) == errno.ENOSPC
            status = HTTPStatus.INSUFFICIENT_STORAGE if is_full else HTTPStatus.INTERNAL_SERVER_ERROR
            return json_response("restore", str(error), status=status)
        return json_response("restore", fields={"last_zxid": zxid})

    async def _metrics(self) -> HttpResponse:
        budget = budget_of(asyncio.get_running_loop())
        return metrics_page(self._administered.view(), () if budget is None else slow_place_lines(budget))
