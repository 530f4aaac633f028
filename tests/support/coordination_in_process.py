"""Our coordination server and clients on the test's own event loop."""

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.net.sockets import SocketNetwork


async def start_server(directory: Path, port: int = 0, *, tick_ms: int = 2000) -> CoordinationServer:
    """A server on the loop; ``port`` 0 takes any."""
    texts = {
        "dataDir": str(directory),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "tickTime": str(tick_ms),
        "maxClientCnxns": "0",
        "forceSync": "no",
    }
    server = CoordinationServer(parse_settings(texts))
    await server.start()
    return server


@contextlib.asynccontextmanager
async def running_server(directory: Path, *, tick_ms: int = 2000) -> AsyncIterator[CoordinationServer]:
    """A server that is closed at the end."""
    server = await start_server(directory, tick_ms=tick_ms)
    try:
        yield server
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def session(address: str, *, timeout_ms: int = 6000) -> AsyncIterator[CoordinationClient]:
    """A connected client that is closed at the end."""
    client = CoordinationClient(SocketNetwork(), address, rng=random.Random(1), session_timeout_ms=timeout_ms)
    await client.start(5000)
    try:
        yield client
    finally:
        await client.close()
