"""Framed connections over real sockets, driven by the event loop's readiness callbacks.

asyncio's transports copy what they read and cannot send a file range in order between buffers. Here a connection is a
non-blocking socket with ``add_reader`` and ``add_writer``:

- Small frames are read many at a time into one scratch buffer that all connections of a network share, so an idle
  connection costs no buffer. Each frame leaves as a buffer of its own.
- A frame larger than what has arrived gets its own buffer. The first eighth is copied out of the scratch buffer; then
  the buffer gets its full size, and the rest is received straight into it. It is never more than eight times what has
  come: a false length costs the peer bandwidth, not our memory. A connection that has sent a frame of this size before
  gets the full size at once. A handler may refuse a large frame by its first bytes; then the rest is thrown away as it comes.
- Sending tries the socket at once; what does not fit waits in a queue and goes when the socket is writable. A range of a
  file that is not in memory waits until a thread has read it (`barnabas.net.cold_reads`).
- Answers to requests that arrived together leave together, up to 16 parts or 64 KiB at a time: one system call costs more
  than deciding a small request.
- Frames that have come together are handed on for some milliseconds; then other connections have their turn.
- A client that sends requests and does not read the answers is not read from either, once a mebibyte waits for it.
"""

import asyncio
import contextlib
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from barnabas.base.files import FileSlice
from barnabas.base.network import HEAD_BYTES, Accept, Connection, FrameHandler, Part, split_frames
from barnabas.net.cold_reads import (
    READ_AHEAD_BYTES,
    ColdReads,
    is_for_sendfile,
    is_in_memory,
    read_at_once,
    read_into_memory,
    read_ranges,
    small_ranges,
)
from barnabas.net.listeners import SocketListener

__all__ = ["SocketNetwork"]

_SCRATCH_BYTES = 256 * 1024
_GROWTH = 8  # how many times what has come a buffer may take
_READ_A_CALL_BYTES = 64 * 1024
_SENDING_S = 0.002
"""So long one connection sends to a reader that is as fast; then others have their turn."""
_DELIVERY_S = 0.005
_IOV_MAX = 64
_COLD_RANGES = 16
"""So many ranges from memory end a reader's way through cold ones: it also meets some that are read ahead."""
_MAX_UNSENT_BYTES = 1024 * 1024
_GATHERED_PARTS = 16
_GATHERED_BYTES = 64 * 1024
_BACKLOG = 1024
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_LENGTH = struct.Struct(">i")


class SocketNetwork:
    """The machine's TCP network, for the running event loop."""

    def __init__(self, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        """Buffer sizes of -1 leave them to the operating system, which grows them as needed."""
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._cold_reads = ColdReads()

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> "SocketListener":
        return await self.listen_for_sockets(
            host, port, lambda connected: self.adopt(connected, accept, max_frame_bytes)
        )

    async def listen_for_sockets(
        self, host: str, port: int, opened: Callable[[socket.socket], None]
    ) -> "SocketListener":
        """Open a port; ``opened`` gets each connection's socket, non-blocking, and may raise OSError."""
        loop = asyncio.get_running_loop()
        if host:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            addresses: list[tuple[int, tuple[object, ...]]] = list(
                dict.fromkeys((family, address[:2]) for family, _, _, _, address in found)
            )
        else:
            addresses = [(socket.AF_INET, ("", port))]
        sockets: list[socket.socket] = []
        try:
            for family, address in addresses:
                if sockets and port == 0:
                    break  # each address would get a port of its own
                sockets.append(self._listening_socket(family, address))
        except OSError:
            for open_socket in sockets:
                open_socket.close()
            raise
        return SocketListener(loop, sockets, opened)

    def adopt(self, connected: socket.socket, accept: Accept, max_frame_bytes: int) -> None:
        """Take over a socket that a listener has accepted. Raises OSError if it is gone."""
        self._open(asyncio.get_running_loop(), connected, accept, max_frame_bytes, max_unsent_bytes=_MAX_UNSENT_BYTES)

    def _listening_socket(self, family: int, address: tuple[object, ...]) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self._set_buffers(listening)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        return listening

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_ms / 1000):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            failure: OSError = ConnectionRefusedError(f"{host} has no address")
            for family, kind, protocol, _, address in found:
                connecting = socket.socket(family, kind, protocol)
                connecting.setblocking(False)
                self._set_buffers(connecting)
                try:
                    await loop.sock_connect(connecting, address)
                except OSError as error:
                    connecting.close()
                    failure = error
                    continue
                except BaseException:
                    connecting.close()
                    raise
                return self._open(loop, connecting, accept, max_frame_bytes, max_unsent_bytes=sys.maxsize)
            raise failure

    def _set_buffers(self, target: socket.socket) -> None:
        if self._send_buffer_bytes >= 0:
            target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes >= 0:
            target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)

    def _open(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        accept: Accept,
        max_frame_bytes: int,
        max_unsent_bytes: int,
    ) -> "_SocketConnection":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _SocketConnection(
            loop, connected, self._scratch, max_frame_bytes, max_unsent_bytes, self._cold_reads
        )
        connection.start(accept(connection))
        return connection


