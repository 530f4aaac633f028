"""Frames over real sockets on the loopback: what every network promises."""

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import socket
import struct
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from barnabas.base.files import File, FileSlice, OsFiles
from barnabas.base.network import Connection, Network, Part, Standing, split_frames
from barnabas.net import cold_reads, descriptors, listeners, socket_sending
from barnabas.net.connection_states import OVER_BUDGET, PAUSED, UNSENT
from barnabas.net.receive_buffers import BUFFER_BYTES
from barnabas.net.sockets import SocketNetwork
from barnabas.net.waiting_bytes import WaitingBytes
from support.network_contract import HOST, LIMIT, NetworkContract, Recorder, framed, some_bytes


class TestSockets(NetworkContract):
    """The machine's TCP network keeps the contract."""

    drops_frames = True

    def run(self, test: Callable[[Network], Awaitable[None]]) -> None:
        asyncio.run(test(SocketNetwork()))


@contextlib.asynccontextmanager
async def listening(echo: bool = False):
    """A listener's port, and the handlers of its connections."""
    handlers: list[Recorder] = []

    def accept(connection: Connection) -> Recorder:
        handlers.append(Recorder(connection, echo=echo))
        return handlers[-1]

    listener = await SocketNetwork().listen(HOST, 0, accept, max_frame_bytes=LIMIT)
    try:
        yield listener.port, handlers
    finally:
        for handler in handlers:
            handler.connection.close()
        await listener.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is watched has no event
            await asyncio.sleep(0.001)


class Sipping(Recorder):
    """A handler that takes one frame at a time, and pauses after each."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.offered = 0

    def take_frames(self, frames: list[bytes]) -> int:
        self.offered = max(self.offered, len(frames))
        self.frames += frames[:1]
        self.connection.pause()
        asyncio.get_running_loop().call_soon(self.connection.resume)
        self.changed.set()
        return 1


def test_frames_that_a_handler_leaves_are_not_all_cut_again_and_again() -> None:
    """The work for a held client does not grow with the square of what it has sent."""

    async def run() -> None:
        handlers: list[Sipping] = []

        def accept(connection: Connection) -> Sipping:
            handlers.append(Sipping(connection))
            return handlers[-1]

        listener = await SocketNetwork().listen(HOST, 0, accept, max_frame_bytes=LIMIT)
        client = socket.create_connection((HOST, listener.port))
        client.sendall(framed(b"12") * 2000)
        await until(lambda: handlers and len(handlers[0].frames) == 2000)
        assert handlers[0].frames == [b"12"] * 2000
        assert 1 < handlers[0].offered <= 64
        handlers[0].connection.close()
        client.close()
        await listener.close()

    asyncio.run(run())


class Busy(Recorder):
    """A handler that works for a millisecond on each frame, and notes the turns of the loop."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.turns: list[int] = []
        self.turn = 0
        self._count()

    def _count(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._count)

    def frame(self, data: memoryview) -> None:
        end_s = time.perf_counter() + 0.001
        while time.perf_counter() < end_s:
            pass
        self.turns.append(self.turn)
        super().frame(data)


def test_frames_that_have_come_together_leave_others_their_turn() -> None:
    """After some milliseconds; then the rest follows in its order."""

    async def run() -> None:
        handlers: list[Busy] = []

        def accept(connection: Connection) -> Busy:
            handlers.append(Busy(connection))
            return handlers[-1]

        listener = await SocketNetwork().listen(HOST, 0, accept, max_frame_bytes=LIMIT)
        client = socket.create_connection((HOST, listener.port))
        sent = [b"%d" % number for number in range(60)]
        client.sendall(b"".join(map(framed, sent)))
        await until(lambda: handlers and len(handlers[0].frames) == len(sent))
        assert handlers[0].frames == sent
        in_a_turn = Counter(handlers[0].turns)
        assert max(in_a_turn.values()) <= 6
        handlers[0].connection.close()
        client.close()
        await listener.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sent", "allowed"), [(b"", 2048), (b"x", 2048), (b"x" * 10_000, 24 * 1024), (b"x" * 100_000, 900 * 1024)]
)
def test_memory_of_a_frame_follows_the_bytes_that_came_not_its_length(sent: bytes, allowed: int) -> None:
    """Many connections announce 4 MiB each and send little: each costs at most eight
    times what it sent."""
    count = 20 if len(sent) > 50_000 else 200

    async def run() -> None:
        async with listening() as (port, handlers):
            clients = [socket.create_connection((HOST, port)) for _ in range(count)]
            await until(lambda: len(handlers) == count)
            gc.collect()
            tracemalloc.start()
            try:
                for client in clients:
                    client.setblocking(True)
                    client.sendall(struct.pack(">i", 4 * 1024 * 1024) + sent)
                wanted = 4 + len(sent)
                await until(lambda: all(held_bytes(handler.connection) >= wanted - 4 for handler in handlers))
                used, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert used < count * allowed
            for client in clients:
                client.close()

    asyncio.run(run())


