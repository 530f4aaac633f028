"""The connections of clients: which are accepted, and which are there.

In ZooKeeper: the part of NIOServerCnxnFactory that counts connections, and its
ConnectionExpirerThread for those without a session.
"""

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, cast

from barnabas.base.network import Connection
from barnabas.base.settings import Values
from barnabas.coordination.core.access import AccessRules
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.server.client_transport import ClientTransport
from barnabas.coordination.server.server_metrics import ServerMetrics
from barnabas.wire.jute.records import Id

if TYPE_CHECKING:
    from barnabas.net.tls_layer import TlsLink

__all__ = ["ClientConnections"]

logger = logging.getLogger(__name__)


def _identify(connection: "TlsLink", client: ServerConnection, rules: AccessRules) -> None:
    """Add the identity that the client's certificate proves, if it has shown one.

    Close if it cannot be named."""
    from barnabas.security.principals import subject_name

    certificate = connection.peer_certificate
    if not certificate:
        return
    name = subject_name(certificate)
    if name is None:
        logger.warning("Closing the connection of %s: its certificate's subject is unknown", client.address)
        connection.close()
        return
    logger.info("Authenticated Id %r for scheme x509", name)
    client.add_ids(rules.with_super(Id("x509", name)))


class ClientConnections:
    """See the module."""

    def __init__(self, settings: Values, metrics: ServerMetrics) -> None:
        self._max_of_address: int = settings["maxClientCnxns"]
        self._max_of_all: int = settings["maxCnxns"]
        self._patience_ms: int = settings["nio.sessionlessCnxnTimeout"]
        self._metrics = metrics
        # A dict, because the order of a set depends on memory addresses.
        self._peers: dict[ClientTransport, None] = {}
        self._by_address: Counter[str] = Counter()

    @property
    def all(self) -> list[ClientTransport]:
        """The connections that are open now, the oldest first."""
        return list(self._peers)

    def accept(
        self, peer: ClientTransport, connection: Connection, rules: AccessRules, *, is_secure: bool, is_closing: bool
    ) -> None:
        """Take a new connection, or close it.

        ``is_closing`` is whether the server takes no more."""
        peer.client.is_secure = is_secure
        if is_secure:
            secured = cast("TlsLink", connection)
            secured.on_secured = partial(_identify, secured, peer.client, rules)
        address, limit = peer.client.address, self._max_of_address
        self._peers[peer] = None
        self._by_address[address] += 1
        if limit > 0 and self._by_address[address] > limit:
            self._metrics.counters["connection_rejected"] += 1
            logger.warning("Too many connections from %s - max is %d (maxClientCnxns)", address, limit)
            connection.close()
        elif is_closing or (self._max_of_all and len(self._peers) > self._max_of_all):
            connection.close()

    def closed(self, peer: ClientTransport) -> None:
        """The connection is gone."""
        if peer not in self._peers:
            return
        del self._peers[peer]
        if not peer.is_closing:
            self._metrics.counters["connection_drop_count"] += 1
        address = peer.client.address
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def close_sessionless(self, now_ms: int) -> None:
        """Close those that have had no session for too long."""
        for peer in [each for each in self._peers if each.client.session is None]:
            if now_ms - peer.client.since_ms > self._patience_ms:
                self._metrics.counters["sessionless_connections_expired"] += 1
                peer.close()
