"""The REST proxy as a server: its ports, what requests work with, and its end.

In Confluent's proxy: KafkaRestApplication and KafkaRestMain.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from aiohttp import web

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.net.metrics_address import METRICS_ADDRESS
from barnabas.net.web_access import WebListener, read_web_access, web_tls
from barnabas.net.web_server import WebServer
from barnabas.rest.backends import Backends
from barnabas.rest.clients.schema_codecs import registry_requests
from barnabas.rest.core.settings import read_rest_settings
from barnabas.rest.http.consumers import add_consumers
from barnabas.rest.http.event_streams import add_event_streams
from barnabas.rest.http.exchange import answers_errors, has_backend
from barnabas.rest.http.records import add_version_2_produce, add_version_3_produce
from barnabas.rest.http.resources import add_version_2_resources, add_version_3_resources

__all__ = ["RestServer"]

logger = logging.getLogger("barnabas.rest")

_CHECK_S = 1.0


class RestServer:
    """One proxy, for the running event loop.

    ``texts`` are the properties of a kafka-rest.properties; ``read`` reads the properties files
    that they name. Raises `ConfigError` for what cannot be used."""

    def __init__(self, texts: Mapping[str, str], read: Callable[[str], Mapping[str, str]]) -> None:
        settings = self.settings = read_rest_settings(texts)
        propagates = settings["authentication.propagate"]
        self._access = None if propagates else read_web_access(settings.values, read)
        self._tls = web_tls(settings.values, settings.listeners)
        registry_requests(settings.registry, None)
        self._server: WebServer | None = None
        self._backends: Backends | None = None
        self.listeners: list[WebListener] = []
        """Where it listens, after `start`."""

    async def start(self) -> None:
        """Listen. Raises `ConfigError` and OSError."""
        for warning in self.settings.warnings:
            logger.warning(warning)
        # A login of a request's user is not there yet.
        checked = self.settings if self._access is not None else self.settings.of_user("user", "password")
        await asyncio.to_thread(_check_clients, checked.clients)
        backends = self._backends = Backends(self.settings, self._access)
        app = web.Application(middlewares=[answers_errors, has_backend(backends)])
        if self.settings["api.v3.enable"]:
            add_version_3_produce(app.router)
            add_event_streams(app.router)
            add_version_3_resources(app.router)
        if self.settings["api.v2.enable"]:
            add_version_2_resources(app.router)
            add_version_2_produce(app.router)
            add_consumers(app.router)
        server = self._server = WebServer(
            app, self.settings["server.connection.limit"], self.settings.seconds("idle.timeout.ms")
        )
        try:
            ports = server.bind(self.settings.listeners)
            await server.open_metrics(self.settings[METRICS_ADDRESS])
            await server.listen(self._tls)
        except BaseException:
            await self.close()
            raise
        for listener, port in zip(self.settings.listeners, ports, strict=True):
            self.listeners.append(listener._replace(port=port))
            logger.info("REST proxy listens on %s", self.listeners[-1])

    async def close(self) -> None:
        """End all requests, leave the groups, and wait for records under way."""
        backends, self._backends = self._backends, None
        if backends is None:
            return
        backends.end_streams()
        if self._server is not None:
            await self._server.close()
        await backends.close()


def _check_clients(clients: Mapping[str, Mapping[str, str]]) -> None:
    """Raise `ConfigError` for properties that a producer or a consumer does not take: else the
    first request would find them."""
    Consumer(clients["consumer"]).close(_CHECK_S)
    Producer(clients["producer"]).close(_CHECK_S)