def test_a_response_of_thousands_of_small_parts_lets_others_have_their_turn(tmp_path: Path) -> None:
    """However much room the socket has, some calls are made at a time; the bytes
    stay in their order."""

    async def run() -> None:
        path = str(tmp_path / "records")
        file = OsFiles().open(path, create=True)
        file.append([bytes(range(256))])
        parts: list[Part] = []
        for number in range(10_000):
            parts += [FileSlice(file, number % 250, 5), b"ab"]
        async with listening() as (port, handlers):
            with socket.create_connection((HOST, port)) as client:
                await until(lambda: handlers)
                handlers[0].connection.send(parts)
                assert handlers[0].connection.unsent_bytes > 35_000
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                received = b""
                while len(received) < 70_000:
                    received += await loop.sock_recv(client, 1 << 16)
        expected = (part.read() if isinstance(part, FileSlice) else bytes(part) for part in parts)
        assert received == b"".join(expected)

    asyncio.run(run())


def test_a_large_range_of_a_file_lets_others_have_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much room the socket has: a cold disk brings a mebibyte at a time, and a turn ends
    after some milliseconds."""
    asked: list[int] = []
    real = os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda out, file, at, size: asked.append(size) or real(out, file, at, size))

    async def run() -> None:
        path = str(tmp_path / "records")
        file = OsFiles().open(path, create=True)
        content = os.urandom(1 << 20) * 6
        file.append([content])
        async with listening() as (port, handlers):
            with socket.create_connection((HOST, port)) as client:
                await until(lambda: handlers)
                ticks = itertools.count()
                monkeypatch.setattr(socket_sending, "_SENDING_S", 2)
                monkeypatch.setattr(socket_sending.time, "perf_counter", lambda: next(ticks))
                handlers[0].connection.send([FileSlice(file, 0, len(content))])
                monkeypatch.undo()
                assert max(asked) == 1 << 20
                assert handlers[0].connection.unsent_bytes >= 3 << 20
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                received = b""
                while len(received) < len(content):
                    received += await loop.sock_recv(client, 1 << 20)
        assert received == content

    asyncio.run(run())


def dropped_from_memory(path: Path, size: int) -> File:
    """A file of random bytes that a system which can do so has dropped from its page cache."""
    path.write_bytes(os.urandom(size))
    file = OsFiles().open(str(path))
    file.sync()
    descriptor = file.fileno()
    assert descriptor is not None
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return file


def test_a_range_of_a_file_that_is_read_ahead_is_in_memory(tmp_path: Path) -> None:
    """Wherever it begins and ends."""
    file = dropped_from_memory(tmp_path / "cold", 3_000_001)
    descriptor = file.fileno()
    assert descriptor is not None
    for offset, size in ((1, 1), (100_000, 400_000), (0, 3_000_001), (3_000_000, 1)):
        cold_reads.read_into_memory(FileSlice(file, offset, size))
        assert cold_reads.is_in_memory(descriptor, offset, size)


def test_while_a_file_is_read_from_disk_others_are_served_and_then_it_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits for the disk, the event loop does not; what was sent behind
    the file stays behind it."""
    file = dropped_from_memory(tmp_path / "cold", 3 * 1024 * 1024)
    expected = file.read_at(100, 3_000_000)
    disk = threading.Event()
    asked: list[int] = []

    def wait_for_disk(piece: FileSlice) -> bool:
        asked.append(piece.size)
        return disk.wait(60)

    looks = iter([False, False])
    monkeypatch.setattr(
        socket_sending, "is_in_memory", lambda *_: next(looks)
    )  # later ranges are left to the thread unseen
    monkeypatch.setattr(socket_sending, "read_into_memory", wait_for_disk)

    async def run() -> None:
        async with listening(echo=True) as (port, handlers):
            readers: list[Recorder] = []

            def accept(connection: Connection) -> Recorder:
                readers.append(Recorder(connection))
                return readers[-1]

            network = SocketNetwork()
            for _ in range(3):
                await network.connect(HOST, port, accept, max_frame_bytes=LIMIT, timeout_ms=10_000)
            await until(lambda: len(handlers) == 3)
            cold, leaves = handlers[0].connection, handlers[2].connection
            slices = [struct.pack(">i", 3_000_005), FileSlice(file, 100, 3_000_000), b"after"]
            cold.send(slices)
            cold.send([framed(b"next")])
            leaves.send(slices)
            await until(lambda: len(asked) == 2)
            leaves.close()
            readers[1].connection.send([framed(b"hello")])
            await until(lambda: readers[1].frames)
            assert readers[1].frames == [b"hello"]
            assert not readers[0].frames
            disk.set()
            await until(lambda: len(readers[0].frames) == 2)
            assert readers[0].frames == [expected + b"after", b"next"]
            assert sorted(asked) == [3_000_000 - (2 << 20), *([1 << 20] * 3)]
            for reader in readers:
                reader.connection.close()

    asyncio.run(run())


