"""A connection that has ended is freed by its reference counts: what was frozen while it was
open would be kept for good."""

import gc
import socket
import struct
from collections import Counter
from collections.abc import Callable

from barnabas.testing import Cluster
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from support.raw import ask
from support.waiting import eventually

_CONNECT = struct.pack(">iqiqi", 0, 0, 5000, 0, 16) + bytes(16)


def word(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(b"srvr")
        assert connection.recv(10)


def session(port: int, *, closes: bool = True) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(struct.pack(">i", len(_CONNECT)) + _CONNECT)
        assert connection.recv(100)
        if closes:
            connection.sendall(struct.pack(">iii", 8, 1, -11))
            assert connection.recv(100)


def test_connections_of_every_kind_leave_nothing_for_the_collection_of_garbage() -> None:
    """Of both servers: closed by the client or the server, after requests, and while one waits."""
    with Cluster(brokers=1) as cluster:
        keeper = int(cluster.zookeeper_connect.split("/")[0].rpartition(":")[2])
        broker = int(cluster.bootstrap_servers.rpartition(":")[2])

        def abandoned() -> None:
            with socket.create_connection(("127.0.0.1", broker), 30) as connection:
                connection.sendall(b"\0\0")

        kinds: dict[str, Callable[[], object]] = {
            "four-letter word": lambda: word(keeper),
            "session": lambda: session(keeper),
            "session whose connection breaks": lambda: session(keeper, closes=False),
            "request": lambda: ask(broker, ApiVersionsRequest(), 2),
            "abandoned": abandoned,
        }
        for connect in kinds.values():
            connect()  # what the first one leaves in caches
        gc.collect()
        gc.disable()
        before = open_connections()  # the servers' own
        try:
            for name, connect in kinds.items():
                for _ in range(5):
                    connect()
                eventually(lambda: open_connections() <= before, timeout_s=20, what=f"all are closed: {name}")
        finally:
            gc.enable()


def test_a_failed_handshake_leaves_nothing_for_the_collection_of_garbage() -> None:
    """Of whatever is not TLS, on a port that is for it."""
    with Cluster(brokers=1, security="SASL_SSL", users={"alice": "a secret of hers"}) as cluster:
        port = int(cluster.bootstrap_servers.rpartition(":")[2])

        def stranger() -> None:
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while connection.recv(100):
                    pass  # the alert, and the end

        stranger()
        gc.collect()
        gc.disable()
        try:
            before = open_connections()
            for _ in range(5):
                stranger()
            eventually(lambda: open_connections() <= before, timeout_s=20, what="all are closed")
        finally:
            gc.enable()


def open_connections() -> Counter[str]:
    """Which parts of connections that servers have accepted are still there."""
    kinds = ("ClientTransport", "ServerConnection", "ClientConnection", "_SocketConnection", "TlsLink")
    return Counter(name for found in gc.get_objects() if (name := type(found).__name__) in kinds)
