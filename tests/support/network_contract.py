"""What every `barnabas.base.network.Network` promises, as tests: the real one and the
simulated one run the same.

A test class inherits `NetworkContract` and says how to run a coroutine with a network in it.
"""

import asyncio
import struct
import tracemalloc
from collections.abc import Awaitable, Callable
from random import Random
from typing import Self

import pytest

from barnabas.base.files import FileSlice
from barnabas.base.network import Connection, Network

LIMIT = 8 * 1024 * 1024
HOST = "127.0.0.1"


class Recorder:
    """A handler that keeps all calls."""

    def __init__(self, connection: Connection, *, echo: bool = False) -> None:
        self.connection = connection
        self.echo = echo
        self.frames: list[bytes] = []
        self.bad: bytes | None = None
        self.ended: list[Exception | None] = []
        self.changed = asyncio.Event()

    def frame(self, data: memoryview) -> None:
        assert not data.readonly
        self.frames.append(bytes(data))
        if self.echo:
            self.connection.send([struct.pack(">i", len(data)), data])
        self.changed.set()

    def bad_length(self, prefix: bytes) -> None:
        self.bad = prefix[:4]
        self.behind_bad = prefix[4:]
        self.connection.close()

    def closed(self, error: Exception | None) -> None:
        self.ended.append(error)
        self.changed.set()

    async def until(self, condition) -> None:
        async with asyncio.timeout(60):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


class Taking(Recorder):
    """A handler that takes up to three frames together, and pauses now and then."""

    together = 0

    def take_frames(self, frames: list[bytes]) -> int:
        taken = min(len(frames), 1 + len(self.frames) % 3)
        self.together = max(self.together, taken)
        self.frames += frames[:taken]
        if len(self.frames) % 5 == 0:
            self.connection.pause()
            asyncio.get_running_loop().call_soon(self.connection.resume)
        self.changed.set()
        return taken


class Serving(Recorder):
    """A handler that serves up to three small frames where they are, keeps no part of the buffer,
    and pauses now and then."""

    together = 0
    taken = 0

    def take_from(self, data: memoryview, position: int) -> int:
        assert not data.readonly
        frames: list[bytes] = []
        while len(frames) < self.taken % 4 and len(data) - position >= 4:
            (size,) = struct.unpack_from(">i", data, position)
            if size > 1000 or position + 4 + size > len(data):
                break
            frames.append(bytes(data[position + 4 : position + 4 + size]))
            data[position : position + 4 + size] = bytes(4 + size)
            position += 4 + size
        self.taken += 1
        self.together = max(self.together, len(frames))
        self.frames += frames
        if self.taken % 5 == 0:
            self.connection.pause()
            asyncio.get_running_loop().call_soon(self.connection.resume)
        self.changed.set()
        return position


class Refusing(Recorder):
    """A handler that refuses frames of more than a mebibyte as soon as they begin."""

    def drops(self, head: bytes, frame_bytes: int) -> bool:
        return frame_bytes > 1 << 20

    def dropped(self, head: bytes) -> None:
        self.frames.append(head)
        self.changed.set()


