"""What waits for the peers of a server together, over real sockets: it has a limit, and
others are served meanwhile."""

import asyncio
import contextlib
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.base.memory import rest_of
from barnabas.base.network import Connection, Network, Standing
from barnabas.net.memory_budget import BudgetState
from barnabas.net.sockets import MAX_UNSENT_BYTES, SocketNetwork
from barnabas.net.ssl_contexts import SslSettings, client_context, server_context
from barnabas.net.tls_layer import TlsLayer
from barnabas.net.waiting_bytes import WaitingBytes
from barnabas.security.key_stores import KeyStore
from support.certificates import make_certificate
from support.needs import needs
from support.network_contract import HOST, NetworkContract, Recorder, framed

KIB, MIB = 1024, 1024 * 1024
LIMIT = 2 * MIB
MAX_FRAME_BYTES = 16 * MIB
ANSWER_BYTES = 64 * KIB
PLAIN, SECURE = "plain", "TLS"
KINDS = [PLAIN, pytest.param(SECURE, marks=needs("openssl"))]


def waiting(limit_bytes: int = LIMIT) -> dict[Standing, WaitingBytes]:
    return {
        standing: WaitingBytes(limit_bytes, f"the limit of {standing.name}", max_unsent_bytes=MAX_UNSENT_BYTES)
        for standing in Standing
    }


class TestNearTheLimit(NetworkContract):
    """The contract of every network, where memory is always short."""

    drops_frames = True

    def run(self, test: Callable[[Network], Awaitable[None]]) -> None:
        async def near() -> None:
            limits = waiting(1 << 40)
            for each in limits.values():
                each.budget.limit_bytes = 1 << 62
                each.most_unsent_bytes = -1
                each._changed = lambda: None  # type: ignore[method-assign]  # it stays short
            await test(SocketNetwork(limits=limits))

        asyncio.run(near())


class Asked(Recorder):
    """Answers each frame with as many bytes as its first four say."""

    def frame(self, data: memoryview) -> None:
        super().frame(data)
        size = int.from_bytes(data[:4], "big")
        self.connection.send([struct.pack(">i", size), bytes(size)])


