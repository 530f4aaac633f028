"""Faults of one server inside a process: its links are cut, its disk is slow, full or
broken, its clock is wrong.

Each server of a `barnabas.testing.Cluster` gets a `ServerFaults`, whose network, files and clock
stand before the real ones. Without a fault they pass everything on. Links are cut at the side that
connects: what both sides send waits, as bytes do that no router forwards, and arrives when the
links are whole again; new connections wait until they time out.
"""

import asyncio
import errno
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from barnabas.base.clock import SystemClock
from barnabas.base.files import Buffer, File, Files, OsFiles
from barnabas.base.network import Connection, FrameHandler, Listener, Network, Part, Standing
from barnabas.net.sockets import SocketNetwork

__all__ = ["DiskFaults", "FaultyFiles", "FaultyNetwork", "ServerFaults", "ShiftedClock"]

_CHANGES_FILES = frozenset(("write_atomically", "make_dirs", "rename", "remove", "remove_tree", "sync_dir"))
_TRY_AGAIN_S = 0.02


class ShiftedClock(SystemClock):
    """The machine's clocks, with a wall clock that is wrong by ``shift_ms``."""

    __slots__ = ("shift_ms",)

    def __init__(self) -> None:
        self.shift_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.shift_ms


class DiskFaults:
    """What a disk does to every call: it takes longer, or fails."""

    __slots__ = ("delay_s", "error")

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.error = 0
        """An errno, or 0: ENOSPC for whatever changes the disk, EIO for everything."""

    def change(self) -> None:
        """Before a call that changes the disk."""
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))

    def look(self) -> None:
        """Before a call that only reads."""
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.error == errno.EIO:
            raise OSError(self.error, os.strerror(self.error))


class _FaultyFile:
    """An open file on a disk with faults."""

    __slots__ = ("_disk", "_inner")

    def __init__(self, inner: File, disk: DiskFaults) -> None:
        self._inner = inner
        self._disk = disk

    def size(self) -> int:
        return self._inner.size()

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.look()
        return self._inner.read_at(offset, size)

    def append(self, parts: Sequence[Buffer]) -> None:
        self._disk.change()
        self._inner.append(parts)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._disk.change()
        self._inner.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.change()
        self._inner.truncate(size)

    def sync(self) -> None:
        self._disk.change()
        self._inner.sync()

    def fileno(self) -> int | None:
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()


class FaultyFiles:
    """A file system whose disk has faults; a `barnabas.base.files.Files`."""

    def __init__(self, inner: Files, disk: DiskFaults) -> None:
        self._inner = inner
        self._disk = disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        """Like `barnabas.base.files.Files.open`."""
        if create:
            self._disk.change()
        else:
            self._disk.look()
        return _FaultyFile(self._inner.open(path, create=create, read_only=read_only, keep=keep), self._disk)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        before = self._disk.change if name in _CHANGES_FILES else self._disk.look

        def guarded(*arguments: Any, **options: Any) -> Any:
            before()
            return call(*arguments, **options)

        setattr(self, name, guarded)
        return guarded


