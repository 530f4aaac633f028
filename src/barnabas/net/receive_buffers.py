"""Buffers for large frames, which are used again.

A buffer that is made for each frame of a megabyte costs more than the checksum of the frame: the C
library takes its pages from the system and gives them back, the system clears each at its first
use, and Python clears them a second time. So a network keeps a few buffers of one size, which holds
a Produce request with the largest batch that brokers accept by default.

A handler keeps a frame for as long as it likes and never says when it is done: a request may wait
for a thread, or for its turn. Python knows: it refuses to resize a bytearray while there is a view
of it. So a buffer is lent again only when no view of it is left, and a handler that keeps its frame
for ever keeps one buffer from being used.

- There are at most `MOST_BUFFERS`, fewer where they would take more than a share of what may wait
  in memory, and they count as bytes that wait.
- When memory is short, none is lent, and those that are free are given up.
- Those that were not needed for `BUFFER_IDLE_S` are given up, and the C library is
  asked to return their memory.

In Kafka: `BufferSupply`, and `SimpleMemoryPool`, whose buffers are given back by the
request that has them.
"""

import asyncio
import contextlib

from barnabas.base.memory import return_memory
from barnabas.net.memory_budget import Pile, PileKind
from barnabas.net.waiting_bytes import WaitingBytes

__all__ = ["BUFFER_BYTES", "BUFFER_IDLE_S", "MOST_BUFFERS", "ReceiveBuffers"]

BUFFER_BYTES = (1024 + 64) * 1024
"""The default message.max.bytes, and room for what stands before the batch."""
MOST_BUFFERS = 8
BUFFER_IDLE_S = 2.0
_LEAST_SHARE = 8
"""All buffers together take at most one part in this many of what may wait."""


class ReceiveBuffers:
    """The buffers of one network, for the running event loop."""

    __slots__ = ("_buffers", "_is_used", "_most_buffers", "_pile", "_timer", "_waiting")

    def __init__(self, waiting: WaitingBytes) -> None:
        """``waiting`` is the limit that they count in."""
        self._waiting = waiting
        self._most_buffers = min(MOST_BUFFERS, waiting.budget.limit_bytes // _LEAST_SHARE // BUFFER_BYTES)
        self._buffers: list[bytearray] = []
        self._pile = Pile(self, PileKind.SERVICE)
        self._is_used = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """What all of them take, lent or not."""
        return BUFFER_BYTES * len(self._buffers)

    def take(self, size_bytes: int) -> memoryview | None:
        """A buffer of this size with any contents, which is free again when no view of it is left.

        None if there is none."""
        if size_bytes > BUFFER_BYTES:
            return None
        if self._waiting.most_unsent_bytes < 0:  # memory is short
            self._give_up_free_ones()
            return None
        for buffer in self._buffers:
            if _is_free(buffer):
                break
        else:
            if len(self._buffers) >= self._most_buffers:
                return None
            buffer = bytearray(BUFFER_BYTES)
            self._buffers.append(buffer)
            self._count()
        self._is_used = True
        if self._timer is None:
            self._look_later()
        return memoryview(buffer)[:size_bytes]

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(BUFFER_IDLE_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._is_used:
            self._is_used = False
            self._look_later()
            return
        if self._give_up_free_ones():
            with contextlib.suppress(RuntimeError):  # the executor has ended
                asyncio.get_running_loop().run_in_executor(None, return_memory)
        if self._buffers:
            self._look_later()

    def _give_up_free_ones(self) -> bool:
        """Whether there were any."""
        lent = [buffer for buffer in self._buffers if not _is_free(buffer)]
        if len(lent) == len(self._buffers):
            return False
        self._buffers = lent
        self._count()
        return True

    def _count(self) -> None:
        self._waiting.hold(self._pile, self.held_bytes)


def _is_free(buffer: bytearray) -> bool:
    """Whether there is no view of a buffer: Python would not resize it.

    Neither step moves or copies it."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