class Server:
    """An open port, and what waits there."""

    def __init__(self, limits: dict[Standing, WaitingBytes], port: int, client: ssl.SSLContext | None) -> None:
        self.limits = limits
        self.budget = limits[Standing.CLIENT].budget
        self.port = port
        self.handlers: list[Asked] = []
        self.most_bytes = 0
        self._client = client

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        options = {} if self._client is None else {"ssl": self._client, "server_hostname": HOST}
        return await asyncio.open_connection(HOST, self.port, limit=KIB, **options)

    async def ask(self, answer_bytes: int, request_bytes: int = 4) -> None:
        """A usual client's request; returns when it has its answer."""
        reader, writer = await self.connect()
        try:
            writer.write(framed(struct.pack(">i", answer_bytes).ljust(request_bytes, b"\0")))
            await reader.readexactly(4 + answer_bytes)
        finally:
            writer.close()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.most_bytes = max(self.most_bytes, self.budget.held_bytes)
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(folder: Path, kind: str, limit_bytes: int = LIMIT) -> AsyncIterator[Server]:
    limits, client = waiting(limit_bytes), None
    if kind == PLAIN:
        network: Network = SocketNetwork(limits=limits, send_buffer_bytes=64 * KIB)
    else:
        make_certificate(folder, "server", "/CN=server")
        stores = SslSettings(
            lambda name: name,
            key_store=KeyStore(str(folder / "server.pem"), type="PEM"),
            key_text="",
            chain_text="",
            key_password="",
            trust_store=KeyStore(str(folder / "server.crt"), type="PEM"),
            trust_text="",
            client_auth="none",
            protocols=("TLSv1.2", "TLSv1.3"),
            verifies_host=True,
        )
        client, server = client_context(stores), server_context(stores)
        network = TlsLayer(SocketNetwork(limits=limits, send_buffer_bytes=64 * KIB), server=server)
    found: list[Server] = []

    def accept(connection: Connection) -> Asked:
        handler = Asked(connection)
        found[0].handlers.append(handler)
        return handler

    listener = await network.listen(HOST, 0, accept, max_frame_bytes=MAX_FRAME_BYTES)
    found.append(Server(limits, listener.port, client))
    try:
        yield found[0]
    finally:
        for handler in found[0].handlers:
            handler.connection.close()
        await listener.close()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_that_do_not_come_to_their_end_stay_below_the_limit_and_others_are_served(
    tmp_path: Path, kind: str
) -> None:
    """Thirty peers begin a frame of ten megabytes each, and send a half of one."""

    async def run() -> None:
        async with serving(tmp_path, kind) as server:
            peers = [await server.connect() for _ in range(30)]
            for _, writer in peers:
                writer.write(struct.pack(">i", 10 * MIB) + bytes(MIB // 2))
            await server.until(lambda: server.budget.state is not BudgetState.FREE)
            for size in (4, 10 * KIB, 200 * KIB):
                await server.ask(ANSWER_BYTES, size)
            await server.until(lambda: server.budget.is_at_rest)
            assert server.most_bytes < LIMIT + MIB
            assert server.limits[Standing.CLIENT].closed_count
            for _, writer in peers:
                writer.close()
            await server.until(lambda: not server.budget.held_bytes)

    asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_are_not_read_stay_below_the_limit_and_others_are_served(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The readers that stand still are closed, with a line that says why."""

    async def run() -> None:
        async with serving(tmp_path, kind) as server:
            peers = [await server.connect() for _ in range(20)]
            for _, writer in peers:
                writer.write(framed(struct.pack(">i", 10 * MIB)))
            await server.until(lambda: server.limits[Standing.CLIENT].closed_count)
            await server.ask(ANSWER_BYTES)
            await server.until(lambda: server.budget.is_at_rest)
            assert server.most_bytes < LIMIT + 11 * MIB  # one answer may be larger than the limit
            for _, writer in peers:
                writer.close()
            await server.until(lambda: not server.budget.held_bytes)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "it does not read its answers, and its memory is needed" in caplog.text
    assert "(the limit of CLIENT)" in caplog.text


@pytest.mark.parametrize("start", [0, MIB // 2, MIB // 2 + 1, MIB])
def test_a_small_rest_of_a_large_buffer_does_not_keep_all_of_it(start: int) -> None:
    """What has left takes no more memory than what has not; little is copied."""
    buffer = bytes(range(256)) * (MIB // 256)
    rest = rest_of(memoryview(buffer), start)
    assert rest == buffer[start:]
    assert (rest.obj is buffer) == (start <= MIB // 2)
    small = rest_of(memoryview(buffer[:1000]), 999)
    assert len(small.obj) == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_larger_than_the_limit_comes_to_its_end(tmp_path: Path, kind: str) -> None:
    """Also while others hold what there is."""

    async def run() -> None:
        async with serving(tmp_path, kind) as server:
            peers = [await server.connect() for _ in range(10)]
            for _, writer in peers:
                writer.write(struct.pack(">i", 10 * MIB) + bytes(MIB // 2))
            await server.until(lambda: server.budget.state is not BudgetState.FREE)
            await asyncio.gather(*(server.ask(4, 8 * MIB) for _ in range(2)))
            for _, writer in peers:
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_strangers_clients_and_members_have_limits_of_their_own(tmp_path: Path, kind: str) -> None:
    """What strangers hold keeps no client waiting; a peer that becomes another takes
    along what waits for it."""

    async def run() -> None:
        async with serving(tmp_path, kind) as server:
            reader, writer = await server.connect()
            writer.write(framed(struct.pack(">i", 4)))
            await reader.readexactly(8)
            connection = server.handlers[0].connection
            for standing in (Standing.STRANGER, Standing.MEMBER, Standing.CLIENT):
                connection.standing = standing
                connection.served_bytes = 3 * MIB
                assert server.limits[standing].state is BudgetState.FULL
                assert sum(each.budget.held_bytes for each in server.limits.values()) == 3 * MIB
            connection.served_bytes = 0
            assert not server.budget.held_bytes
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_when_all_is_taken_no_request_is_read_until_there_is_room(tmp_path: Path, kind: str) -> None:
    """The request waits in its socket, and is served then."""

    async def run() -> None:
        async with serving(tmp_path, kind) as server:
            first, second = await server.connect(), await server.connect()
            first[1].write(framed(struct.pack(">i", 4)))
            await first[0].readexactly(8)
            connection = server.handlers[0].connection
            connection.served_bytes = LIMIT
            second[1].write(framed(struct.pack(">i", 4)) * 3)
            waiting = server.limits[Standing.CLIENT]
            await server.until(lambda: waiting._outside)
            assert not server.handlers[1].frames
            connection.served_bytes = 0
            await second[0].readexactly(3 * 8)
            assert not waiting.closed_count
            for _, writer in (first, second):
                writer.close()

    asyncio.run(run())


def test_requests_behind_one_another_wait_where_all_is_taken(tmp_path: Path) -> None:
    """Of requests that came together, none is served once the limit is reached."""

    async def run() -> None:
        async with serving(tmp_path, PLAIN) as server:
            reader, writer = await server.connect()
            writer.write(framed(struct.pack(">i", 4)))
            await reader.readexactly(8)
            (handler,) = server.handlers
            connection, answer = handler.connection, handler.frame

            def take_all(data: memoryview) -> None:
                answer(data)
                connection.served_bytes = LIMIT

            handler.frame = take_all
            writer.write(framed(struct.pack(">i", 4)) * 3)
            await server.until(lambda: server.limits[Standing.CLIENT]._outside)
            assert len(handler.frames) == 2
            handler.frame = answer
            connection.served_bytes = 0
            await reader.readexactly(3 * 8)
            writer.close()

    asyncio.run(run())
