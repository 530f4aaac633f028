"""Peers that make a server hold bytes: requests that never come to their end,
answers that are not read.

What waits for all of them together has a limit, whatever their number, and others are served
meanwhile. Each attack offers at least twice what the server may hold, so a server without the limit
fails. Each test records the memory before, at its most, and in the end, and the answer times of a
usual client before and meanwhile.
"""

import contextlib
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from os import environ
from pathlib import Path
from typing import Self

import pytest

from barnabas.base.randomness import new_random
from barnabas.client import Admin
from barnabas.coordination.client.blocking import BlockingClient
from barnabas.coordination.client.operations import multi_create
from barnabas.net.sockets import MAX_UNSENT_BYTES, SocketNetwork
from barnabas.testing import ProcessCluster
from barnabas.wire.jute.frames import encode_connect_request, encode_request
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ConnectRequest, GetChildrenRequest
from barnabas.wire.kafka import frames
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.memory import Memory
from support.waiting import eventually

pytestmark = pytest.mark.fault
COUNT = int(environ.get("BARNABAS_CONNECTIONS", "0"))
"""How many attackers there are at least; each test has as many as it needs."""
WAIT_S = int(environ.get("BARNABAS_WAIT_S", "0"))
"""For how long the memory of the end is waited for, and the attackers stay."""
PRODUCE_HEAD = struct.pack(">hhih", 0, 9, 1, -1) + b"\0"
SASL_HANDSHAKE_HEAD = struct.pack(">hhih", 36, 2, 1, -1)
MIB = 1024 * 1024
LIMIT_MIB = 8
SETTINGS = {
    "queued.max.request.bytes": str(LIMIT_MIB * MIB),
    "socket.request.max.bytes": str(LIMIT_MIB * MIB),  # at most the other one
}
"""Of a broker: a small limit, so that few bytes are far more."""
CALLS = 50
"""Calls of a usual client by which its answer times are known, and during which a
server goes on with an attack."""
OVERHEAD_MIB = 64
"""Objects of connections and of the requests that are served at the moment, buffers, and what
the allocator rounds up."""


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """This process is all the clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8000)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Usual:
    """A usual client in a thread: its answer times."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._times: list[float] = []
        self._is_over = False
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            began = time.perf_counter()
            try:
                self._call()
            except Exception as error:
                self.errors.append(error)
            self._times.append(time.perf_counter() - began)
            time.sleep(0.005)  # a rate, not a wait

    def p99_ms(self) -> float:
        """Of the next calls."""
        times: list[float] = []
        self._times = times
        eventually(lambda: len(times) >= CALLS)
        return round(sorted(times)[len(times) * 99 // 100] * 1000, 1)


@contextlib.contextmanager
def peers(port: int, count: int, sent: Callable[[int], bytes]) -> Iterator[list[socket.socket]]:
    """Connections that send what they are to send, as far as the server takes it,
    and never read."""
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            peer = socket.socket()
            opened.append(peer)
            peer.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024
            )  # else the system holds what the server is to hold
            peer.settimeout(30)
            peer.connect(("127.0.0.1", port))
            peer.settimeout(0.05)
            with contextlib.suppress(OSError):
                peer.sendall(sent(number))
        yield opened
    finally:
        for peer in opened:
            peer.close()


def ended(opened: list[socket.socket]) -> int:
    """How many connections the server has closed, as far as that has come through: behind bytes
    that are not read it does not."""
    poll = select.poll()
    for peer in opened:
        poll.register(peer, select.POLLRDHUP)
    return len(poll.poll(0))


def unread_bytes(answer_bytes: int) -> int:
    """What a server without a limit for all would hold for each peer that reads none
    of many answers."""
    return MAX_UNSENT_BYTES + answer_bytes


def attack(
    pid: int,
    usual: Usual,
    port: int,
    count: int,
    sent: Callable[[int], bytes],
    each_bytes: int,
    limit_mib: float,
    record: Callable[..., None],
) -> None:
    """Do it, and compare the memory with the limit.

    ``each_bytes``: what the server would hold for each peer without a limit."""
    bound_mib = limit_mib + OVERHEAD_MIB
    count = max(count, COUNT)
    assert count * each_bytes >= 2 * bound_mib * MIB
    before_ms = usual.p99_ms()
    memory = Memory(pid)
    rss_mib = memory._before_mib
    with peers(port, count, sent) as opened:
        eventually(lambda: ended(opened) or memory.grown_mib > limit_mib / 2, what="the limit is reached")
        peak_mib = -1.0
        while memory.grown_mib > peak_mib:  # what a server without a limit would go on with
            peak_mib = memory.grown_mib
            during_ms = usual.p99_ms()
        time.sleep(WAIT_S)
    worst_mib = memory.grown_mib
    time.sleep(WAIT_S)
    eventually(lambda: memory.kept_mib < OVERHEAD_MIB + 8, timeout_s=300)
    record(
        "memory before, at most, in the end (MiB)",
        [round(rss_mib), round(rss_mib + worst_mib), round(rss_mib + memory.kept_mib)],
    )
    record("p99 before and meanwhile (ms)", [before_ms, during_ms])
    assert worst_mib < bound_mib
    assert not usual.errors


def test_strangers_with_parts_of_messages_hold_little_together(tmp_path: Path, record_property) -> None:
    """Each of them sends 400 KB of 500 before it authenticates."""
    users = {"ann": "secret"}
    with (
        ProcessCluster(security="SASL_PLAINTEXT", users=users, data_dir=tmp_path, settings=SETTINGS) as cluster,
        Admin(cluster.client_properties()) as admin,
        Usual(admin.list_topics) as usual,
    ):
        part = struct.pack(">i", 500_000) + SASL_HANDSHAKE_HEAD + b"x" * 400_000
        attack(cluster.pids["0"], usual, _port(cluster), 400, lambda _: part, 400_000, LIMIT_MIB, record_property)


def test_unfinished_produce_requests_hold_no_more_than_the_limit(tmp_path: Path, record_property) -> None:
    """Each of them sends 4 MB of 8."""
    part = struct.pack(">i", 8_000_000) + PRODUCE_HEAD + b"x" * 4_000_000
    with (
        ProcessCluster(data_dir=tmp_path, settings=SETTINGS) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        Usual(admin.list_topics) as usual,
    ):
        attack(cluster.pids["0"], usual, _port(cluster), 40, lambda _: part, 4_000_000, LIMIT_MIB, record_property)


def test_answers_that_are_not_read_hold_no_more_than_the_limit(tmp_path: Path, record_property) -> None:
    """Each of them asks for metadata of very many topics."""
    names = [MetadataRequestTopic(name=f"missing-{number}-{'x' * 200}") for number in range(4000)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    asked = b"".join(bytes(part) for part in frames.encode_request(request, 9, 1, "raw"))
    each_bytes = unread_bytes(sum(len(each.name or "") for each in names))
    with (
        ProcessCluster(data_dir=tmp_path, settings=SETTINGS) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        Usual(admin.list_topics) as usual,
    ):
        attack(
            cluster.pids["0"],
            usual,
            _port(cluster),
            100,
            lambda _: asked * 8,
            each_bytes,
            LIMIT_MIB,
            record_property,
        )


def test_lists_of_children_that_are_not_read_hold_no_more_than_the_limit(tmp_path: Path, record_property) -> None:
    """Each reader asks the coordination server for a list of two megabytes, eight
    times; its limit is 64 MiB."""
    request = encode_request(1, OpCode.GET_CHILDREN, GetChildrenRequest("/wide", False))
    asked = encode_connect_request(ConnectRequest(0, 0, 30_000, 0, bytes(16))) + 8 * request
    with (
        ProcessCluster(data_dir=tmp_path) as cluster,
        BlockingClient(SocketNetwork, cluster.zookeeper_connect, rng=new_random()) as client,
    ):
        client.start(30_000)
        client.call(lambda session: session.create("/wide", b""))
        for start in range(0, 10_000, 500):
            parts = [multi_create(f"/wide/{number:05}{'x' * 200}", b"") for number in range(start, start + 500)]
            client.call(lambda session, parts=parts: session.multi(parts))
        with Usual(lambda: client.call(lambda session: session.get("/wide"))) as usual:
            pid, port = cluster.pids["zookeeper"], int(cluster.zookeeper_connect.rpartition(":")[2])
            attack(pid, usual, port, 90, lambda _: bytes(asked), unread_bytes(10_000 * 205), 64, record_property)


def _port(cluster: ProcessCluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])
