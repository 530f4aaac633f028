"""A small HTTP server for operators, beside a server for clients on the same event loop.

It answers requests of bounded size, one for each connection, and a bounded number at once. Each
step of a request has a time limit, the sending of the answer too. So neither strange bytes nor slow
readers cost more than that.

In ZooKeeper: Jetty, in JettyAdminServer and PrometheusMetricsProvider. Kafka has no counterpart:
its brokers have JMX, and the Prometheus JMX exporter has such a server.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

from barnabas.net.http import BadRequestError, HttpRequest, HttpResponse, encode_http_response, parse_head
from barnabas.net.listeners import close_server

__all__ = ["HttpExchange", "HttpHandler", "HttpServer", "metrics_handler"]

logger = logging.getLogger(__name__)
_MAX_REQUEST_BYTES = 8192
_MAX_CONNECTIONS = 32
_PART_BYTES = 1 << 16
_LINGER_S = 2.0


class HttpExchange:
    """A connection with one request. Each step has a time limit: TimeoutError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._limit_s = limit_s
        self.address: str = (writer.get_extra_info("peername") or ("",))[0]
        writer.transport.set_write_buffer_limits(0)  # `send` returns when all has left

    async def head(self) -> HttpRequest:
        """Read it. Raises `BadRequestError`."""
        async with asyncio.timeout(self._limit_s):
            try:
                return parse_head(await self._reader.readuntil(b"\r\n\r\n"))
            except asyncio.LimitOverrunError:
                raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long") from None

    async def body(self, request: HttpRequest) -> AsyncIterator[bytes]:
        """Read it, in parts.

        Raises `BadRequestError` for one that is cut off or of unknown length."""
        if request.expects_continue:
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            if request.is_chunked:
                while left := int((await self._line()).partition(b";")[0], 16):
                    async for part in self._exactly(left):
                        yield part
                    await self._line()
            else:
                async for part in self._exactly(int(request.headers["content-length"])):
                    yield part
        except (KeyError, ValueError, EOFError, asyncio.LimitOverrunError):
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "the body is cut off, or its length is not known") from None

    async def _line(self) -> bytes:
        async with asyncio.timeout(self._limit_s):
            return await self._reader.readuntil(b"\r\n")

    async def _exactly(self, left: int) -> AsyncIterator[bytes]:
        while left > 0:
            async with asyncio.timeout(self._limit_s):
                part = await self._reader.read(min(left, _PART_BYTES))
            if not part:
                raise EOFError
            left -= len(part)
            yield part

    async def send(self, data: bytes) -> None:
        """Return when the system has taken all of it."""
        self._writer.write(data)
        async with asyncio.timeout(self._limit_s):
            await self._writer.drain()

    async def linger(self) -> None:
        """Read what the client still sends, for a moment: it would lose the answer if
        the connection were reset."""
        with contextlib.suppress(TimeoutError, OSError):
            self._writer.write_eof()
            async with asyncio.timeout(_LINGER_S):
                while await self._reader.read(_PART_BYTES):
                    pass


HttpHandler = Callable[[HttpRequest, HttpExchange], Awaitable[HttpResponse | None]]
"""``await handler(request, exchange)``; None if it has answered by itself. May raise
`BadRequestError`."""


class HttpServer:
    """One open port."""

    def __init__(self, handler: HttpHandler, limit_s: float) -> None:
        """``limit_s`` is the time limit of each step of a request."""
        self._handler = handler
        self._limit_s = limit_s
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        """The open port. Raises RuntimeError before `open` and after `close`."""
        if self._server is None:
            raise RuntimeError("no port is open")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self, host: str, port: int, name: str) -> None:
        """Listen; an empty host is every address.

        ``name`` is the setting that asked for it. Raises OSError."""
        try:
            self._server = await asyncio.start_server(self._accepted, host or None, port, limit=_MAX_REQUEST_BYTES)
        except UnicodeError as error:
            raise OSError(errno.EINVAL, f"{host!r} is not the name of a host") from error
        logger.info("Serving HTTP on port %d (%s)", self.port, name)

    async def close(self) -> None:
        """Close the port, and give up the answers that are on their way."""
        if self._server is not None:
            server, self._server = self._server, None
            await close_server(server)
        tasks = dict(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in tasks.values():  # a task that is cancelled before it begins closes nothing
            writer.transport.abort()
        await asyncio.sleep(0)  # asyncio closes in the next turn

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_one_too_many = len(self._tasks) >= _MAX_CONNECTIONS  # those behind it do not count
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, is_one_too_many))
        self._tasks[task] = writer
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_one_too_many: bool) -> None:
        exchange = HttpExchange(reader, writer, self._limit_s)
        try:
            if is_one_too_many:
                busy = BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
                await exchange.send(encode_http_response(busy.response))
            else:
                await _answer(exchange, self._handler)
        except (TimeoutError, OSError, EOFError):
            writer.transport.abort()
        except asyncio.CancelledError:  # by `close`, after which nothing is left of this task
            writer.transport.abort()
        except Exception:
            logger.exception("A request over HTTP failed")
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _answer(exchange: HttpExchange, handler: HttpHandler) -> None:
    is_post = False
    try:
        request = await exchange.head()
        is_post = request.method == "POST"
        answer = await handler(request, exchange)
    except BadRequestError as error:
        answer = error.response
    if answer is not None:
        await exchange.send(encode_http_response(answer))
        if is_post:
            await exchange.linger()


def metrics_handler(page: Callable[[], Awaitable[HttpResponse]], limit_s: float) -> HttpHandler:
    """The handler of a server that has one page, where Prometheus looks for it.

    To make it may take ``limit_s``."""

    async def handle(request: HttpRequest, _: HttpExchange) -> HttpResponse:
        if request.path != "/metrics":
            raise BadRequestError(HTTPStatus.NOT_FOUND, "there is no such page")
        if request.method != "GET":
            raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is offered")
        async with asyncio.timeout(limit_s):
            return await page()

    return handle
