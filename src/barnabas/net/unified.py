"""One port for connections with TLS and, where it is allowed, without: the members of an
ensemble among each other.

A TLS connection begins with the byte 0x16, which no message of the members does, so the first
byte is looked at and left in the socket. What strangers can make a server hold is bounded:
until its handshake is over a connection has a few seconds, and of more than 64 such
connections the oldest ends.

In ZooKeeper: UnifiedServerSocket, and ZKTrustManager for the check of hosts.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from barnabas.base.errors import ConfigError
from barnabas.base.network import Accept, Connection, Listener
from barnabas.net.sockets import SocketNetwork
from barnabas.net.ssl_contexts import SslSettings, client_context, server_context
from barnabas.net.tls import TlsConnection, TlsNetwork

__all__ = ["TlsChoices", "UnifiedNetwork", "certificate_names", "quorum_network"]

logger = logging.getLogger(__name__)
_TLS_HANDSHAKE = b"\x16"
_MAX_HANDSHAKES = 64
_SHUTDOWN_TIMEOUT_S = 2


def certificate_names(certificate: Mapping[str, object], host: str) -> bool:
    """Whether a certificate is for a host, an address or a name: by its subjectAltName, or its
    common name if it has none."""
    names = certificate.get("subjectAltName") or ()
    assert isinstance(names, tuple)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        found = [name for kind, name in names if kind == "DNS"]
        if not any(kind in ("DNS", "IP Address") for kind, _ in names):
            found = _common_names(certificate)
        return any(_matches(name.lower().rstrip("."), host.lower().rstrip(".")) for name in found)
    return any(kind == "IP Address" and _is_address(name, address) for kind, name in names)


def _is_address(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_address(text.strip()) == address
    except ValueError:
        return False


def _common_names(certificate: Mapping[str, object]) -> list[str]:
    subject = certificate.get("subject") or ()
    assert isinstance(subject, tuple)
    return [value for names in subject for name, value in names if name == "commonName"]


def _matches(pattern: str, host: str) -> bool:
    if not pattern.startswith("*."):
        return pattern == host
    first, _, rest = host.partition(".")
    return bool(first) and rest == pattern[2:] and "." in rest


class TlsChoices(Protocol):
    """What the members of an ensemble ask of TLS, and where their keys are."""

    @property
    def tls(self) -> SslSettings:
        """Its ``verifies_host`` is not used: what follows says more."""
        ...

    @property
    def connects_with_tls(self) -> bool: ...
    @property
    def accepts_plain(self) -> bool: ...
    @property
    def verifies_server_hosts(self) -> bool: ...
    @property
    def verifies_client_hosts(self) -> bool: ...
    @property
    def handshake_timeout_ms(self) -> int: ...


def quorum_network(choices: TlsChoices, hosts: Callable[[], Iterable[str]]) -> "UnifiedNetwork":
    """The network of a member of an ensemble, whose members have ``hosts``.

    Raises `ConfigError`."""
    server, client = server_context(choices.tls), None
    if choices.connects_with_tls:
        if choices.tls.trust_store is None:
            name = choices.tls.name("ssl.truststore.location")
            raise ConfigError(f"{name} must name the certificates with which servers are verified")
        client = client_context(replace(choices.tls, verifies_host=choices.verifies_server_hosts))
    return UnifiedNetwork(
        server,
        client,
        accepts_plain=choices.accepts_plain,
        handshake_timeout_ms=choices.handshake_timeout_ms,
        hosts=hosts if choices.verifies_client_hosts else None,
    )


class _UnifiedListener(Listener):
    def __init__(self, listener: Listener, handshakes: dict[asyncio.Task[None], object], port_id: object) -> None:
        self._listener = listener
        self._handshakes = handshakes
        self._port_id = port_id

    @property
    def port(self) -> int:
        return self._listener.port

    async def close(self) -> None:
        await self._listener.close()
        tasks = [task for task, port_id in self._handshakes.items() if port_id is self._port_id]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class UnifiedNetwork:
    """TCP with TLS, or with both on one port, for the running event loop."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext | None,
        *,
        accepts_plain: bool,
        handshake_timeout_ms: int,
        hosts: Callable[[], Iterable[str]] | None,
    ) -> None:
        """Without ``client``, connections are made without TLS.

        ``hosts`` returns the hosts of the members: a certificate that a connecting server shows
        must be for one of them, or for the address that it connects from. None for no such check.
        """
        self._server = server
        self._plain = SocketNetwork()
        self._tls = TlsNetwork(client=client) if client is not None else None
        self._accepts_plain = accepts_plain
        self._handshake_timeout_s = handshake_timeout_ms / 1000
        self._hosts = hosts
        self._handshakes: dict[asyncio.Task[None], object] = {}
        """With the ports that they came to."""

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> Listener:
        """Like `Network.listen`.

        A close ends the handshakes: nothing else knows of their connections."""
        port_id = object()

        def opened(connected: socket.socket) -> None:
            ours = contextlib.ExitStack()
            ours.callback(connected.close)

            def ended(done: asyncio.Task[None]) -> None:
                self._handshakes.pop(done, None)
                ours.close()  # a task that is cancelled before it begins closes nothing

            task = asyncio.get_running_loop().create_task(self._admit(connected, ours, accept, max_frame_bytes))
            self._handshakes[task] = port_id
            task.add_done_callback(ended)
            if len(self._handshakes) > _MAX_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()

        return _UnifiedListener(await self._plain.listen_for_sockets(host, port, opened), self._handshakes, port_id)

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        """Like `Network.connect`."""
        network = self._tls or self._plain
        return await network.connect(host, port, accept, max_frame_bytes=max_frame_bytes, timeout_ms=timeout_ms)

    async def _admit(
        self, connected: socket.socket, ours: contextlib.ExitStack, accept: Accept, max_frame_bytes: int
    ) -> None:
        """Find out what a connection is. ``ours`` closes it until somebody else does."""
        peer: object = "a peer that is gone"
        try:
            peer = connected.getpeername()[:2]
            async with asyncio.timeout(self._handshake_timeout_s):
                if self._accepts_plain and not await self._begins_handshake(connected):
                    self._plain.adopt(connected, accept, max_frame_bytes)
                    ours.pop_all()
                    return
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ours.pop_all()
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: TlsConnection(accept, max_frame_bytes, self._is_expected),
                    connected,
                    ssl=self._server,
                    ssl_handshake_timeout=self._handshake_timeout_s,
                    ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
                )
        except TimeoutError:
            logger.warning("Closing the connection of %s: no TLS handshake in time", peer)
        except OSError as error:
            logger.warning("Closing the connection of %s: %s", peer, error)

    async def _begins_handshake(self, connected: socket.socket) -> bool:
        """Look at the first byte, which stays in the socket."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(connected.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(connected.fileno())
        first = connected.recv(1, socket.MSG_PEEK)
        if not first:
            raise ConnectionResetError("closed before its first byte")
        return first == _TLS_HANDSHAKE

    def _is_expected(self, connection: TlsConnection) -> bool:
        """Whether the certificate belongs to a member's host."""
        certificate = connection.peer_certificate
        if self._hosts is None or not certificate:
            return True
        address = connection.peer[0]
        if certificate_names(certificate, address) or any(
            certificate_names(certificate, host) for host in self._hosts()
        ):
            return True
        logger.warning(
            "Closing the connection of %s: its certificate is neither for this address nor for the host of a server line",
            connection.peer,
        )
        return False
