"""The ports to which clients connect: one without TLS, which may move while the
server runs, and one with TLS.

In ZooKeeper: the part of NIOServerCnxnFactory and NettyServerCnxnFactory that binds ports.
"""

import logging
from collections.abc import Callable
from functools import partial

from barnabas.base.errors import ConfigError
from barnabas.base.files import Files
from barnabas.base.network import Accept, Connection, FrameHandler, Listener, Network, Standing
from barnabas.base.settings import Values
from barnabas.coordination.quorum.members import ANY_ADDRESS, HostAndPort
from barnabas.coordination.server.assembly import read_text
from barnabas.coordination.server.authentication import tls_options

__all__ = ["ClientPorts", "networks"]

logger = logging.getLogger(__name__)
_MAX_CONNECT_BYTES = 1024
_STRANGERS_BYTES = 8 * 1024 * 1024
"""What may wait for all connections without a session together."""
_STRANGERS_WAIT_MS = 1000


def networks(settings: Values) -> tuple[Network, Network]:
    """The machine's network for members of the ensemble, and for clients, whose waiting bytes are
    limited (maxWaitingBytes)."""
    from barnabas.net.sockets import MAX_UNSENT_BYTES, SocketNetwork
    from barnabas.net.waiting_bytes import WaitingBytes

    limit_bytes: int = settings["maxWaitingBytes"]
    clients = WaitingBytes(limit_bytes, "maxWaitingBytes", max_unsent_bytes=MAX_UNSENT_BYTES)
    strangers = WaitingBytes(
        min(_STRANGERS_BYTES, limit_bytes),
        "the limit without a session",
        max_unsent_bytes=MAX_UNSENT_BYTES,
        longest_wait_ms=_STRANGERS_WAIT_MS,
    )
    limits = {Standing.STRANGER: strangers, Standing.CLIENT: clients, Standing.MEMBER: clients}
    return SocketNetwork(), SocketNetwork(limits=limits)


class ClientPorts:
    """See the module."""

    def __init__(self, network: Network, accept: Callable[[bool, Connection], FrameHandler]) -> None:
        """``accept`` takes a connection, and whether it has TLS."""
        self._network = network
        self._accept = accept
        self._listener: Listener | None = None
        self._secure_listener: Listener | None = None
        self.endpoint: HostAndPort | None = None
        """Where clients connect without TLS, if they do."""

    @property
    def port(self) -> int:
        """The port without TLS; -1 if there is none."""
        return self._listener.port if self._listener is not None else -1

    @property
    def secure_port(self) -> int:
        """The port with TLS; -1 if there is none."""
        return self._secure_listener.port if self._secure_listener is not None else -1

    async def open(self, settings: Values, files: Files, endpoint: HostAndPort | None) -> None:
        """Listen at the endpoint, and where the settings say with TLS. Raises `ConfigError`."""
        self.endpoint = endpoint
        secure_port = settings["secureClientPort"]
        if secure_port is not None:
            from barnabas.net.ssl_contexts import server_context
            from barnabas.net.tls_layer import TlsLayer

            server = server_context(tls_options(settings, partial(read_text, files)))
            network = TlsLayer(self._network, server=server)
            accept, address = partial(self._accept, True), settings["secureClientPortAddress"]
            self._secure_listener = await _open(network, address, secure_port, accept, "secureClientPort")
        if endpoint is not None:
            self._listener = await self._open(endpoint.host, endpoint.port, "clientPort")

    async def move(self, endpoint: HostAndPort) -> None:
        """Listen without TLS at another address; connections that stand remain."""
        if self._listener is not None:
            await self._listener.close()
        try:
            self._listener = await self._open(endpoint.host, endpoint.port, "its server line")
        except ConfigError as error:
            self._listener = None
            logger.error("Clients cannot connect: %s", error)

    async def close(self) -> None:
        """Take no more connections."""
        for listener in (self._listener, self._secure_listener):
            if listener is not None:
                await listener.close()

    async def _open(self, host: str, port: int, name: str) -> Listener:
        return await _open(self._network, host, port, partial(self._accept, False), name)


async def _open(network: Network, host: str, port: int, accept: Accept, name: str) -> Listener:
    try:
        listener = await network.listen(host, port, accept, max_frame_bytes=_MAX_CONNECT_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror or error}") from error
    # In the words of Apache's server: test harnesses of several clients wait for this line.
    logger.info("binding to port %s:%d", host or ANY_ADDRESS, listener.port)
    return listener