def test_small_ranges_of_files_that_are_not_in_memory_are_read_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands before them leaves at once, what comes behind them later; a file that ends
    early breaks the connection."""
    file = dropped_from_memory(tmp_path / "cold", 1000)
    expected = file.read_at(0, 1000)
    loop_thread = threading.get_ident()
    read_in: list[int] = []
    real = cold_reads.read_ranges

    def read(pieces: Sequence[FileSlice]) -> list[bytes]:
        read_in.append(threading.get_ident())
        return real(pieces)

    monkeypatch.setattr(socket_sending, "read_at_once", lambda _: None)
    monkeypatch.setattr(socket_sending, "read_ranges", read)

    async def run() -> None:
        async with listening() as (port, handlers):
            with socket.create_connection((HOST, port)) as client:
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await until(lambda: handlers)
                sender = handlers[0].connection
                sender.send([b"a", FileSlice(file, 1, 10), b"b", FileSlice(file, 500, 20), b"c"])
                sender.send([FileSlice(file, 990, 10), b"d"])
                whole = b"a" + expected[1:11] + b"b" + expected[500:520] + b"c" + expected[990:] + b"d"
                received = b""
                while len(received) < len(whole):
                    received += await loop.sock_recv(client, 1 << 16)
                assert received == whole
                assert loop_thread not in read_in
                assert sender.unsent_bytes == 0
                sender.send([b"e", FileSlice(file, 999, 2)])
                await until(lambda: handlers[0].ended)
                assert isinstance(handlers[0].ended[0], OSError)

    asyncio.run(run())


class Answering(Recorder):
    """Answers each frame but those that begin with ``-``."""

    def frame(self, data: memoryview) -> None:
        self.frames.append(bytes(data))
        if data[0] != ord("-"):
            self.connection.send([struct.pack(">i", len(data)), data])


@pytest.mark.parametrize("ending", ["", "-no answer", "cut off"])
def test_answers_to_requests_that_arrived_together_leave_together(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Some at a time, and none waits for a frame that has no answer or has not come as a whole."""
    calls: list[int] = []
    real = socket.socket.sendmsg

    def sendmsg(self: socket.socket, buffers: list[bytes], *rest: object) -> int:
        calls.append(len(buffers))
        return real(self, buffers, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "sendmsg", sendmsg)
    requests = [b"%03d" % number for number in range(20)]
    data = b"".join(map(framed, requests))
    if ending:
        data += framed(ending.encode())[: None if ending[0] == "-" else -1]

    async def run() -> None:
        handlers: list[Answering] = []

        def accept(connection: Connection) -> Answering:
            handlers.append(Answering(connection))
            return handlers[-1]

        listener = await SocketNetwork().listen(HOST, 0, accept, max_frame_bytes=LIMIT)
        with socket.create_connection((HOST, listener.port)) as client:
            client.sendall(data)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            received = b""
            async with asyncio.timeout(60):
                while len(received) < 20 * 7:
                    received += await loop.sock_recv(client, 1 << 16)
            assert received == b"".join(map(framed, requests))
        handlers[0].connection.close()
        await listener.close()

    asyncio.run(run())
    assert len(calls) <= 4
    assert max(calls) <= 16


