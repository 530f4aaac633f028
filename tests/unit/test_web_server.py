"""The ports of a web server: how many connections there are, and how long one may be silent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from barnabas.net.web_access import WebListener
from barnabas.net.web_server import WebServer

REQUEST = b"GET /word HTTP/1.1\r\nHost: here\r\n\r\n"
IDLE_S = 1000.0
LARGE = 1 << 24
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class SkippingLoop(asyncio.SelectorEventLoop):
    """Its time goes on as usual, and jumps where a test says so."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


def skip(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skipped_s += seconds


def run(test: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(test)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    while not condition():  # noqa: ASYNC110  # the server sets no event
        await asyncio.sleep(0.001)


class Served:
    """A server with a few answers, and connections to it."""

    def __init__(self, most: int) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()
        self.transport: asyncio.BaseTransport | None = None
        """Of the last request for the large answer."""
        application = web.Application()
        application.router.add_get("/word", self._word)
        application.router.add_get("/slow", self._slow)
        application.router.add_get("/large", self._large)
        self.server = WebServer(application, most, IDLE_S)
        self.port = self.server.bind([WebListener("http", "127.0.0.1", 0)])[0]
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        await self.server.close()

    def unsent(self) -> int:
        assert isinstance(self.transport, asyncio.Transport)
        return self.transport.get_write_buffer_size()

    async def _word(self, _: web.Request) -> web.Response:
        return web.Response(body=b"word")

    async def _slow(self, _: web.Request) -> web.Response:
        self.asked.set()
        await self.go_on.wait()
        return web.Response(body=b"late")

    async def _large(self, request: web.Request) -> web.Response:
        self.transport = request.transport
        return web.Response(body=bytes(LARGE))


@asynccontextmanager
async def served(most: int = 0) -> AsyncIterator[Served]:
    made = Served(most)
    await made.server.listen(None)
    try:
        yield made
    finally:
        await made.close()


async def answer(client: Client, request: bytes = REQUEST) -> bytes:
    """The body of an answer whose length is known."""
    reader, writer = client
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return await reader.readexactly(length)


async def is_closed(client: Client) -> bool:
    """Wait for the end of a connection; False for bytes instead of it."""
    try:
        return not await client[0].read(1)
    except ConnectionError:
        return True


async def _silent(_: Client) -> None:
    pass


async def _half_a_head(client: Client) -> None:
    client[1].write(REQUEST[:20])


async def _after_an_answer(client: Client) -> None:
    assert await answer(client) == b"word"


async def _half_a_second_head(client: Client) -> None:
    assert await answer(client) == b"word"
    client[1].write(REQUEST[:20])


@pytest.mark.parametrize("behave", [_silent, _half_a_head, _after_an_answer, _half_a_second_head])
def test_a_connection_without_a_whole_head_is_closed_after_the_idle_time(
    behave: Callable[[Client], Awaitable[None]],
) -> None:
    """Neither silence nor half a head keeps a connection, before and after other requests."""

    async def test() -> None:
        async with served() as made:
            client = await made.connect()
            await until(lambda: len(made.server.connections) == 1)
            await behave(client)
            skip(IDLE_S / 2)
            await asyncio.sleep(0)
            assert len(made.server.connections) == 1, "half of the time is not over"
            for _ in range(2):  # once more for bytes that came after the first half
                skip(IDLE_S)
                await asyncio.sleep(0)
            assert await is_closed(client)

    run(test())


def test_a_head_that_comes_byte_by_byte_ends_the_connection() -> None:
    """Bytes do not give more time once the head has begun."""

    async def test() -> None:
        async with served() as made:
            client = await made.connect()
            await until(lambda: len(made.server.connections) == 1)
            client[1].write(b"GET /word HTTP/1.1\r\nHost: ")
            waited_s = 0.0
            while len(made.server.connections):
                client[1].write(b"h")
                skip(IDLE_S / 20)
                waited_s += IDLE_S / 20
                await asyncio.sleep(0.001)
            assert waited_s < 2.5 * IDLE_S
            assert await is_closed(client)

    run(test())


def test_a_request_that_takes_longer_than_the_idle_time_is_answered() -> None:
    """The time does not run while a request is served."""

    async def test() -> None:
        async with served() as made:
            client = await made.connect()
            reading = asyncio.ensure_future(answer(client, REQUEST.replace(b"word", b"slow")))
            await made.asked.wait()
            for _ in range(5):
                skip(IDLE_S)
                await asyncio.sleep(0.001)
            made.go_on.set()
            assert await reading == b"late"

    run(test())


def test_an_answer_that_is_read_slowly_comes_whole() -> None:
    """A client that reads on keeps its connection longer than the idle time."""

    async def test() -> None:
        async with served() as made:
            reader, writer = await made.connect()
            writer.write(REQUEST.replace(b"word", b"large"))
            await reader.readuntil(b"\r\n\r\n")
            left = LARGE
            while left:
                before = made.unsent()
                while left and (made.unsent() == before or not before):
                    part = await reader.read(min(left, 1 << 17))
                    assert part, f"cut off, {left} bytes before the end"
                    left -= len(part)
                if left:
                    skip(1.1 * IDLE_S)
                    await asyncio.sleep(0)

    run(test())


def test_an_answer_that_is_not_read_ends_the_connection() -> None:
    """A client that stopped reading is given up after the idle time."""

    async def test() -> None:
        async with served() as made:
            client = await made.connect()
            client[1].write(REQUEST.replace(b"word", b"large"))
            await client[0].readuntil(b"\r\n\r\n")
            while len(made.server.connections):
                skip(IDLE_S)
                await asyncio.sleep(0.001)

    run(test())


def test_more_connections_than_the_limit_are_closed_and_the_others_are_served() -> None:
    """The limit holds, and a connection that ends makes room."""

    async def test() -> None:
        async with served(most=2) as made:
            first, second = await made.connect(), await made.connect()
            assert await answer(first) == await answer(second) == b"word"
            assert await is_closed(await made.connect())
            assert await answer(first) == b"word"
            first[1].close()
            await until(lambda: len(made.server.connections) < 2)
            assert await answer(await made.connect()) == b"word"

    run(test())
