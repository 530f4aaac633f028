"""The sending half of a connection over a socket: what waits, in order, and how it leaves.

The socket is tried at once; what does not fit waits in a queue and goes when the socket is
writable. Ranges of files go by sendfile, or are read with what stands between them if they are
small; one that is not in memory waits until a thread has read it (`barnabas.net.cold_reads`).
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from barnabas.base.files import FileSlice
from barnabas.base.memory import rest_of
from barnabas.base.network import Part
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
from barnabas.net.connection_states import CLOSED, CLOSING, UNSENT
from barnabas.net.waiting_bytes import Account

__all__ = ["SendingSocket"]

_READ_A_CALL_BYTES = 64 * 1024
_SENDING_S = 0.002
"""So long one connection sends to a reader that is as fast; then others have their turn."""
_IOV_MAX = 64
_COLD_RANGES = 16
"""After this many ranges from memory in a row a reader counts as past the cold ones: among those it
also meets some that were read ahead."""
_GATHERED_PARTS = 16
_GATHERED_BYTES = 64 * 1024
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class SendingSocket:
    """What a connection has to send. The other half reads, and ends the connection."""

    __slots__ = (
        "_cold_ranges",
        "_cold_reads",
        "_descriptor",
        "_disk_read",
        "_extra_bytes",
        "_file_bytes",
        "_gathers",
        "_has_writer",
        "_in_memory_bytes",
        "_loop",
        "_outgoing",
        "_socket",
        "_stops",
        "_unsent_bytes",
        "_writing",
        "account",
        "on_drained",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connected: socket.socket, account: Account, cold_reads: ColdReads
    ) -> None:
        self._loop = loop
        self._socket = connected
        self._descriptor = connected.fileno()
        self.account = account
        self._cold_reads = cold_reads
        self.on_drained: Callable[[], None] | None = None
        self._outgoing: deque[Part] = deque()
        self._unsent_bytes = 0
        self._file_bytes = 0  # of these, what is in files
        self._extra_bytes = 0  # what the layer above has to send through this connection
        # More frames have arrived: what is sent now may wait for their answers.
        self._gathers = False
        # Unsent data leaves when the socket is writable, or when the file is in memory.
        self._writing = False
        self._has_writer = False
        self._in_memory_bytes = 0  # of the first piece
        self._disk_read: asyncio.Future[Any] | None = None  # while a file is not in memory
        self._cold_ranges = 0  # how many of the next are left to a thread
        self._stops = 0  # why nothing is read: see `barnabas.net.connection_states`

    def _deliver_waiting(self) -> None:
        """Read again: what was to be sent has left."""
        raise NotImplementedError

    def _finish(self, error: Exception | None) -> None:
        """The connection has ended."""
        raise NotImplementedError

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    def hold_extra(self, extra_bytes: int) -> None:
        """So much is to be sent later through this connection."""
        if not self._stops & CLOSED and extra_bytes != self._extra_bytes:
            self._extra_bytes = extra_bytes
            self._hold_output()

    def _hold_output(self) -> None:
        self.account.hold_output(self._unsent_bytes - self._file_bytes + self._extra_bytes)

    def send(self, parts: Sequence[Part]) -> None:
        if self._stops & CLOSED:
            return
        for part in parts:
            size = len(part)
            if size:
                self._outgoing.append(part)
                self._unsent_bytes += size
                if part.__class__ is FileSlice:
                    self._file_bytes += size
        if self._writing:
            self._hold_output()
            return
        if self._gathers and len(self._outgoing) < _GATHERED_PARTS and self._unsent_bytes < _GATHERED_BYTES:
            return  # `_deliver` flushes
        self._flush()

    def _flush(self) -> None:
        """Send until the socket takes no more, or for some time; then wait for it to
        be writable."""
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
                    # Most data is sent in one call, which needs no clock.
                    deadline_s = deadline_s or now_s + _SENDING_S
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
            self._hold_output()
            if self._stops & UNSENT:
                self._stops ^= UNSENT
                self._loop.call_soon(self._deliver_waiting)
            if self.on_drained is not None and not self._stops & CLOSING:
                self._loop.call_soon(self.on_drained)
        if self._stops & CLOSING:
            self._finish(None)

    def _go_on_when_writable(self) -> None:
        self._writing = True
        self._hold_output()
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
                # One call for many small ranges and what stands between them is
                # cheaper than sendfile for each.
                room_bytes -= part.size
                data = read_at_once(part)
                if data is None:
                    more = _MSG_MORE
                    break
                self._file_bytes -= part.size
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
        outgoing[0] = rest_of(memoryview(outgoing[0]).cast("B"), sent)  # type: ignore[arg-type]  # likewise
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
        self._file_bytes -= sent
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
        if self._stops & CLOSED or done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._finish(error if isinstance(error, Exception) else None)
            return
        take(done.result())
        self._flush()

    def _take_small_ranges(self, read: list[bytes]) -> None:
        # Nothing was sent meanwhile.
        for number, part in enumerate(islice(self._outgoing, _IOV_MAX)):
            if read and isinstance(part, FileSlice):
                self._file_bytes -= part.size
                self._outgoing[number] = read.pop(0)

    def _take_range_in_memory(self, has_waited: bool) -> None:
        # It is sent, even if it was dropped from memory again meanwhile.
        self._in_memory_bytes = min(len(self._outgoing[0]), READ_AHEAD_BYTES)
        self._cold_ranges = _COLD_RANGES if has_waited else max(self._cold_ranges - 1, 0)