class _Closed:
    """The handler of a closed connection: the two would else refer to each other until garbage is collected."""

    def frame(self, data: memoryview) -> None:
        """A closed connection delivers nothing."""

    def bad_length(self, prefix: bytes) -> None:
        """See `frame`."""

    def closed(self, error: Exception | None) -> None:
        """It was informed."""


_CLOSED = _Closed()


class _SocketConnection:
    __slots__ = (
        "_closed",
        "_closing",
        "_cold_ranges",
        "_cold_reads",
        "_descriptor",
        "_disk_read",
        "_drops",
        "_drops_frame",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_gathers",
        "_handler",
        "_has_writer",
        "_held",
        "_in_memory_bytes",
        "_is_behind",
        "_largest_bytes",
        "_local",
        "_loop",
        "_max_unsent_bytes",
        "_outgoing",
        "_partial",
        "_paused",
        "_peer",
        "_reading",
        "_scratch",
        "_socket",
        "_take_frames",
        "_take_from",
        "_unsent_bytes",
        "_writing",
        "is_stream",
        "max_frame_bytes",
        "on_drained",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        scratch: memoryview,
        max_frame_bytes: int,
        max_unsent_bytes: int,
        cold_reads: ColdReads,
    ) -> None:
        self._loop = loop
        self._max_unsent_bytes = max_unsent_bytes
        self._cold_reads = cold_reads
        self._socket = connected
        self._descriptor = connected.fileno()
        self._scratch = scratch
        self.max_frame_bytes = max_frame_bytes
        self.is_stream = False
        self.on_drained: Callable[[], None] | None = None
        self._peer: tuple[str, int] = connected.getpeername()[:2]
        self._local: tuple[str, int] = connected.getsockname()[:2]
        self._partial = b""  # bytes of frames that arrived while paused, or a piece of a frame
        self._frame: bytearray | None = None  # the large frame that is arriving
        self._frame_bytes = 0
        self._filled = 0
        self._drops_frame = False  # the large frame is refused: its buffer has its head only
        self._largest_bytes = 0  # of the frames that got a buffer and arrived whole
        self._outgoing: deque[Part] = deque()
        self._unsent_bytes = 0
        self._paused = False
        self._held = False  # not reading until what is unsent has left
        self._is_behind = False  # not reading until the frames that have come are delivered
        self._gathers = False  # more frames have arrived: what is sent now may wait for their answers
        self._reading = False
        self._writing = False  # what is unsent leaves when the socket is writable, or the file in memory
        self._has_writer = False
        self._in_memory_bytes = 0  # of the first piece
        self._disk_read: asyncio.Future[Any] | None = None  # while a file is not in memory
        self._cold_ranges = 0  # how many of the next are left to a thread
        self._closing = False
        self._closed = False

    def start(self, handler: FrameHandler) -> None:
        self._handler = handler
        self._take_frames: Callable[[list[bytes]], int] | None = getattr(handler, "take_frames", None)
        self._take_from: Callable[[memoryview, int], int] | None = getattr(handler, "take_from", None)
        self._drops: Callable[[bytes, int], bool] | None = getattr(handler, "drops", None)
        if not self._paused and not self._closed:
            self._read(True)

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    @property
    def local(self) -> tuple[str, int]:
        return self._local

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    @property
    def work(self) -> str:
        """What the handler served last, where it says so: for reports about the event loop."""
        return str(getattr(self._handler, "work", ""))

    # Reading

    def _read(self, wanted: bool) -> None:
        if wanted and not self._reading:
            self._loop.add_reader(self._descriptor, self._readable)
        elif not wanted and self._reading:
            self._loop.remove_reader(self._descriptor)
        self._reading = wanted

    def pause(self) -> None:
        # The reader stays until bytes come while paused: most pauses are over before that, at no cost.
        self._paused = True

    def resume(self) -> None:
        if not self._paused or self._closing or self._closed:
            return
        self._paused = False
        if self._partial:
            # Not from here: the caller may be in the middle of answering the frame before.
            self._loop.call_soon(self._deliver_waiting)
        else:
            self._read(True)

    def _deliver_waiting(self) -> None:
        if self._paused or self._closed:
            return
        self._is_behind = False
        if self._partial:
            waiting, self._partial = self._partial, b""
            self._deliver(memoryview(bytearray(waiting)))
        if not self._paused and not self._held and not self._closed and not self._is_behind:
            self._read(True)

    def _readable(self) -> None:
        if self._paused or self._unsent_bytes > self._max_unsent_bytes:
            self._held = not self._paused
            self._read(False)
            return
        frame = self._frame
        try:
            if frame is not None:
                if len(frame) == self._filled or self._drops_frame:
                    got = self._socket.recv_into(self._scratch[: self._frame_bytes - self._filled])
                else:
                    got = self._socket.recv_into(memoryview(frame)[self._filled :])
            else:
                got = self._socket.recv_into(self._scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._finish(error)
            return
        if not got:
            self._finish(None)
        elif self._drops_frame:
            self._filled += got
            if self._filled == self._frame_bytes:
                self._end_drop()
        elif frame is not None:
            if len(frame) == self._filled:
                frame += self._scratch[:got]
            self._filled += got
            if self._filled == len(frame):
                self._frame_filled(frame)
        elif self._partial:
            waiting, self._partial = self._partial, b""
            self._deliver(memoryview(bytearray(waiting) + self._scratch[:got]))
        else:
            self._deliver(self._scratch[:got])

    def _frame_filled(self, frame: bytearray) -> None:
        """The buffer is full: hand the frame on if it is whole, else make room for all of it once enough has come."""
        if self._filled < self._frame_bytes:
            if self._filled * _GROWTH >= self._frame_bytes:
                self._frame = bytearray(self._frame_bytes)
                self._frame[: self._filled] = frame
            return
        self._frame = None
        if self._filled > self._largest_bytes:
            self._largest_bytes = self._filled
        self._handler.frame(memoryview(frame))

    def _end_drop(self) -> None:
        head, self._frame, self._drops_frame = self._frame, None, False
        self._handler.dropped(bytes(head or b""))  # type: ignore[attr-defined]  # it has `drops`

    def _deliver(self, data: memoryview) -> None:
        """Hand on the whole frames of ``data``; keep the rest. The answers leave together."""
        try:
            self._hand_on(data)
        except BaseException:
            self.close()  # what is behind the frame that failed is not kept, so the next would begin in its middle
            raise
        finally:
            self._gathers = False
            if self._outgoing and not self._writing and not self._closed:
                self._flush()

    def _hand_on(self, data: memoryview) -> None:
        if self.is_stream:
            self._handler.frame(memoryview(bytearray(data)))
            return
        position = 0
        end = len(data)
        deadline_s = time.perf_counter() + _DELIVERY_S
        while end - position >= 4:
            if self._paused:
                break
            if self._unsent_bytes > self._max_unsent_bytes:
                self._held = True
                self._read(False)
                break
            if position and time.perf_counter() > deadline_s:
                self._go_on_later()
                break
            (frame_bytes,) = _LENGTH.unpack_from(data, position)
            if not 0 <= frame_bytes <= self.max_frame_bytes:
                prefix = bytes(data[position : position + 12])
                self.pause()
                self._read(False)
                self._handler.bad_length(prefix)
                return
            stop = position + 4 + frame_bytes
            if stop > end:
                have = end - position - 4
                if frame_bytes > len(self._scratch) // 4 and (have >= HEAD_BYTES or self._drops is None):
                    self._frame_bytes, self._filled = frame_bytes, have
                    head = data[position + 4 : position + 4 + HEAD_BYTES]
                    if self._drops is not None and self._drops(bytes(head), frame_bytes):
                        self._frame, self._drops_frame = bytearray(head), True
                        return
                    has_room = frame_bytes <= max(have * _GROWTH, self._largest_bytes)
                    frame = bytearray(frame_bytes if has_room else have)
                    frame[:have] = data[position + 4 :]
                    self._frame = frame
                    return
                break
            taken = self._hand_on_together(data, position)
            if taken == position:
                taken = stop
                self._gathers = stop < end
                self._handler.frame(memoryview(bytearray(data[position + 4 : stop])))
            if self._closed:
                return
            position = taken
        if position < end:
            self._partial = bytes(data[position:])

    def _hand_on_together(self, data: memoryview, position: int) -> int:
        """The end of the frames from ``position`` on that the handler took together; ``position`` for none.

        The first frame is whole.
        """
        self._gathers = True  # `_deliver` flushes
        if self._take_from is not None:
            return self._take_from(data, position)
        if self._take_frames is not None:
            frames = split_frames(data, position, self.max_frame_bytes)
            taken = self._take_frames(frames)
            position += 4 * taken + sum(map(len, frames[:taken]))
        return position

    def _go_on_later(self) -> None:
        """Deliver the rest when others have had their turn; nothing more is read until then."""
        self._is_behind = True
        self._read(False)
        self._loop.call_soon(self._deliver_waiting)

    # Sending

    def send(self, parts: Sequence[Part]) -> None:
        if self._closed:
            return
        for part in parts:
            size = len(part)
            if size:
                self._outgoing.append(part)
                self._unsent_bytes += size
        if self._writing:
            return
        if self._gathers and len(self._outgoing) < _GATHERED_PARTS and self._unsent_bytes < _GATHERED_BYTES:
            return  # `_deliver` flushes
        self._flush()

    def _flush(self) -> None:
        """Send until the socket takes no more, or for some time; then wait for it to be writable."""
        outgoing = self._outgoing
        deadline_s = 0.0
        try:
            while outgoing:
                first = outgoing[0]
                if isinstance(first, FileSlice) and is_for_sendfile(first):
                    blocked = self._send_slice(first)
                else:
                    blocked = self._send_buffers()
                if not blocked and outgoing:
                    now_s = time.perf_counter()
                    deadline_s = deadline_s or now_s + _SENDING_S  # most are sent in one call, without a clock
                    blocked = now_s >= deadline_s
                if blocked:
                    self._go_on_when_writable()
                    return
        except (BlockingIOError, InterruptedError):
            self._go_on_when_writable()
            return
        except OSError as error:
            # Not from here: the caller of `send` does not expect `closed` meanwhile.
            self._loop.call_soon(self._finish, error)
            return
        if self._writing:
            self._writing = False
            self._stop_writer()
            if self._held:
                self._held = False
                self._loop.call_soon(self._deliver_waiting)
            if self.on_drained is not None and not self._closing:
                self._loop.call_soon(self.on_drained)
        if self._closing:
            self._finish(None)

    def _go_on_when_writable(self) -> None:
        self._writing = True
        if not self._has_writer and self._disk_read is None:
            self._has_writer = True
            self._loop.add_writer(self._descriptor, self._flush)

    def _stop_writer(self) -> None:
        if self._has_writer:
            self._has_writer = False
            self._loop.remove_writer(self._descriptor)

    def _send_buffers(self) -> bool:
        outgoing = self._outgoing
        batch: list[Part] = []
        more = 0
        room_bytes = _READ_A_CALL_BYTES
        for number, part in enumerate(outgoing):
            if isinstance(part, FileSlice):
                if room_bytes <= 0 or is_for_sendfile(part):
                    more = _MSG_MORE
                    break
                # One call for many small ranges and what stands between them is cheaper than sendfile for each.
                room_bytes -= part.size
                data = read_at_once(part)
                if data is None:
                    more = _MSG_MORE
                    break
                part = outgoing[number] = data
            batch.append(part)
            if len(batch) == _IOV_MAX:
                break
        if not batch:
            self._begin_disk_read(read_ranges, small_ranges(islice(outgoing, _IOV_MAX)), self._take_small_ranges)
            return True
        if len(batch) == 1:
            sent = self._socket.send(batch[0], more)  # type: ignore[arg-type]  # no slices in the batch
        else:
            sent = self._socket.sendmsg(batch, (), more)  # type: ignore[arg-type]  # likewise
        self._unsent_bytes -= sent
        while batch and sent >= len(outgoing[0]):
            sent -= len(outgoing.popleft())
            del batch[0]
            if not batch:
                return False
        outgoing[0] = memoryview(outgoing[0]).cast("B")[sent:]  # type: ignore[arg-type]  # likewise
        return True

    def _send_slice(self, piece: FileSlice) -> bool:
        descriptor = piece.file.fileno()
        assert descriptor is not None
        if self._in_memory_bytes <= 0:
            ahead_bytes = min(piece.size, READ_AHEAD_BYTES)
            if self._cold_ranges or not is_in_memory(descriptor, piece.offset, ahead_bytes):
                ahead = FileSlice(piece.file, piece.offset, ahead_bytes)
                self._begin_disk_read(read_into_memory, ahead, self._take_range_in_memory)
                return True
            self._in_memory_bytes = ahead_bytes
        wanted_bytes = min(piece.size, self._in_memory_bytes)
        sent = os.sendfile(self._descriptor, descriptor, piece.offset, wanted_bytes)
        if not sent:
            raise OSError(f"{piece.file!r} ended {piece.size} bytes early")
        self._unsent_bytes -= sent
        self._in_memory_bytes -= sent
        if sent == piece.size:
            self._outgoing.popleft()
            self._in_memory_bytes = 0
        else:
            self._outgoing[0] = FileSlice(piece.file, piece.offset + sent, piece.size - sent)
        return sent < wanted_bytes

    def _begin_disk_read(self, read: Callable[[Any], Any], what: Any, take: Callable[[Any], None]) -> None:
        self._disk_read = self._cold_reads.begin(self._loop, read, what)
        self._stop_writer()
        self._disk_read.add_done_callback(partial(self._disk_read_ended, take))

    def _disk_read_ended(self, take: Callable[[Any], None], done: "asyncio.Future[Any]") -> None:
        self._disk_read = None
        if self._closed or done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._finish(error if isinstance(error, Exception) else None)
            return
        take(done.result())
        self._flush()

    def _take_small_ranges(self, read: list[bytes]) -> None:
        for number, part in enumerate(islice(self._outgoing, _IOV_MAX)):  # nothing was sent meanwhile
            if read and isinstance(part, FileSlice):
                self._outgoing[number] = read.pop(0)

    def _take_range_in_memory(self, has_waited: bool) -> None:
        # It is sent, even if it was dropped from memory again meanwhile.
        self._in_memory_bytes = min(len(self._outgoing[0]), READ_AHEAD_BYTES)
        self._cold_ranges = _COLD_RANGES if has_waited else max(self._cold_ranges - 1, 0)

    # Closing

    def close(self, *, after_sending: bool = False) -> None:
        if self._closed:
            return
        if self._closing:
            if not after_sending:  # it was to wait for a peer that does not read
                self._loop.call_soon(self._finish, None)
            return
        self._closing = True
        self._paused = True
        self._read(False)
        if not after_sending or not self._outgoing:
            self._loop.call_soon(self._finish, None)

    def _finish(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._read(False)
        self._stop_writer()
        if self._disk_read is not None:
            self._disk_read.cancel()
        self._outgoing.clear()
        self._unsent_bytes = 0
        self._partial = b""
        self._frame = None
        with contextlib.suppress(OSError):
            self._socket.close()
        self.on_drained = self._take_frames = self._take_from = self._drops = None
        handler, self._handler = self._handler, _CLOSED
        handler.closed(error)
