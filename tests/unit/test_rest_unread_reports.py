"""A client of the REST proxy that sends records and reads no reports."""

import asyncio
import socket
import struct

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("fastavro")
pytest.importorskip("jsonschema")

from barnabas.rest.server import RestServer

PATH = "/v3/clusters/c/topics/t/records"
WRONG = b'{"' + b"x" * 100 + b'":1}'
"""Is answered without a broker."""
DEADLINE_S = 60.0


def send_until_nothing_is_taken(port: int) -> socket.socket:
    """A connection whose reports have nowhere to go."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(1.0)
    connection.connect(("127.0.0.1", port))
    head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.sendall(head.encode())
    part = WRONG * 500
    try:
        while True:
            connection.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
    except TimeoutError:
        return connection


def send_one(port: int) -> bytes:
    """The answer to a request with one record."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(WRONG) + WRONG)
        made = b""
        while part := connection.recv(65536):
            made += part
        return made


@pytest.mark.parametrize("closes", [True, False])
def test_a_client_that_reads_no_reports_does_not_keep_its_place(closes: bool) -> None:
    """Whether it goes, or only waits: the next one has the place after a while."""

    async def serve() -> None:
        texts = {"listeners": "http://127.0.0.1:0", "bootstrap.servers": "127.0.0.1:1"}
        server = RestServer({**texts, "produce.requests.max": "1", "request.idle.timeout.ms": "2000"}, lambda _: {})
        await server.start()
        try:
            port = server.listeners[0].port
            connection = await asyncio.to_thread(send_until_nothing_is_taken, port)
            if closes:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            async with asyncio.timeout(DEADLINE_S):
                while (answer := await asyncio.to_thread(send_one, port)).startswith(b"HTTP/1.1 429"):
                    pass
            connection.close()
            assert b'"error_code":400' in answer
        finally:
            await server.close()

    asyncio.run(serve())
