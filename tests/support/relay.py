"""TCP relays between processes, to cut a network where it is wanted and to heal it.

A cut holds bytes back in both directions, as a network does that loses packets: connections stay,
new ones are taken by the kernel and hear nothing, and when it heals everything held goes on its
way, the end of a connection too. A trickle lets answers through byte by byte: a server that is
never silent, and never done.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable
from typing import Self

CHUNK = 65536
_CLIENT_ID = struct.Struct(">ihhih")


class Relay:
    """From a port of its own to another, on a thread of its own; a context manager."""

    def __init__(self, port: int, target_port: int) -> None:
        self.port = port
        self._target_port = target_port
        self._held: Callable[[str], bool] = _no_host
        self._byte_s = 0.0
        self._passages: set[_Passage] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"relay {port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        opening = asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, held: Callable[[str], bool] = lambda _: True) -> None:
        """Hold connections of the Kafka client ids for which ``held`` is true ("" while none
        was sent); by default all."""
        self._set(held)

    def trickle(self, byte_s: float) -> None:
        """From now on each byte of an answer takes this long."""
        self._byte_s = byte_s

    def heal(self) -> None:
        self._byte_s = 0.0
        self._set(_no_host)

    @property
    def byte_s(self) -> float:
        """What a byte of an answer takes."""
        return self._byte_s

    def _set(self, held: Callable[[str], bool]) -> None:
        async def change() -> None:
            self._held = held
            for passage in self._passages:
                passage.judge()

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(30)

    def holds(self, client_id: str) -> bool:
        return self._held(client_id)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = _Passage(self)
        self._passages.add(passage)
        passage.task = asyncio.current_task()
        try:
            await passage.run(reader, writer, self._target_port)
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone, or the relay is
        finally:
            self._passages.discard(passage)
            writer.close()

    async def _close(self) -> None:
        self._server.close()
        tasks = [passage.task for passage in self._passages if passage.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Passage:
    """One connection through a relay."""

    def __init__(self, relay: Relay) -> None:
        self.task: asyncio.Task[None] | None = None
        self._relay = relay
        self._client_id = ""
        self._open = asyncio.Event()
        self.judge()

    def judge(self) -> None:
        if self._relay.holds(self._client_id):
            self._open.clear()
        else:
            self._open.set()

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target_port: int) -> None:
        await self._open.wait()
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", target_port)
        forth = asyncio.ensure_future(self._pump(reader, target_writer, sends=True))
        back = asyncio.ensure_future(self._pump(target_reader, writer))
        try:
            await asyncio.wait((forth, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            target_writer.close()
            for pump in (forth, back):
                pump.cancel()
            await asyncio.gather(forth, back, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, sends: bool = False) -> None:
        """One direction; the one that ``sends`` requests begins with the client id."""
        listens = sends
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if listens:
                    self._client_id = client_id(data)
                    self.judge()
                    listens = False
                await self._open.wait()
                if self._relay.byte_s and not sends:
                    await self._trickle(data, writer)
                    continue
                writer.write(data)
                await writer.drain()
        await self._open.wait()

    async def _trickle(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(self._relay.byte_s)


def client_id(first_frame: bytes) -> str:
    """Of a Kafka request; "" for anything else."""
    if len(first_frame) < _CLIENT_ID.size:
        return ""
    *_, length = _CLIENT_ID.unpack_from(first_frame)
    return first_frame[_CLIENT_ID.size : _CLIENT_ID.size + max(length, 0)].decode(errors="replace")


def _no_host(_: str) -> bool:
    return False