class _Link:
    """A connection that this server opened; while it is held, bytes of both sides wait."""

    def __init__(self, inner: Connection, port: int) -> None:
        self._inner = inner
        self._waiting: list[Sequence[Part]] | None = None
        self._is_paused = False
        self.port = port
        """The one that was connected to."""

    @property
    def max_frame_bytes(self) -> int:
        return self._inner.max_frame_bytes

    @max_frame_bytes.setter
    def max_frame_bytes(self, value: int) -> None:
        self._inner.max_frame_bytes = value

    @property
    def is_stream(self) -> bool:
        return self._inner.is_stream

    @is_stream.setter
    def is_stream(self, value: bool) -> None:
        self._inner.is_stream = value

    @property
    def standing(self) -> Standing:
        return self._inner.standing

    @standing.setter
    def standing(self, value: Standing) -> None:
        self._inner.standing = value

    @property
    def served_bytes(self) -> int:
        return self._inner.served_bytes

    @served_bytes.setter
    def served_bytes(self, value: int) -> None:
        self._inner.served_bytes = value

    @property
    def has_room(self) -> bool:
        return self._inner.has_room

    @property
    def on_drained(self) -> Callable[[], None] | None:
        return self._inner.on_drained

    @on_drained.setter
    def on_drained(self, value: Callable[[], None] | None) -> None:
        self._inner.on_drained = value

    @property
    def peer(self) -> tuple[str, int]:
        return self._inner.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._inner.local

    @property
    def unsent_bytes(self) -> int:
        waiting = self._waiting or ()
        return self._inner.unsent_bytes + sum(len(part) for parts in waiting for part in parts)

    def send(self, parts: Sequence[Part]) -> None:
        if self._waiting is None:
            self._inner.send(parts)
        else:
            self._waiting.append(parts)

    def pause(self) -> None:
        self._is_paused = True
        self._inner.pause()

    def resume(self) -> None:
        self._is_paused = False
        if self._waiting is None:
            self._inner.resume()

    def close(self, *, after_sending: bool = False) -> None:
        self._inner.close(after_sending=after_sending and self._waiting is None)

    def hold(self) -> None:
        """Let nothing pass."""
        if self._waiting is None:
            self._waiting = []
            self._inner.pause()

    def release(self) -> None:
        """Let pass what waits, and all that follows."""
        waiting, self._waiting = self._waiting, None
        for parts in waiting or ():
            self._inner.send(parts)
        if waiting and not self._inner.unsent_bytes and self._inner.on_drained is not None:
            self._inner.on_drained()
        if waiting is not None and not self._is_paused:
            self._inner.resume()


class FaultyNetwork:
    """A network in which the links from one server to some ports are cut.

    A `barnabas.base.network.Network`. Used on the loop of its server only, but for `is_cut`,
    which any thread may answer.
    """

    def __init__(self, inner: Network, is_cut: Callable[[int], bool]) -> None:
        self._inner = inner
        self._is_cut = is_cut
        self._links: weakref.WeakSet[_Link] = weakref.WeakSet()
        self._is_dead = False

    async def listen(
        self, host: str, port: int, accept: Callable[[Connection], FrameHandler], *, max_frame_bytes: int
    ) -> Listener:
        """Like `barnabas.base.network.Network.listen`."""
        return await self._inner.listen(host, port, accept, max_frame_bytes=max_frame_bytes)

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[Connection], FrameHandler],
        *,
        max_frame_bytes: int,
        timeout_ms: int,
    ) -> Connection:
        """Like `barnabas.base.network.Network.connect`; where the link is cut, it
        waits and then times out."""
        end = time.monotonic() + timeout_ms / 1000
        while self._is_cut(port) and not self._is_dead:
            if time.monotonic() >= end:
                raise TimeoutError(f"no answer from {host}:{port} within {timeout_ms} ms: the link is cut")
            await asyncio.sleep(_TRY_AGAIN_S)
        links: list[_Link] = []

        def accept_link(connection: Connection) -> FrameHandler:
            links.append(_Link(connection, port))
            return accept(links[0])

        if self._is_dead:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the server was killed")
        left_ms = max(1, round((end - time.monotonic()) * 1000))
        await self._inner.connect(host, port, accept_link, max_frame_bytes=max_frame_bytes, timeout_ms=left_ms)
        self._links.add(links[0])
        self._hold_or_release(links[0])
        return links[0]

    def update(self) -> None:
        """Hold the links that are cut now, release the others."""
        for link in tuple(self._links):
            self._hold_or_release(link)

    def _hold_or_release(self, link: _Link) -> None:
        if self._is_cut(link.port):
            link.hold()
        else:
            link.release()

    def kill(self) -> None:
        """Close every link, as the system does for a process that is killed.

        No other one can be opened."""
        self._is_dead = True
        for link in tuple(self._links):
            link.close()


class ServerFaults:
    """The network, the files and the clock of one server, and what is wrong with them."""

    def __init__(self, is_cut: Callable[[int], bool]) -> None:
        self.disk = DiskFaults()
        self.clock = ShiftedClock()
        self.network = FaultyNetwork(SocketNetwork(), is_cut)
        self.files = cast("Files", FaultyFiles(OsFiles(), self.disk))
        """`FaultyFiles` finds most of its methods when they are called."""

    def heal(self) -> None:
        """The disk and the clock are right again."""
        self.disk.delay_s, self.disk.error, self.clock.shift_ms = 0.0, 0, 0
