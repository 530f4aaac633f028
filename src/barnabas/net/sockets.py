"""Framed connections over real sockets, driven by the event loop's readiness callbacks.

asyncio's transports copy what they read and cannot send a file range in order between buffers. Here
a connection is a non-blocking socket with ``add_reader`` and ``add_writer``:

- Small frames are read many at a time into one scratch buffer that all connections of a network
  share, so an idle connection costs no buffer. Each frame leaves as a buffer of its own.
- A frame larger than what has arrived gets its own buffer. The first eighth is copied out of the
  scratch buffer; then the buffer gets its full size, and the rest is received straight into it. It
  is never more than eight times what has come: a false length costs the peer bandwidth, not our
  memory. A connection that has sent a frame of this size before gets the full size at once. Buffers
  of up to a megabyte are used again (`barnabas.net.receive_buffers`). A handler may refuse a large
  frame by its first bytes; then the rest is thrown away as it comes.
- `barnabas.net.socket_sending` sends: at once what the socket takes, the rest when it is writable.
  A range of a file that is not in memory waits until a thread has read it
  (`barnabas.net.cold_reads`).
- Answers to requests that arrived together leave together, up to 16 parts or 64 KiB at a time: one
  system call costs more than deciding a small request.
- Frames that have come together are handed on for some milliseconds; then other
  connections have their turn.
- A client that sends requests and does not read the answers is not read from either, once
  a mebibyte waits for it.
- What waits for all accepted connections together, of requests that are not whole and of answers
  that are not read, can have a limit (`barnabas.net.waiting_bytes`).
"""

import asyncio
import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping

from barnabas.base.memory import new_buffer
from barnabas.base.network import HEAD_BYTES, Accept, Connection, FrameHandler, Standing, split_frames
from barnabas.net.cold_reads import (
    ColdReads,
)
from barnabas.net.connection_states import BEHIND, CLOSED, CLOSING, OVER_BUDGET, PAUSED, UNSENT
from barnabas.net.listeners import SocketListener
from barnabas.net.memory_budget import BudgetState
from barnabas.net.receive_buffers import ReceiveBuffers
from barnabas.net.socket_sending import SendingSocket
from barnabas.net.waiting_bytes import Account, WaitingBytes, unlimited

__all__ = ["MAX_UNSENT_BYTES", "SocketNetwork"]

_SCRATCH_BYTES = 256 * 1024
_GROWTH = 8  # how many times what has come a buffer may take
_DELIVERY_S = 0.005
MAX_UNSENT_BYTES = 1024 * 1024
"""What a connection that was accepted may have to send before it reads no more."""
_MAPPED_FROM_BYTES = 1024 * 1024
"""The memory of frames from this size on goes back to the system with them."""
_BACKLOG = 1024
_LENGTH = struct.Struct(">i")


class SocketNetwork:
    """The machine's TCP network, for the running event loop."""

    def __init__(
        self,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        limits: Mapping[Standing, WaitingBytes] | None = None,
    ) -> None:
        """Buffer sizes of -1 leave them to the operating system, which grows them as needed.

        ``limits`` are of what waits for accepted connections, each made with
        `MAX_UNSENT_BYTES`; None for no limits."""
        self._limits = limits or unlimited(MAX_UNSENT_BYTES)
        self._no_limits = unlimited(sys.maxsize)
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._buffers = ReceiveBuffers(self._limits[Standing.CLIENT])
        self._cold_reads = ColdReads()

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> "SocketListener":
        return await self.listen_for_sockets(
            host, port, lambda connected: self.adopt(connected, accept, max_frame_bytes)
        )

    async def listen_for_sockets(
        self, host: str, port: int, opened: Callable[[socket.socket], None]
    ) -> "SocketListener":
        """Open a port; ``opened`` gets each connection's socket, non-blocking, and
        may raise OSError."""
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
        self._open(asyncio.get_running_loop(), connected, accept, max_frame_bytes, self._limits)

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
                return self._open(loop, connecting, accept, max_frame_bytes, self._no_limits)
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
        limits: Mapping[Standing, WaitingBytes],
    ) -> "_SocketConnection":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _SocketConnection(
            loop, connected, self._scratch, self._buffers, max_frame_bytes, limits, self._cold_reads
        )
        connection.start(accept(connection))
        return connection


