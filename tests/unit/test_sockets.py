"""Frames over real sockets on the loopback: what every network promises."""

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.base.network import Network
from barnabas.net.sockets import SocketNetwork
from support.network_contract import NetworkContract


class TestSockets(NetworkContract):
    """The machine's TCP network keeps the contract."""

    def run(self, test: Callable[[Network], Awaitable[None]]) -> None:
        asyncio.run(test(SocketNetwork()))
