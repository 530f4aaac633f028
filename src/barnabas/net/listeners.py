"""Listening sockets.

A listener stops accepting before connections take the descriptors that files need
(`barnabas.net.descriptors`); peers then wait in the backlog. It accepts again when
descriptors are free.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from barnabas.net.descriptors import connection_ceiling, is_out_of_descriptors

__all__ = ["SocketListener", "close_server"]

logger = logging.getLogger(__name__)

_ACCEPTS_A_TURN = 64
_ACCEPT_PAUSE_S = 0.1
_SILENCE_S = 60  # between two log lines about the same lack of descriptors
_TURNS_UNTIL_HANDED_ON = 3
"""Of the loop, in which asyncio hands on a connection that it has accepted."""


class SocketListener:
    """The sockets of one address."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        opened: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._opened = opened
        self._port: int = sockets[0].getsockname()[1]
        self._ceiling = connection_ceiling()
        self._silent_until_s = 0.0
        for listening in sockets:
            loop.add_reader(listening.fileno(), self._ready, listening)

    @property
    def port(self) -> int:
        return self._port

    def _ready(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                connected, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, str(error))
                return
            connected.setblocking(False)
            descriptor = connected.fileno()
            try:
                self._opened(connected)
            except OSError:
                connected.close()  # reset before we looked at it
            if descriptor >= self._ceiling:
                self._pause(listening, f"descriptor {descriptor} is in use, those from {self._ceiling} are for files")
                return

    def _pause(self, listening: socket.socket, reason: str) -> None:
        """Leave peers in the backlog until there is room.

        The listener is not polled meanwhile: that would spin."""
        now_s = self._loop.time()
        if now_s >= self._silent_until_s:
            logger.warning(
                "Port %d does not accept connections for lack of descriptors (%s). Raise the limit (ulimit -n), or lower "
                "the number of connections or partitions",
                self._port,
                reason,
            )
        self._silent_until_s = now_s + _SILENCE_S
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening not in self._sockets:
            return
        if is_out_of_descriptors(listening.fileno(), self._ceiling):
            self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again, listening)
        else:
            self._loop.add_reader(listening.fileno(), self._ready, listening)

    async def close(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()


async def close_server(server: asyncio.Server) -> None:
    """Close a server of asyncio.

    It would leave connections that it has accepted, and has yet to hand on when it is closed, to
    the garbage collector (https://github.com/python/cpython/issues/109564). So it accepts none for
    some turns of the loop before.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS_UNTIL_HANDED_ON):
        await asyncio.sleep(0)
    server.close()