class _Closed:
    """The handler of a closed connection: the two would otherwise refer to each other until garbage
    is collected."""

    def frame(self, data: memoryview) -> None:
        """A closed connection delivers nothing."""

    def bad_length(self, prefix: bytes) -> None:
        """See `frame`."""

    def closed(self, error: Exception | None) -> None:
        """It was informed."""


_CLOSED = _Closed()


class _SocketConnection(SendingSocket):
    __slots__ = (
        "_buffers",
        "_drops",
        "_drops_frame",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_handler",
        "_keeps_input",
        "_largest_bytes",
        "_limits",
        "_local",
        "_partial",
        "_peer",
        "_reading",
        "_scratch",
        "_take_frames",
        "_take_from",
        "_waiting",
        "is_stream",
        "max_frame_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        scratch: memoryview,
        buffers: ReceiveBuffers,
        max_frame_bytes: int,
        limits: Mapping[Standing, WaitingBytes],
        cold_reads: ColdReads,
    ) -> None:
        super().__init__(loop, connected, Account(self, limits, Standing.CLIENT), cold_reads)
        self._limits = limits
        self._waiting = limits[Standing.CLIENT]
        self._scratch = scratch
        self._buffers = buffers
        self.max_frame_bytes = max_frame_bytes
        self.is_stream = False
        self._peer: tuple[str, int] = connected.getpeername()[:2]
        self._local: tuple[str, int] = connected.getsockname()[:2]
        self._partial = b""  # bytes of frames that arrived while paused, or a piece of a frame
        self._frame: bytearray | memoryview | None = None  # the large frame that is arriving
        self._frame_bytes = 0
        self._filled = 0
        self._drops_frame = False  # the large frame is refused: its buffer has its head only
        self._largest_bytes = 0  # of the frames that got a buffer and arrived whole
        self._keeps_input = False
        self._reading = False

    def start(self, handler: FrameHandler) -> None:
        self._handler = handler
        self._take_frames: Callable[[list[bytes]], int] | None = getattr(handler, "take_frames", None)
        self._take_from: Callable[[memoryview, int], int] | None = getattr(handler, "take_from", None)
        self._drops: Callable[[bytes, int], bool] | None = getattr(handler, "drops", None)
        if not self._stops:
            self._read(True)

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    @property
    def local(self) -> tuple[str, int]:
        return self._local

    @property
    def work(self) -> str:
        """What the handler served last, where it says so: for reports about the event loop."""
        return str(getattr(self._handler, "work", ""))

    # What waits

    @property
    def standing(self) -> Standing:
        return self.account.standing

    @standing.setter
    def standing(self, standing: Standing) -> None:
        if standing is not self.account.standing:
            self.account.move(self._limits, standing)
            self._waiting = self._limits[standing]
            if self._stops & OVER_BUDGET:
                self.go_on()

    @property
    def served_bytes(self) -> int:
        return self.account.served_bytes

    @served_bytes.setter
    def served_bytes(self, served_bytes: int) -> None:
        if not self._stops & CLOSED:
            self.account.hold_served(served_bytes)

    @property
    def has_room(self) -> bool:
        return self._waiting.has_room

    def go_on(self) -> None:
        """There is room for more."""
        self._stops &= ~OVER_BUDGET
        if not self._stops & CLOSED:
            self._loop.call_soon(self._deliver_waiting)

    def hold_input(self, held_bytes: int, wanted_bytes: int = 0, *, is_excused: bool = False) -> None:
        """So much of what has come is kept here, or above: see `Account.hold_input`.

        It may end the reading until `go_on`."""
        self._keeps_input = held_bytes > 0
        if not self._stops & CLOSED and not self.account.hold_input(held_bytes, wanted_bytes, is_excused=is_excused):
            self._stop(OVER_BUDGET)

    # Reading

    def _read(self, wanted: bool) -> None:
        if wanted and not self._reading:
            self._loop.add_reader(self._descriptor, self._readable)
        elif not wanted and self._reading:
            self._loop.remove_reader(self._descriptor)
        self._reading = wanted

    def _stop(self, reason: int) -> None:
        """Read nothing more for this reason."""
        self._stops |= reason
        self._read(False)

    def pause(self) -> None:
        # The reader stays until bytes come while paused: most pauses are over before
        # that, at no cost.
        self._stops |= PAUSED

    def resume(self) -> None:
        stops = self._stops
        if not stops & PAUSED or stops >= CLOSING:
            return
        self._stops = stops = stops ^ PAUSED
        if self._partial:
            # Not from here: the caller may be in the middle of answering the frame before.
            self._loop.call_soon(self._deliver_waiting)
        elif not stops:
            self._read(True)

    def _deliver_waiting(self) -> None:
        self._stops &= ~BEHIND
        if self._stops:
            return
        if self._partial:
            waiting, self._partial = self._partial, b""
            self._deliver(memoryview(bytearray(waiting)))
        if not self._stops:
            self._read(True)

    def _reads_at_most(self) -> int:
        """How much may be read where there is a reason to read nothing, or little.

        0 for nothing, which ends the reading."""
        if self._stops:
            self._read(False)
        elif self._unsent_bytes > MAX_UNSENT_BYTES and not self.account.is_unlimited:
            self._stop(UNSENT)
        elif most := self.account.read_bytes():
            return most
        else:
            self._stop(OVER_BUDGET)
        return 0

    def _must_wait(self) -> bool:
        """Whether no request can be served where there is a reason for that."""
        if self._unsent_bytes > MAX_UNSENT_BYTES and not self.account.is_unlimited:
            self._stop(UNSENT)
        elif self._waiting.state is BudgetState.FULL and not self.account.has_turn:
            self._stop(OVER_BUDGET)
            self._waiting.leave_outside(self.account)
        else:
            return False
        return True

    def _readable(self) -> None:
        scratch = self._scratch
        if self._stops or self._unsent_bytes > self._waiting.most_unsent_bytes:
            most = self._reads_at_most()
            if not most:
                return
            scratch = scratch[:most]
        frame = self._frame
        try:
            if frame is None:
                got = self._socket.recv_into(scratch)
            else:
                got = self._socket.recv_into(self._place_for(frame, scratch))
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
                frame += self._scratch[:got]  # type: ignore[operator]  # of its full size it is never filled here
            self._filled += got
            if self._filled == len(frame):
                self._frame_filled(frame)
            else:
                self.hold_input(self._filled, self._frame_bytes)
        elif self._partial:
            waiting, self._partial = self._partial, b""
            self._deliver(memoryview(bytearray(waiting) + self._scratch[:got]))
        else:
            self._deliver(self._scratch[:got])

    def _place_for(self, frame: bytearray | memoryview, scratch: memoryview) -> memoryview:
        """Where the next bytes of a large frame are to come: into its buffer, if
        that has its full size."""
        filled = self._filled
        if len(frame) == filled or self._drops_frame:
            return scratch[: self._frame_bytes - filled]
        if len(scratch) < _SCRATCH_BYTES:  # little may be read
            return memoryview(frame)[filled : filled + len(scratch)]
        return memoryview(frame)[filled:]

    def _frame_filled(self, frame: bytearray | memoryview) -> None:
        """The buffer is full: hand the frame on if it is whole, else make room for all of
        it once enough has come."""
        if self._filled < self._frame_bytes:
            if self._filled * _GROWTH >= self._frame_bytes:
                self._frame = self._whole_buffer()
                self._frame[: self._filled] = frame
            self.hold_input(self._filled, self._frame_bytes)
            return
        self._frame = None
        self.hold_input(0)
        if self._filled > self._largest_bytes:
            self._largest_bytes = self._filled
        self._handler.frame(memoryview(frame))

    def _whole_buffer(self) -> bytearray | memoryview:
        """A buffer for all of the frame that is arriving."""
        size_bytes = self._frame_bytes
        if self.account.standing is not Standing.STRANGER and (lent := self._buffers.take(size_bytes)) is not None:
            return lent
        return new_buffer(size_bytes) if size_bytes >= _MAPPED_FROM_BYTES else bytearray(size_bytes)

    def _end_drop(self) -> None:
        head, self._frame, self._drops_frame = self._frame, None, False
        self._handler.dropped(bytes(head or b""))  # type: ignore[attr-defined]  # it has `drops`

    def _deliver(self, data: memoryview) -> None:
        """Hand on the whole frames of ``data``; keep the rest. The answers leave together."""
        try:
            self._hand_on(data)
        except BaseException:
            # What follows the failed frame is not kept, so the next frame would
            # begin in its middle.
            self.close()
            raise
        finally:
            self._gathers = False
            if self._outgoing and not self._writing and not self._stops & CLOSED:
                self._flush()

    def _hand_on(self, data: memoryview) -> None:
        if self.is_stream:
            self._handler.frame(memoryview(bytearray(data)))
            return
        position = wanted_bytes = 0
        end = len(data)
        deadline_s = time.perf_counter() + _DELIVERY_S
        while end - position >= 4:
            if self._stops:
                break
            if self._unsent_bytes > self._waiting.most_unsent_bytes and self._must_wait():
                break
            if position and time.perf_counter() > deadline_s:
                self._go_on_later()
                break
            (frame_bytes,) = _LENGTH.unpack_from(data, position)
            if not 0 <= frame_bytes <= self.max_frame_bytes:
                prefix = bytes(data[position : position + 12])
                self._stop(PAUSED)
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
                        self.hold_input(0)
                        return
                    has_room = frame_bytes <= max(have * _GROWTH, self._largest_bytes)
                    frame = self._whole_buffer() if has_room else bytearray(have)
                    frame[:have] = data[position + 4 :]
                    self._frame = frame
                    self.hold_input(have, frame_bytes)
                    return
                wanted_bytes = stop - position
                break
            taken = self._hand_on_together(data, position)
            if taken == position:
                taken = stop
                self._gathers = stop < end
                self._handler.frame(memoryview(bytearray(data[position + 4 : stop])))
            position = taken
        if self._stops & CLOSED:
            return
        if position < end:
            self._partial = bytes(data[position:])
            is_behind = bool(self._stops)
            self.hold_input(end - position, 0 if is_behind else wanted_bytes, is_excused=is_behind)
        elif self._keeps_input:
            self.hold_input(0)

    def _hand_on_together(self, data: memoryview, position: int) -> int:
        """The end of the frames from ``position`` on that the handler took together.

        ``position`` for none. The first frame is whole.
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
        self._stop(BEHIND)
        self._loop.call_soon(self._deliver_waiting)

    # Closing

    def close(self, *, after_sending: bool = False) -> None:
        if self._stops & CLOSED:
            return
        if self._stops & CLOSING:
            if not after_sending:  # it was to wait for a peer that does not read
                self._loop.call_soon(self._finish, None)
            return
        self._stop(CLOSING)
        if not after_sending or not self._outgoing:
            self._loop.call_soon(self._finish, None)

    def _finish(self, error: Exception | None) -> None:
        if self._stops & CLOSED:
            return
        self._stop(CLOSED)
        self._stop_writer()
        if self._disk_read is not None:
            self._disk_read.cancel()
        self._outgoing.clear()
        self._unsent_bytes = 0
        self._partial = b""
        self._frame = None
        self.account.close()
        with contextlib.suppress(OSError):
            self._socket.close()
        self.on_drained = self._take_frames = self._take_from = self._drops = None
        handler, self._handler = self._handler, _CLOSED
        handler.closed(error)
