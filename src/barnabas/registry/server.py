"""`RegistryServer`: one instance of the schema registry, from its settings to its last answer.

It takes its addresses, reads the topic, takes part in the election, and answers requests then: so
that a request never finds half of the schemas, or no leader.

In Confluent's registry: `SchemaRegistryMain`.
"""

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Self

from barnabas.base.errors import BarnabasError
from barnabas.base.network import ALL_ADDRESSES
from barnabas.base.settings import Values
from barnabas.net.metrics_address import METRICS_ADDRESS
from barnabas.net.ssl_contexts import SslSettings, client_context
from barnabas.net.web_access import web_tls
from barnabas.registry.core.registry import Registry
from barnabas.registry.http.rights import AclRights
from barnabas.registry.http.service import HttpService
from barnabas.registry.settings import ServerSettings, parse_server_settings
from barnabas.registry.storage.cluster_acls import ClusterAcls
from barnabas.registry.storage.identity import RegistryIdentity
from barnabas.registry.storage.service import SchemaStore
from barnabas.security.key_stores import KeyStore

__all__ = ["RegistryServer"]

logger = logging.getLogger(__name__)


def _leader_tls(values: Values) -> ssl.SSLContext:
    """For connections to the leader: it is verified, and shown the certificate of https here."""
    key = values["ssl.keystore.location"], values["ssl.keystore.password"], values["ssl.keystore.type"]
    trusted = values["leader.ssl.truststore.location"], "", ""
    if not trusted[0]:
        trusted = values["ssl.truststore.location"], values["ssl.truststore.password"], values["ssl.truststore.type"]
    return client_context(
        SslSettings(
            lambda name: name,
            key_store=KeyStore(*key, values["ssl.key.password"]) if key[0] else None,
            trust_store=KeyStore(*trusted) if trusted[0] else None,
            client_auth="none",
            protocols=tuple(values["ssl.enabled.protocols"]),
        )
    )


class RegistryServer:
    """An instance. Made and used on one event loop."""

    def __init__(self, texts: Mapping[str, str], read: Callable[[str], Mapping[str, str]]) -> None:
        """``texts`` are the properties of the file; ``read`` reads another properties file.

        Raises `ConfigError`."""
        self._settings: ServerSettings = parse_server_settings(texts, read)
        for warning in self._settings.warnings:
            logger.warning("%s", warning)
        self._tls = web_tls(self._settings.values, self._settings.listeners)
        self._leader_tls = _leader_tls(self._settings.values)
        self._store: SchemaStore | None = None
        self._http: HttpService | None = None
        self._acls: ClusterAcls | None = None
        self.identity: RegistryIdentity | None = None
        """Where the other instances reach this one, once it listens."""
        self.ports: tuple[int, ...] = ()
        """The port of each listener."""

    @property
    def store(self) -> SchemaStore:
        """The schemas and who leads; only between `start` and `close`."""
        assert self._store is not None, "the server was not started"
        return self._store

    @property
    def url(self) -> str:
        """The address of the first listener, for clients on this machine."""
        listener = self._settings.listeners[0]
        host = "127.0.0.1" if listener.host in ALL_ADDRESSES else listener.host
        return f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{self.ports[0]}"

    async def start(self) -> None:
        """Read the topic, listen, and join the group. Raises `BarnabasError`."""
        settings = self._settings
        try:
            self._store = store = SchemaStore(settings.store, Registry(settings.registry))
            rights = None
            if settings.acl_super_users is not None:
                self._acls = acls = ClusterAcls(
                    settings.store.bootstrap_servers, settings.store.properties, settings.acl_super_users
                )
                await acls.start()
                rights = AclRights(lambda: acls.authorizer, store.registry)
            self._http = http = HttpService(store, settings.access, settings.http, self._leader_tls, rights)
            try:
                self.ports = tuple(http.bind(settings.listeners))
            except OSError as error:
                where = ", ".join(map(str, settings.listeners))
                raise BarnabasError(f"listeners={where}: {error.strerror or error}; choose another address") from None
            self.identity = self._identity()
            await store.start()
            await store.join(self.identity)
            await http.open_metrics(settings.values[METRICS_ADDRESS])
            await http.listen(self._tls)
        except BaseException:
            await self.close()
            raise
        logger.info("the registry listens on %s and is %s for other instances", self.url, self.identity.url)

    def _identity(self) -> RegistryIdentity:
        settings = self._settings
        scheme = settings.inter_instance_scheme
        listener, port = next(
            (listener, port)
            for listener, port in zip(settings.listeners, self.ports, strict=True)
            if listener.scheme == scheme
        )
        host = settings.host_name or (socket.getfqdn() if listener.host in ALL_ADDRESSES else listener.host)
        return RegistryIdentity(host, settings.host_port or port, settings.store.is_eligible, scheme)

    async def wait_failed(self) -> BarnabasError:
        """Wait until the server cannot go on; returns why."""
        await self.store.failed.wait()
        assert self.store.failure is not None
        return self.store.failure

    @property
    def has_failed(self) -> bool:
        """Whether the server could not go on."""
        return self._store is not None and self._store.failure is not None

    async def close(self) -> None:
        """Answer what is under way, leave the group, and end."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        if self._acls is not None:
            await self._acls.close()
        if self._store is not None:
            await self._store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
