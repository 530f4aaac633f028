"""Any bytes to any port: an error or a closed connection at once, bounded memory, and
other clients are served.

The cases are those of a hostile or broken peer: lengths out of bounds cut at three places, requests
of unknown keys and versions, counts and lengths in bodies that nothing backs, floods of
connections, and plain noise.
"""

import random
import re
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from support.promptness import promptly, read_to_the_end
from support.raw import receive
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]
FRAME_SIZES = [-(2**31), -1, 0, 1, 3, 104_857_600, 104_857_601, 2**31 - 1]
COUNTS = [-2, -1, 1000, 20_000_000, 2**31 - 1]
MEMORY_KB = 16 * 1024
PATIENCE_S = 60


@dataclass
class Port:
    """Where to connect, and the process behind it."""

    host: str
    number: int
    pid: int

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.number), PATIENCE_S)

    def ends_at_once(self, connection: socket.socket) -> bytes:
        """What the server says before it closes, which it must do within a second."""
        with promptly(self.pid, "closing the connection"):
            return read_to_the_end(connection)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """One broker and its coordination server, shared by the module's tests: it must
    survive them all."""
    directory: Path = tmp_path_factory.mktemp("hostile")
    with up(directory) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("healthy", b"warm-up")
        producer.flush(30)
        yield running


def port_of(address: str, pid: int) -> Port:
    host, _, number = address.partition(":")
    return Port(host, int(number), pid)


