"""Any bytes to a port with TLS and SASL, around the encryption and inside it: the connection
ends, others are served."""

import random
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.client import Admin
from barnabas.testing import ProcessCluster
from support.needs import needs
from support.waiting import eventually

pytestmark = [pytest.mark.fault, needs("openssl")]
MEMORY_KB = 24 * 1024
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """One broker, which must survive all tests of the module."""
    with ProcessCluster(security="SASL_SSL", users={"ann": "secret"}) as running:
        serves(running)
        yield running


def serves(cluster: ProcessCluster) -> None:
    """A client with the password is served."""
    with Admin(cluster.client_properties()) as admin:
        assert admin.list_topics() is not None


def connect(cluster: ProcessCluster) -> socket.socket:
    host, _, port = cluster.bootstrap_servers.partition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def connect_with_tls(cluster: ProcessCluster) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=cluster.client_properties()["ssl.ca.location"])
    return context.wrap_socket(connect(cluster), server_hostname="127.0.0.1")


def resident_kb(cluster: ProcessCluster) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{cluster.pids['0']}/status").read_text())[1])


def said_until_the_end(connection: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionError, ssl.SSLError):
        while piece := connection.recv(65536):
            said += piece
    return said


def hello(cluster: ProcessCluster) -> bytes:
    """The first bytes of a client's handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("seed", range(30))
def test_noise_in_place_of_a_handshake_ends_the_connection(cluster: ProcessCluster, seed: int) -> None:
    """Random bytes, a handshake that is cut or damaged, a plain request."""
    rng = random.Random(seed)
    greeting = bytearray(hello(cluster))
    greeting[rng.randrange(len(greeting))] ^= 1 << rng.randrange(8)
    kinds = (rng.randbytes(rng.randrange(1, 3000)), bytes(greeting), bytes(greeting[: rng.randrange(len(greeting))]))
    with connect(cluster) as connection:
        connection.sendall(kinds[seed % 3] + rng.randbytes(rng.choice((0, 100))))
        connection.shutdown(socket.SHUT_WR)
        assert b"SCRAM" not in said_until_the_end(connection)
    if seed % 10 == 9:
        serves(cluster)


@pytest.mark.parametrize("seed", range(30))
def test_noise_inside_tls_before_the_authentication_ends_the_connection(cluster: ProcessCluster, seed: int) -> None:
    """Lengths out of bounds, random frames, requests with random bodies, before and
    after SaslHandshake."""
    rng = random.Random(seed)
    shake = struct.pack(">hhihh", 17, seed % 2, 1, -1, 5) + b"PLAIN"
    body = struct.pack(">hhih", rng.choice((0, 3, 17, 18, 36, 999)), rng.randrange(4), 2, -1) + rng.randbytes(50)
    kinds = (
        struct.pack(">i", rng.choice((-1, 600_000, 2**31 - 1))) + bytes(10),
        struct.pack(">i", 40) + rng.randbytes(40),
        struct.pack(">i", len(body)) + body,
    )
    with connect_with_tls(cluster) as connection:
        if seed % 4 > 1:
            connection.sendall(struct.pack(">i", len(shake)) + shake)
        connection.sendall(kinds[seed % 3])
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        said_until_the_end(connection)
    if seed % 10 == 9:
        serves(cluster)


def test_connections_that_never_finish_a_handshake_cost_little(cluster: ProcessCluster) -> None:
    """A hundred that are silent, and a hundred that stop in the middle, while a client
    with the password is served."""
    before = resident_kb(cluster)
    idle = [connect(cluster) for _ in range(200)]
    greeting = hello(cluster)
    for connection in idle[100:]:
        connection.sendall(greeting[: len(greeting) // 2])
    serves(cluster)
    assert resident_kb(cluster) - before < MEMORY_KB
    for connection in idle:
        connection.close()
    serves(cluster)
    eventually(lambda: resident_kb(cluster) - before < MEMORY_KB, what="memory comes back")
