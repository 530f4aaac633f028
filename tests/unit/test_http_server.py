"""The HTTP port of servers for operators: strange bytes, slow readers, and too many at once."""

import asyncio
import logging
import random
import socket
from collections.abc import Callable

import pytest

from barnabas.net.http import HttpResponse
from barnabas.net.http_server import HttpServer, metrics_handler
from support.unclosed import closes_all

LARGE = HttpResponse(200, "text/plain", b"x" * (16 << 20))
GET = b"GET /metrics HTTP/1.1\r\n\r\n"
LIMIT_S = 0.3


def serve(use: Callable[[int], None], page: HttpResponse = LARGE, limit_s: float = LIMIT_S) -> None:
    """Run a server of one page on this thread's loop while ``use(port)`` runs on another."""

    async def made() -> HttpResponse:
        return page

    async def run() -> None:
        server = HttpServer(metrics_handler(made, limit_s), limit_s)
        await server.open("127.0.0.1", 0, "test")
        try:
            await asyncio.to_thread(use, server.port)
        finally:
            await server.close()
        with pytest.raises(RuntimeError, match="no port"):
            _ = server.port

    asyncio.run(run())


def connect(port: int, *, small_window: bool = False) -> socket.socket:
    opened = socket.socket()
    if small_window:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.settimeout(60)
    opened.connect(("127.0.0.1", port))
    return opened


def read_all(opened: socket.socket) -> bytes:
    """What comes until the server closes the connection, in order or not."""
    found = bytearray()
    try:
        while part := opened.recv(1 << 20):
            found += part
    except ConnectionResetError:
        pass
    return bytes(found)


def ask(port: int, request: bytes) -> bytes:
    with connect(port) as opened:
        opened.sendall(request)
        return read_all(opened)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GET, b"200 OK"),
        (b"GET /metrics?name[]=up HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400 Bad Request"),
        (b"GET //[ HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics?" + b"a=1&" * 50 + b"a=1 HTTP/1.1\r\n\r\n", b"400 Bad Request"),
    ],
    ids=["page", "parameters", "other path", "post", "tls", "no url", "many parameters"],
)
def test_a_request_is_answered_with_its_status(request_bytes: bytes, status: bytes) -> None:
    """What is no request for the page gets the reason and the end of the connection."""

    def use(port: int) -> None:
        head = ask(port, request_bytes).partition(b"\r\n")[0]
        assert head == b"HTTP/1.1 " + status

    serve(use, HttpResponse(200, "text/plain", b"up 1.0\n"), 60)


def test_a_request_that_does_not_end_is_refused() -> None:
    """With the status that says why; what the client sends behind the limit is not waited for."""

    def use(port: int) -> None:
        # The server reads all of it before it answers. With more, the connection could be reset
        # before the answer is read.
        answer = ask(port, b"GET /metrics HTTP/1.1\r\na: ".ljust(8192 + 4, b"b"))
        assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")

    serve(use, HttpResponse(200, "text/plain", b"up 1.0\n"), 60)


def test_after_any_bytes_the_page_is_served(caplog: pytest.LogCaptureFixture) -> None:
    """Random bytes, cut requests and connections without any leave nothing behind,
    and no error in the log."""
    rng = random.Random(7)

    def use(port: int) -> None:
        for _ in range(100):
            with connect(port) as opened:
                kept = rng.randrange(len(GET))
                opened.sendall(rng.choice([rng.randbytes(rng.randrange(3000)), GET[:kept] + b"\0" * kept, b""]))
                opened.shutdown(socket.SHUT_WR)
                read_all(opened)  # so the server has done with it: it serves 32 at once
        assert ask(port, GET).endswith(b"up 1.0\n")

    with caplog.at_level(logging.WARNING):
        serve(use, HttpResponse(200, "text/plain", b"up 1.0\n"), 60)
    assert not caplog.records


def test_slow_readers_and_writers_are_cut_off_and_others_are_served_then() -> None:
    """As many connections as there may be are opened and stay silent, or ask and do not read; the
    next gets 503, later the page."""

    def use(port: int) -> None:
        slow_readers = [connect(port, small_window=True) for _ in range(16)]
        for opened in slow_readers:
            opened.sendall(GET)
            # Their time runs, and ends before that of those that come after.
            opened.recv(1, socket.MSG_PEEK)
        silent = [connect(port) for _ in range(16)]
        assert b"503 Service Unavailable" in ask(port, GET)
        for opened in silent + slow_readers:  # ends when the server has given them up
            assert len(read_all(opened)) < len(LARGE.body)
            opened.close()
        assert ask(port, GET).endswith(LARGE.body)

    serve(use, limit_s=5.0)


def test_a_page_that_is_not_made_in_time_is_given_up() -> None:
    """Prometheus has left by then: connections that wait for a page must not keep their places."""

    async def never() -> HttpResponse:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def use(port: int) -> None:
        assert ask(port, GET) == b""

    async def run() -> None:
        server = HttpServer(metrics_handler(never, 0.01), 3600)
        await server.open("127.0.0.1", 0, "test")
        await asyncio.to_thread(use, server.port)
        await server.close()

    asyncio.run(run())


def test_a_close_does_not_wait_for_readers() -> None:
    """An answer that no client takes is given up."""
    left: list[socket.socket] = []

    def use(port: int) -> None:
        left.append(connect(port, small_window=True))
        left[0].sendall(GET)
        assert left[0].recv(1)

    serve(use, limit_s=3600)
    with left[0] as opened:
        assert len(read_all(opened)) < len(LARGE.body)


@pytest.mark.parametrize("turns", range(6))
def test_a_close_closes_connections_that_have_just_come(turns: int) -> None:
    """However far the loop has come with them."""

    async def made() -> HttpResponse:
        return LARGE

    async def run() -> bytes:
        server = HttpServer(metrics_handler(made, 3600), 3600)
        await server.open("127.0.0.1", 0, "test")
        with connect(server.port) as opened:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            return read_all(opened) if turns else b""

    with closes_all():
        assert asyncio.run(run()) == b""