def resident_kb(pid: int) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.fixture(params=["broker", "coordination"])
def target(cluster: Up, request: pytest.FixtureRequest):
    """A port with the process behind it.

    Afterwards it must serve a healthy client and hold little more memory."""
    if request.param == "broker":
        address, pid = cluster.bootstrap, cluster.pids["0"]
    else:
        address, pid = cluster.zookeeper, cluster.pids["zookeeper"]
    before = resident_kb(pid)
    yield port_of(address, pid)
    if request.param == "broker":
        delivered = []
        producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 60_000, "log_level": 0})
        producer.produce("healthy", b"still", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(70)
        assert delivered == [None]
    else:
        client = KazooClient(address)
        client.start(60)
        assert "brokers" in client.get_children("/")
        client.stop()
        client.close()
    eventually(lambda: resident_kb(pid) - before < MEMORY_KB, timeout_s=60, what="memory comes back")


@pytest.mark.parametrize("size", FRAME_SIZES)
@pytest.mark.parametrize("cut", [0, 2, 40])
def test_a_frame_length_that_lies_is_survived(target: Port, size: int, cut: int) -> None:
    """Out of bounds: closed at once.

    In bounds but cut short: held in little memory until the peer goes away."""
    with target.connect() as connection:
        connection.sendall(struct.pack(">i", size) + bytes(cut))
        if size < 0 or size > 104_857_600 or (0 < size <= cut and size < 8):
            target.ends_at_once(connection)
        else:
            connection.shutdown(socket.SHUT_WR)
            target.ends_at_once(connection)


def kafka_frame(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", key, version, 7, 4) + b"evil" + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


@pytest.fixture
def broker(cluster: Up) -> Port:
    """The broker's port."""
    return port_of(cluster.bootstrap, cluster.pids["0"])


@pytest.mark.parametrize("key", [-1, 92, 999, 32767, *range(75)])
@pytest.mark.parametrize("version", [-1, 99, 32767])
def test_an_unknown_key_or_version_ends_the_connection_or_is_answered(broker: Port, key: int, version: int) -> None:
    """ApiVersions is answered with what there is (KIP-511); everything else is closed."""
    with broker.connect() as connection:
        connection.sendall(kafka_frame(key, version, bytes(16)))
        connection.shutdown(socket.SHUT_WR)
        said = broker.ends_at_once(connection)
    if key == 18:
        assert struct.unpack_from(">h", said, 8) == (35,)
    else:
        assert said == b""


def advertised(broker: Port) -> list[tuple[int, int, int]]:
    with broker.connect() as connection:
        connection.sendall(kafka_frame(18, 0, b""))
        (size,) = struct.unpack(">i", receive(connection, 4))
        body = receive(connection, size)
    (count,) = struct.unpack_from(">i", body, 6)
    return [struct.unpack_from(">hhh", body, 10 + 6 * n) for n in range(count)]


@pytest.mark.parametrize("filler", [b"\xff", b"\x7f", b"\x00", b"\x80", b"\x01"], ids=lambda b: b.hex())
def test_bodies_of_one_byte_repeated_are_survived_for_every_api_and_version(broker: Port, filler: bytes) -> None:
    """All-ones are counts of -1 and endless varints, 7f huge counts: for each the
    connection is closed or answered."""
    for key, low, high in advertised(broker):
        if key in (4, 5, 6, 7):
            continue  # the controller's own requests, which change leadership: tried as such below
        for version in range(low, high + 1):
            with broker.connect() as connection:
                connection.sendall(kafka_frame(key, version, filler * 64))
                connection.shutdown(socket.SHUT_WR)
                broker.ends_at_once(connection)


@pytest.mark.parametrize("count", COUNTS)
def test_a_count_that_nothing_backs_is_refused(broker: Port, count: int) -> None:
    """In Metadata, Produce and Fetch a topic count of any size costs no memory."""
    bodies = [
        (3, 1, struct.pack(">i", count)),
        (0, 3, struct.pack(">hhii", -1, 1, 1000, count)),
        (1, 4, struct.pack(">iiiibi", -1, 100, 1, 1000, 0, count)),
    ]
    for key, version, body in bodies:
        with broker.connect() as connection:
            connection.sendall(kafka_frame(key, version, body))
            connection.shutdown(socket.SHUT_WR)
            broker.ends_at_once(connection)


def test_a_batch_that_lies_about_its_length_is_refused_and_the_connection_lives(broker: Port) -> None:
    """CORRUPT_MESSAGE or INVALID_RECORD for the partition, and a next request is answered."""
    batch = struct.pack(">qiibIhiqqqhii", 0, 2**31 - 1, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) + b"x" * 20
    topic = struct.pack(">h", 7) + b"healthy" + struct.pack(">iii", 1, 0, len(batch)) + batch
    body = struct.pack(">hhii", -1, 1, 1000, 1) + topic
    with broker.connect() as connection:
        connection.sendall(kafka_frame(0, 3, body))
        (size,) = struct.unpack(">i", receive(connection, 4))
        answer = receive(connection, size)
        (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + 7 + 4 + 4)
        assert code in (2, 87)
        connection.sendall(kafka_frame(18, 0, b""))
        assert len(receive(connection, 4)) == 4


def test_noise_is_survived(target: Port) -> None:
    """Random bytes of random lengths, 300 connections of them."""
    rng = random.Random(11)
    for _ in range(300):
        with target.connect() as connection:
            connection.sendall(rng.randbytes(rng.randrange(1, 2000)))
            connection.shutdown(socket.SHUT_WR)
            target.ends_at_once(connection)


def test_noise_in_well_framed_requests_is_survived(target: Port) -> None:
    """The length is right and the rest is random."""
    rng = random.Random(12)
    for _ in range(300):
        body = rng.randbytes(rng.randrange(0, 300))
        with target.connect() as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            connection.shutdown(socket.SHUT_WR)
            target.ends_at_once(connection)


def test_slow_peers_delay_no_other_client(target: Port) -> None:
    """Fifty connections that sent three bytes of a length, and one healthy client
    (the fixture's)."""
    slow = [target.connect() for _ in range(50)]
    for connection in slow:
        connection.sendall(b"\0\0\0")
    with target.connect() as connection:
        connection.sendall(struct.pack(">i", -1))
        target.ends_at_once(connection)
    for connection in slow:
        connection.close()
