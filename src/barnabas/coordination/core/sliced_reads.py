"""Reads that take long, in slices: other clients are served between two of them.

All reads that are under way get one slice in each turn of the event loop, one after the other. A short read is over with
its first slice, at once if no other is under way. A closed connection ends its read.

In ZooKeeper: the worker threads of `CommitProcessor`.
"""

from collections import deque
from collections.abc import Callable, Generator

from barnabas.coordination.core.connections import ServerConnection

__all__ = ["SlicedRead", "SlicedReads"]


class SlicedRead:
    """One read. Its connection takes no other request until it is answered."""

    __slots__ = ("body", "client", "is_over", "since_ms", "slices", "xid")

    def __init__(
        self, client: ServerConnection, xid: int, slices: Generator[None, None, object | None], since_ms: int
    ) -> None:
        self.client = client
        self.xid = xid
        self.slices = slices
        self.since_ms = since_ms
        self.is_over = False
        self.body: object | None = None
        """Of the reply, when it is over."""

    def advance(self) -> None:
        """Run one slice."""
        try:
            next(self.slices)
        except StopIteration as end:
            self.is_over, self.body = True, end.value


class SlicedReads:
    """The reads of a server that are under way."""

    def __init__(self, answer: Callable[[SlicedRead, int], None]) -> None:
        """``answer`` is called with a read that is over, and the time."""
        self._answer = answer
        self._reads: deque[SlicedRead] = deque()

    def begin(self, read: SlicedRead, now_ms: int) -> None:
        """Run its first slice, unless others wait for their next one."""
        self._reads.append(read)
        if len(self._reads) == 1:
            self._turn(now_ms)

    def _turn(self, now_ms: int) -> None:
        read = self._reads.popleft()
        if not read.client.is_closed:
            read.advance()
            if read.is_over:
                self._answer(read, now_ms)
            else:
                self._reads.append(read)
        if self._reads:
            read.client.transport.soon(self._turn)