def held_bytes(connection: Connection) -> int:
    """How much of a frame has come."""
    return connection._filled if connection._frame is not None else len(connection._partial)  # type: ignore[attr-defined]


def test_a_large_frame_that_comes_in_pieces_of_any_size_is_whole() -> None:
    """From single bytes to hundreds of KiB: the frame passes through all ways in
    which its buffer grows."""

    async def run() -> None:
        random = Random(7)
        payloads = [some_bytes(size) for size in (70_000, 3_000_000, 5, 1_200_001)]
        data = memoryview(b"".join(map(framed, payloads)))
        async with listening() as (port, handlers):
            with socket.create_connection((HOST, port)) as client:
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                position = 0
                while position < len(data):
                    size = random.choice((1, 3, 100, 5_000, 60_000, 300_000))
                    await loop.sock_sendall(client, data[position : position + size])
                    position += size
                    await asyncio.sleep(0)
                await until(lambda: handlers and len(handlers[0].frames) == len(payloads))
                assert handlers[0].frames == payloads

    asyncio.run(run())


@pytest.mark.parametrize(
    ("before", "announced", "has_room"), [(2_000_000, 2_000_000, True), (500_000, 2_000_000, False)]
)
def test_a_connection_gets_room_at_once_for_a_frame_no_larger_than_one_it_has_sent(
    before: int, announced: int, has_room: bool
) -> None:
    """The buffer is as large as the announced frame only if a frame of this size has
    arrived whole."""

    async def run() -> None:
        async with listening() as (port, handlers):
            with socket.create_connection((HOST, port)) as client:
                loop = asyncio.get_running_loop()
                client.setblocking(False)
                await loop.sock_sendall(client, framed(bytes(before)))
                await until(lambda: handlers and len(handlers[0].frames) == 1)
                await loop.sock_sendall(client, struct.pack(">i", announced) + b"x")
                connection = handlers[0].connection
                await until(lambda: held_bytes(connection) == 1)
                assert (len(connection._frame) == announced) == has_room  # type: ignore[attr-defined]

    asyncio.run(run())


