"""Frames over real sockets on the loopback."""

import asyncio
import os
import struct
from typing import Self

import pytest

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.network import Connection
from barnabas.net.sockets import SocketNetwork

LIMIT = 8 * 1024 * 1024


class Recorder:
    """A handler that keeps what it hears."""

    def __init__(self, connection: Connection, *, echo: bool = False) -> None:
        self.connection = connection
        self.echo = echo
        self.frames: list[bytes] = []
        self.bad: bytes | None = None
        self.ended: list[Exception | None] = []
        self.changed = asyncio.Event()

    def frame(self, data: memoryview) -> None:
        self.frames.append(bytes(data))
        if self.echo:
            self.connection.send([struct.pack(">i", len(data)), data])
        self.changed.set()

    def bad_length(self, prefix: bytes) -> None:
        self.bad = prefix
        self.connection.close()

    def closed(self, error: Exception | None) -> None:
        self.ended.append(error)
        self.changed.set()

    async def until(self, condition) -> None:
        async with asyncio.timeout(10):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A listener that echoes, and a client connected to it."""

    async def __aenter__(self) -> Self:
        network = SocketNetwork()
        self.servers: list[Recorder] = []
        self.clients: list[Recorder] = []

        def accept(connection: Connection) -> Recorder:
            self.servers.append(Recorder(connection, echo=True))
            return self.servers[-1]

        def connected(connection: Connection) -> Recorder:
            self.clients.append(Recorder(connection))
            return self.clients[-1]

        self.listener = await network.listen("127.0.0.1", 0, accept, max_frame_bytes=LIMIT)
        self.connection = await network.connect(
            "127.0.0.1", self.listener.port, connected, max_frame_bytes=LIMIT, timeout_ms=5000
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection.close()
        await self.clients[0].until(lambda r: r.ended)
        await self.listener.close()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 300_000, 5_000_000, LIMIT])
def test_a_frame_of_any_size_comes_back_whole(size: int) -> None:
    """Small frames go through the scratch buffer and large ones into their own; both are echoed unchanged."""

    async def run() -> None:
        async with Pair() as pair:
            payload = os.urandom(size)
            pair.connection.send([framed(payload)])
            await pair.clients[0].until(lambda r: r.frames)
            assert pair.clients[0].frames == [payload]

    asyncio.run(run())


def test_many_frames_keep_their_order_whatever_their_sizes() -> None:
    """Frames that share a read, or span several, are delivered one by one in the order sent."""

    async def run() -> None:
        async with Pair() as pair:
            payloads = [os.urandom(size) for size in [3, 100_000, 0, 17, 262_140, 262_144, 5, 1_500_000, 9] * 3]
            for payload in payloads:
                pair.connection.send([framed(payload)])
            await pair.clients[0].until(lambda r: len(r.frames) == len(payloads))
            assert pair.clients[0].frames == payloads

    asyncio.run(run())


def test_a_file_range_between_buffers_arrives_in_its_place(tmp_path) -> None:
    """Buffers, a small range and a large range leave in the order in which they were given."""

    async def run() -> None:
        data = os.urandom(3_000_000)
        (tmp_path / "log").write_bytes(data)
        file = OsFiles().open(str(tmp_path / "log"), read_only=True)
        body = b"head" + data[10:110] + b"middle" + data[500:2_500_500] + b"tail"
        async with Pair() as pair:
            parts = [struct.pack(">i", len(body)), b"head", FileSlice(file, 10, 100), b"middle"]
            pair.connection.send([*parts, FileSlice(file, 500, 2_500_000), b"tail"])
            await pair.clients[0].until(lambda r: r.frames)
            assert pair.clients[0].frames == [body]
        file.close()

    asyncio.run(run())


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """Answers wait up to a bound; when the client reads again, all it asked for comes."""

    async def run() -> None:
        async with Pair() as pair:
            payload = os.urandom(1_000_000)
            pair.connection.pause()
            for _ in range(40):
                pair.connection.send([framed(payload)])
            server = pair.servers
            while not server or server[0].connection.unsent_bytes <= 1_000_000:  # noqa: ASYNC110  # nobody tells of it
                await asyncio.sleep(0)
            for _ in range(200):
                await asyncio.sleep(0)
            assert server[0].connection.unsent_bytes < 5_000_000
            pair.connection.resume()
            await pair.clients[0].until(lambda r: len(r.frames) == 40)

    asyncio.run(run())


@pytest.mark.parametrize("length", [-(2**31), -1, LIMIT + 1, 2**31 - 1])
def test_a_length_out_of_bounds_is_reported_and_never_allocated(length: int) -> None:
    """The handler sees the four bytes and decides; nothing is read as a frame."""

    async def run() -> None:
        async with Pair() as pair:
            pair.connection.send([struct.pack(">i", length), b"x" * 100])
            await pair.clients[0].until(lambda r: r.ended)
            assert pair.servers[0].bad == struct.pack(">i", length)
            assert pair.servers[0].frames == []

    asyncio.run(run())


def test_a_paused_connection_delivers_nothing_until_it_is_resumed() -> None:
    """Frames that had arrived with the one that paused wait, and follow in order."""

    async def run() -> None:
        async with Pair() as pair:
            server = pair.servers[0] if pair.servers else None
            pair.connection.send([framed(b"first")])
            await pair.clients[0].until(lambda r: r.frames)
            server = pair.servers[0]
            server.connection.pause()
            pair.connection.send([framed(b"second"), framed(b"third")])
            pair.connection.send([framed(b"fourth")])
            done = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.05, done.set_result, None)
            await done
            assert server.frames == [b"first"]
            server.connection.resume()
            await pair.clients[0].until(lambda r: len(r.frames) == 4)
            assert pair.clients[0].frames == [b"first", b"second", b"third", b"fourth"]

    asyncio.run(run())


def test_closing_after_sending_loses_nothing() -> None:
    """What was given to send before the close arrives, then the end."""

    async def run() -> None:
        async with Pair() as pair:
            pair.connection.send([framed(b"hello")])
            await pair.clients[0].until(lambda r: r.frames)
            server = pair.servers[0].connection
            server.send([framed(bytes(6_000_000))])
            server.close(after_sending=True)
            await pair.clients[0].until(lambda r: r.ended)
            assert [len(frame) for frame in pair.clients[0].frames] == [5, 6_000_000]

    asyncio.run(run())
