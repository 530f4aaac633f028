"""Thousands of connections from one address: the broker's memory, its descriptors
and its other clients."""

import contextlib
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from support.servers import Up, up
from support.waiting import eventually

pytestmark = pytest.mark.fault
FIRST_BYTES = struct.pack(">i", 4 * 1024 * 1024)
UNLIMITED = ("--override", "max.connections.per.ip=1000000", "--override", "max.connections=1000000")


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """This process is all the clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 8000:
        pytest.skip(f"needs 8,000 descriptors, the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 8000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def connections(bootstrap: str, count: int, first_bytes: bytes = b"") -> Iterator[list[socket.socket]]:
    """Idle clients of 127.0.0.1; those that the broker does not accept yet wait in its backlog."""
    host, _, port = bootstrap.partition(":")
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            client = socket.create_connection((host, int(port)), 30)
            opened.append(client)
            if first_bytes:
                with contextlib.suppress(OSError):  # one above the cap is closed
                    client.sendall(first_bytes)
        yield opened
    finally:
        for client in opened:
            client.close()


def resident_mib(pid: int) -> float:
    """The memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def produce(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "acks": "all"}) as producer:
        producer.send(topic, "value")
        producer.flush(30)


def broker_log(cluster: Up) -> str:
    return (cluster.directory / "logs" / "broker-0.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_three_thousand_connections_that_announce_large_requests_cost_little_memory(tmp_path: Path) -> None:
    """Four bytes each, which announce 4 MiB: memory follows the bytes that came, and
    clients are served meanwhile."""
    with up(tmp_path, *UNLIMITED) as cluster:
        produce(cluster.bootstrap, "before")
        pid = cluster.pids["0"]
        before = resident_mib(pid)
        with connections(cluster.bootstrap, 3000, FIRST_BYTES):
            eventually(lambda: descriptors(pid) > 3000, what="all connections are accepted")
            produce(cluster.bootstrap, "meanwhile")
            assert resident_mib(pid) - before < 32


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_idle_connections_leave_a_broker_the_descriptors_for_its_files(tmp_path: Path) -> None:
    """At a limit of 1,024, 1,500 clients connect: partitions are created all the same, and
    later clients are served."""
    limit = 1024

    def lower_limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit // 2, limit))

    with (
        up(tmp_path, *UNLIMITED, preexec_fn=lower_limit) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap}) as admin,
    ):
        produce(cluster.bootstrap, "before")
        admin.list_topics()  # connects before the others
        with connections(cluster.bootstrap, 1500):
            eventually(lambda: "lack of descriptors" in broker_log(cluster), what="accepting stopped")
            admin.create_topic("meanwhile", partitions=20)
            assert descriptors(cluster.pids["0"]) > limit // 2  # the soft limit was raised
            assert descriptors(cluster.pids["0"]) < limit * 7 // 8
        produce(cluster.bootstrap, "meanwhile")
        assert broker_log(cluster).count("lack of descriptors") == 1
        assert "ERROR" not in broker_log(cluster)


def test_with_few_descriptors_one_address_leaves_connections_to_others(tmp_path: Path) -> None:
    """At a limit of 1,024, an address has at most 256 connections by default, and what
    comes above them is closed."""
    with up(tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))) as cluster:
        with connections(cluster.bootstrap, 1500) as clients:
            eventually(lambda: is_closed(clients[-1]), what="the last connection is closed")
            assert_another_address_is_served(cluster.bootstrap)
        assert "lack of descriptors" not in broker_log(cluster)


def is_closed(client: socket.socket) -> bool:
    try:
        client.setblocking(False)
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def assert_another_address_is_served(bootstrap: str) -> None:
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), 30, source_address=("127.0.0.2", 0)) as other:
        other.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert other.recv(8, socket.MSG_WAITALL)[4:] == struct.pack(">i", 7)


def test_one_address_gets_two_thousand_connections_and_other_addresses_are_served(tmp_path: Path) -> None:
    """The default cap of an address: what comes above it is closed, and no other client notices."""
    with up(tmp_path) as cluster:
        with connections(cluster.bootstrap, 2100) as clients:
            closed = 0
            for client in clients[-95:]:
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""
                closed += 1
            assert closed == 95
            assert_another_address_is_served(cluster.bootstrap)
        assert broker_log(cluster).count("Rejected connection") < 20