class Keeping(Recorder):
    """A handler that keeps the memory of its frames."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.kept: list[memoryview] = []

    def frame(self, data: memoryview) -> None:
        super().frame(data)
        self.kept.append(data)


async def send_frames(payloads: Sequence[bytes], standing: Standing) -> Keeping:
    """Send frames one after another over a connection of its own."""
    handlers: list[Keeping] = []
    limits = {each: WaitingBytes(128 << 20, each.name, max_unsent_bytes=1 << 20) for each in Standing}

    def accept(connection: Connection) -> Keeping:
        connection.standing = standing
        handlers.append(Keeping(connection))
        return handlers[-1]

    listener = await SocketNetwork(limits=limits).listen(HOST, 0, accept, max_frame_bytes=LIMIT)
    with socket.create_connection((HOST, listener.port)) as client:
        client.setblocking(False)
        for number, payload in enumerate(payloads, 1):
            await asyncio.get_running_loop().sock_sendall(client, framed(payload))
            await until(lambda number=number: handlers and len(handlers[0].frames) == number)
    handlers[0].connection.close()
    await listener.close()
    return handlers[0]


def test_a_frame_that_its_handler_keeps_is_not_overwritten_by_later_ones() -> None:
    """Each of many large frames stays as it came for as long as the handler looks at it."""
    payloads = [some_bytes(size) for size in (500_000, 1_000_000, 300_000) * 5]

    async def run() -> None:
        handler = await send_frames(payloads, Standing.CLIENT)
        assert [bytes(frame) for frame in handler.kept] == payloads

    asyncio.run(run())


@pytest.mark.parametrize(("standing", "is_lent"), [(Standing.CLIENT, True), (Standing.STRANGER, False)])
def test_only_a_peer_that_is_known_gets_a_buffer_that_is_used_again(standing: Standing, is_lent: bool) -> None:
    """The memory of a stranger's frame is made for it, so that strangers cannot keep
    the buffers from others."""

    async def run() -> None:
        handler = await send_frames([some_bytes(500_000)], standing)
        assert (len(handler.kept[0].obj) == BUFFER_BYTES) == is_lent

    asyncio.run(run())


@pytest.fixture
def low_limit() -> Iterator[int]:
    """A soft limit of descriptors little above what is open."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest free number says little: other tests may have left files open above it.
    highest = max(map(int, os.listdir("/dev/fd")))
    limit = (highest + 60) * 4 // 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_a_quarter_of_the_descriptors_to_files(
    low_limit: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepting stops below the limit, with one line in the log, and goes on when
    connections are gone."""
    monkeypatch.setattr(listeners, "_ACCEPT_PAUSE_S", 0.01)
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        async with listening(echo=True) as (port, handlers):
            clients: list[socket.socket] = []
            with contextlib.suppress(OSError):
                for _ in range(low_limit):
                    client = socket.socket()
                    clients.append(client)
                    client.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(client, (HOST, port))
                    await asyncio.sleep(0)
            await until(lambda: "lack of descriptors" in caplog.text)
            accepted = len(handlers)
            for client in clients[-5:]:  # room for this process, which is the clients too
                client.close()
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
            for descriptor in files:
                os.close(descriptor)
            for client in clients:
                client.close()
            await until(lambda: sum(bool(handler.ended) for handler in handlers) >= accepted)
            with socket.socket() as late:
                late.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(late, (HOST, port))
                await loop.sock_sendall(late, framed(b"hello"))
                async with asyncio.timeout(60):
                    assert await loop.sock_recv(late, 100) == framed(b"hello")
        assert caplog.text.count("lack of descriptors") == 1

    asyncio.run(run())


def test_the_soft_limit_is_raised_and_connections_get_three_quarters_of_it(low_limit: int) -> None:
    """A server asks for as many descriptors as the system lets it have, up to 100,000."""
    resource = pytest.importorskip("resource")
    assert descriptors.connection_ceiling() == low_limit - low_limit // 4
    raised = descriptors.raise_descriptor_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raised == soft == (100_000 if hard == resource.RLIM_INFINITY else min(hard, 100_000))


def test_frames_that_came_together_are_bounded_each() -> None:
    """One that is too large is left for the check that ends the connection, though
    all of it has come."""
    sizes = (3, 100, 101, 3)
    data = memoryview(b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes))
    assert [len(frame) for frame in split_frames(data, 0, 100)] == [3, 100]
    assert [len(frame) for frame in split_frames(data, 0, 101)] == [3, 100, 101, 3]
    negative = memoryview((-1).to_bytes(4, "big", signed=True) + bytes(10))
    assert split_frames(negative, 0, 100) == []


class Counting:
    """A handler that counts frames."""

    def __init__(self) -> None:
        self.frames = 0

    def frame(self, data: memoryview) -> None:
        self.frames += 1

    def bad_length(self, prefix: bytes) -> None: ...

    def closed(self, error: Exception | None) -> None: ...


@pytest.mark.parametrize("order", list(itertools.permutations((PAUSED, OVER_BUDGET, UNSENT))))
def test_a_connection_reads_again_when_the_last_reason_against_it_is_gone(order: tuple[int, ...]) -> None:
    """Whichever ends last, and though the others ended before."""

    async def run() -> None:
        loop, handler = asyncio.get_running_loop(), Counting()
        network = SocketNetwork()
        with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as client:
            served, _ = server.accept()
            served.setblocking(False)
            connection = network._open(loop, served, lambda _: handler, 1 << 20, network._limits)
            ends = {PAUSED: connection.resume, OVER_BUDGET: connection.go_on, UNSENT: connection._go_on_when_writable}
            connection.pause()
            for reason in (OVER_BUDGET, UNSENT):
                connection._stop(reason)
            client.send(b"\0\0\0\1x")
            for reason in order:
                for _ in range(5):
                    await asyncio.sleep(0)
                assert handler.frames == 0
                ends[reason]()
            await until(lambda: handler.frames)
            connection.close()
            await asyncio.sleep(0)

    asyncio.run(run())