class Pair:
    """A listener that echoes, and a client connected to it."""

    def __init__(self, network: Network) -> None:
        self.network = network

    async def __aenter__(self) -> Self:
        self.servers: list[Recorder] = []
        self.clients: list[Recorder] = []

        def accept(connection: Connection) -> Recorder:
            self.servers.append(Recorder(connection, echo=True))
            return self.servers[-1]

        def connected(connection: Connection) -> Recorder:
            self.clients.append(Recorder(connection))
            return self.clients[-1]

        self.listener = await self.network.listen(HOST, 0, accept, max_frame_bytes=LIMIT)
        self.connection = await self.network.connect(
            HOST, self.listener.port, connected, max_frame_bytes=LIMIT, timeout_ms=5000
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection.close()
        await self.clients[0].until(lambda r: r.ended)
        await self.listener.close()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def some_bytes(size: int) -> bytes:
    return Random(size).randbytes(size)


class _BytesFile:
    """A file that has no descriptor."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def fileno(self) -> int | None:
        return None


class NetworkContract:
    """The tests."""

    takes_frames = True
    """Whether a handler gets the frames together that have come together."""

    drops_frames = False
    """Whether a handler may refuse large frames when they begin."""

    def run(self, test: Callable[[Network], Awaitable[None]]) -> None:
        """Run the coroutine with a network."""
        raise NotImplementedError

    def test_a_stream_is_delivered_as_it_comes(self) -> None:
        """A connection that is a stream hands on all bytes in order, though they
        look like a bad length."""

        async def test(network: Network) -> None:
            sent = b"\xff" * 5 + some_bytes(300_000)
            received: list[Recorder] = []
            accepted = asyncio.Event()

            def accept(connection: Connection) -> Recorder:
                connection.is_stream = True
                received.append(Recorder(connection))
                accepted.set()
                return received[-1]

            listener = await network.listen(HOST, 0, accept, max_frame_bytes=4)
            made: list[Recorder] = []

            def connected(connection: Connection) -> Recorder:
                made.append(Recorder(connection))
                return made[-1]

            connection = await network.connect(HOST, listener.port, connected, max_frame_bytes=4, timeout_ms=5000)
            connection.send([sent[:3], sent[3:]])
            async with asyncio.timeout(60):
                await accepted.wait()
            await received[0].until(lambda r: sum(map(len, r.frames)) >= len(sent))
            assert b"".join(received[0].frames) == sent
            assert received[0].bad is None
            connection.close()
            await received[0].until(lambda r: r.ended)
            await listener.close()

        self.run(test)

    @pytest.mark.parametrize("piece_bytes", [5, 100_000])
    def test_a_large_frame_that_is_refused_takes_no_memory_and_its_neighbours_arrive(self, piece_bytes: int) -> None:
        """It is refused when its first eight bytes have come, which may be with its second piece,
        and counts in its place."""

        async def run(network: Network) -> None:
            received: list[Refusing] = []

            def accept(connection: Connection) -> Refusing:
                received.append(Refusing(connection))
                return received[-1]

            listener = await network.listen(HOST, 0, accept, max_frame_bytes=LIMIT)
            connection = await network.connect(HOST, listener.port, Recorder, max_frame_bytes=LIMIT, timeout_ms=5000)
            frames = [b"small", some_bytes(LIMIT), b"", some_bytes(1 << 20), some_bytes(LIMIT - 1), b"last"]
            data = b"".join(map(framed, frames))
            heads = [frame if len(frame) <= 1 << 20 else frame[:8] for frame in frames]
            tracemalloc.start()
            try:
                position = 0
                while position < len(data):
                    stop = position + (piece_bytes if position < 40 else 100_000)
                    connection.send([data[position:stop]])
                    position = stop
                    async with asyncio.timeout(60):
                        while connection.unsent_bytes:  # noqa: ASYNC110  # what is watched has no event
                            await asyncio.sleep(0.001)
                    await asyncio.sleep(0)
                await received[0].until(lambda r: len(r.frames) == len(frames))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert received[0].frames == heads
            assert peak < 6 << 20
            connection.close()
            await received[0].until(lambda r: r.ended)
            await listener.close()

        if self.drops_frames:
            self.run(run)

    @pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 300_000, 5_000_000, LIMIT])
    def test_a_frame_of_any_size_comes_back_whole(self, size: int) -> None:
        """Small and large frames are echoed unchanged, larger than any buffer too."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                payload = some_bytes(size)
                pair.connection.send([framed(payload)])
                await pair.clients[0].until(lambda r: r.frames)
                assert pair.clients[0].frames == [payload]

        self.run(run)

    def test_many_frames_keep_their_order_whatever_their_sizes(self) -> None:
        """Frames that share a read, or span several, are delivered one by one in the order sent."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                sizes = [3, 100_000, 0, 17, 262_140, 262_144, 5, 1_500_000, 9] * 3
                payloads = [some_bytes(size) for size in sizes]
                for payload in payloads:
                    pair.connection.send([framed(payload)])
                await pair.clients[0].until(lambda r: len(r.frames) == len(payloads))
                assert pair.clients[0].frames == payloads

        self.run(run)

    @pytest.mark.parametrize("kind", [Taking, Serving])
    def test_what_a_handler_does_not_take_together_comes_one_by_one(self, kind: type[Taking | Serving]) -> None:
        """Whole frames in the order sent, none lost or doubled, also where the
        handler pauses in the middle."""

        async def run(network: Network) -> None:
            received: list[Taking | Serving] = []
            accepted = asyncio.Event()

            def accept(connection: Connection) -> Taking | Serving:
                received.append(kind(connection))
                accepted.set()
                return received[-1]

            listener = await network.listen(HOST, 0, accept, max_frame_bytes=LIMIT)
            connection = await network.connect(HOST, listener.port, Recorder, max_frame_bytes=LIMIT, timeout_ms=5000)
            payloads = [some_bytes(size) for size in [3, 100, 0, 17, 70_000, 5, 300_000, 9] * 20]
            for first in range(0, len(payloads), 10):
                connection.send([framed(payload) for payload in payloads[first : first + 10]])
            async with asyncio.timeout(60):
                await accepted.wait()
            await received[0].until(lambda r: len(r.frames) >= len(payloads))
            assert received[0].frames == payloads
            assert received[0].together > 1 or not self.takes_frames
            connection.close()
            await received[0].until(lambda r: r.ended)
            await listener.close()

        self.run(run)

    def test_a_file_range_between_buffers_arrives_in_its_place(self) -> None:
        """Buffers, a small range and a large range leave in the order in which they were given."""

        async def run(network: Network) -> None:
            data = some_bytes(3_000_000)
            file = _BytesFile(data)
            body = b"head" + data[10:110] + b"middle" + data[500:2_500_500] + b"tail"
            async with Pair(network) as pair:
                parts = [struct.pack(">i", len(body)), b"head", FileSlice(file, 10, 100), b"middle"]
                pair.connection.send([*parts, FileSlice(file, 500, 2_500_000), b"tail"])
                await pair.clients[0].until(lambda r: r.frames)
                assert pair.clients[0].frames == [body]

        self.run(run)

    def test_a_file_range_that_ends_early_breaks_the_connection(self) -> None:
        """What was promised in the length cannot be sent: the sender gets an error,
        and no frame arrives."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                file = _BytesFile(bytes(100))
                pair.connection.send([struct.pack(">i", 200), FileSlice(file, 0, 200)])
                await pair.clients[0].until(lambda r: r.ended)
                assert isinstance(pair.clients[0].ended[0], OSError)
                assert not any(server.frames for server in pair.servers)

        self.run(run)

    def test_a_client_that_does_not_read_is_not_read_from(self) -> None:
        """Answers wait up to a bound; when the client reads again, all it asked for comes."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                payload = some_bytes(1_000_000)
                pair.connection.pause()
                for _ in range(40):
                    pair.connection.send([framed(payload)])
                server = pair.servers
                while not server or server[0].connection.unsent_bytes <= 1_000_000:  # noqa: ASYNC110  # no event says so
                    await asyncio.sleep(0)
                for _ in range(200):
                    await asyncio.sleep(0)
                assert server[0].connection.unsent_bytes < 5_000_000
                pair.connection.resume()
                await pair.clients[0].until(lambda r: len(r.frames) == 40)

        self.run(run)

    @pytest.mark.parametrize("length", [-(2**31), -1, LIMIT + 1, 2**31 - 1])
    def test_a_length_out_of_bounds_is_reported_and_never_allocated(self, length: int) -> None:
        """The handler sees the four bytes and decides; nothing is read as a frame."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                pair.connection.send([struct.pack(">i", length), b"x" * 100])
                await pair.clients[0].until(lambda r: r.ended)
                assert pair.servers[0].bad == struct.pack(">i", length)
                assert pair.servers[0].frames == []

        self.run(run)

    def test_a_handler_that_raises_the_frame_limit_gets_larger_frames_from_then_on(self) -> None:
        """Connections begin with a small limit, which is lifted once the client is known."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                pair.connection.send([framed(b"connect")])
                await pair.clients[0].until(lambda r: r.frames)
                server = pair.servers[0]
                server.connection.max_frame_bytes = 2 * LIMIT
                pair.connection.max_frame_bytes = 2 * LIMIT
                pair.connection.send([framed(bytes(LIMIT + 1))])
                await pair.clients[0].until(lambda r: len(r.frames) == 2)
                server.connection.max_frame_bytes = 100
                pair.connection.send([struct.pack(">i", 101) + b"and more than eight"])
                await pair.clients[0].until(lambda r: r.ended)
                assert server.bad == struct.pack(">i", 101)
                assert server.behind_bad == b"and more"

        self.run(run)

    def test_a_paused_connection_delivers_nothing_until_it_is_resumed(self) -> None:
        """Frames that had arrived with the one that paused wait, and follow in order."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
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

        self.run(run)

    def test_a_handler_that_raises_ends_its_connection_and_no_other(self) -> None:
        """What is behind the frame would be lost or handed on twice; the loop reports the error."""

        async def run(network: Network) -> None:
            reported: list[object] = []

            def fail(_: memoryview) -> None:
                raise ArithmeticError

            asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
            async with Pair(network) as pair, Pair(network) as other:
                pair.connection.send([framed(b"first")])
                await pair.clients[0].until(lambda r: r.frames)
                pair.servers[0].frame = fail  # type: ignore[method-assign]
                pair.connection.send([framed(b"second"), framed(b"third")])
                await pair.clients[0].until(lambda r: r.ended)
                other.connection.send([framed(b"fourth")])
                await other.clients[0].until(lambda r: r.frames)
            assert len(reported) == 1

        self.run(run)

    def test_closing_after_sending_loses_nothing(self) -> None:
        """What was given to send before the close arrives, then the end."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                pair.connection.send([framed(b"hello")])
                await pair.clients[0].until(lambda r: r.frames)
                server = pair.servers[0].connection
                server.send([framed(bytes(6_000_000))])
                server.close(after_sending=True)
                await pair.clients[0].until(lambda r: r.ended)
                assert [len(frame) for frame in pair.clients[0].frames] == [5, 6_000_000]

        self.run(run)

    def test_a_closed_connection_informs_both_handlers_once_and_later(self) -> None:
        """``closed`` is never called from within ``close``; a second close and a
        late send do nothing."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                pair.connection.send([framed(b"hello")])
                await pair.clients[0].until(lambda r: r.frames)
                pair.connection.close()
                assert pair.clients[0].ended == []
                pair.connection.close()
                await pair.clients[0].until(lambda r: r.ended)
                await pair.servers[0].until(lambda r: r.ended)
                pair.connection.send([framed(b"late")])
                await asyncio.sleep(0)
                assert (pair.clients[0].ended, len(pair.servers[0].ended)) == ([None], 1)

        self.run(run)

    def test_both_sides_know_their_addresses(self) -> None:
        """What is local on one side is the peer on the other."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                pair.connection.send([framed(b"hello")])
                await pair.clients[0].until(lambda r: r.frames)
                server = pair.servers[0].connection
                assert (server.peer, server.local) == (pair.connection.local, pair.connection.peer)
                assert server.local[1] == pair.listener.port

        self.run(run)

    def test_a_port_without_a_listener_refuses(self) -> None:
        """The connection fails at once, with the operating system's error; so it is
        after a listener's close."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                port = pair.listener.port
            with pytest.raises(ConnectionRefusedError):
                await network.connect(HOST, port, Recorder, max_frame_bytes=LIMIT, timeout_ms=5000)

        self.run(run)

    def test_a_port_in_use_cannot_be_had_again(self) -> None:
        """The second listener is refused, the first goes on."""

        async def run(network: Network) -> None:
            async with Pair(network) as pair:
                with pytest.raises(OSError, match="in use"):
                    await network.listen(HOST, pair.listener.port, Recorder, max_frame_bytes=LIMIT)

        self.run(run)
