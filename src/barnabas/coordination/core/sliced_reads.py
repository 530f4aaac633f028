"""Reads that take long, in slices: other clients are served between two of them.

Some reads are under way at a time, as tasks of a lane (`barnabas.base.tasks`). The others follow in
order, while there is room for their replies. So not all replies of very many clients are in memory
together. A short read is over with its first slice. A closed connection ends its read.

A read that looked at the tree at its begin, and only encodes, keeps its place among what its client
gets: events and replies that come meanwhile wait behind it (`RepliesBehind`). They belong to later
zxids, and a client library has the read's watch only when it has the reply.

In ZooKeeper: the worker threads of `CommitProcessor`.
"""

from collections.abc import Callable, Generator

from barnabas.base.tasks import Runner, Task
from barnabas.coordination.core.connections import ServerConnection, Transport

__all__ = ["RepliesBehind", "SlicedRead", "SlicedReads"]

_MOST_UNDER_WAY = 4


class RepliesBehind:
    """A transport that keeps what comes behind a reply which is not ready."""

    __slots__ = ("_closes", "_frames", "_is_over", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._frames: list[bytes | bytearray] = []
        self._closes = self._is_over = False

    def finish(self, frame: bytearray) -> None:
        """Send the reply, and what waits behind it; from now on nothing waits."""
        self._is_over = True
        transport = self._transport
        transport.send(frame)
        for each in self._frames:
            transport.send(each)
        self._frames = []
        transport.release()
        if self._closes:
            transport.close()

    def inner(self) -> Transport:
        """What it is put around, once it is over."""
        transport: Transport = self
        while isinstance(transport, RepliesBehind) and transport._is_over:
            transport = transport._transport
        return transport

    def send(self, frames: bytes | bytearray) -> None:
        if self._is_over:
            self._transport.send(frames)
        else:
            self._frames.append(frames)

    @property
    def takes_requests(self) -> bool:
        return self._transport.takes_requests

    @property
    def has_room(self) -> bool:
        return self._transport.has_room

    def hold(self) -> None:
        self._transport.hold()

    def release(self) -> None:
        self._transport.release()

    def close(self) -> None:
        if self._is_over:
            self._transport.close()
        else:
            self._closes = True


class SlicedRead:
    """One read. Its connection takes no other request until it is answered."""

    __slots__ = ("behind", "body", "client", "is_over", "since_ms", "slices", "xid", "zxid")

    def __init__(
        self,
        client: ServerConnection,
        xid: int,
        slices: Generator[None, None, object | None],
        since_ms: int,
        zxid: int | None = None,
    ) -> None:
        """``zxid`` is that of the state which was read, for a read that only encodes."""
        self.client = client
        self.xid = xid
        self.slices = slices
        self.since_ms = since_ms
        self.zxid = zxid
        self.is_over = False
        self.body: object | None = None
        """The body of the reply, when it is over."""
        self.behind: RepliesBehind | None = None
        """Where replies wait behind this one."""

    def advance(self) -> None:
        """Run one slice."""
        try:
            next(self.slices)
        except StopIteration as end:
            self.is_over, self.body = True, end.value

    def keep_place(self) -> None:
        """Have all else that the client gets wait for the reply, and take no more
        requests meanwhile."""
        self.client.transport.hold()
        self.client.transport = self.behind = RepliesBehind(self.client.transport)


class SlicedReads:
    """The reads of a server that are under way."""

    def __init__(
        self,
        answer: Callable[[SlicedRead, int], None],
        failed: Callable[[SlicedRead, Exception], None],
        runner: Runner,
    ) -> None:
        """``answer`` is called with a read that is over, and the time; ``failed`` with what it
        raised."""
        self._answer = answer
        self._failed = failed
        self._runner = runner
        self._lane = runner.lane(_MOST_UNDER_WAY, _has_room)

    def begin(self, read: SlicedRead) -> None:
        """Run its first slice, unless others wait for their next one."""
        self._lane.start(self._run(read), failed=self._fail, about=read)
        if read.zxid is not None and not read.is_over:
            read.keep_place()

    def _run(self, read: SlicedRead) -> Task[None]:
        while not read.client.is_closed:
            read.advance()
            if read.is_over:
                self._answer(read, self._runner.now_ms())
                return
            yield None

    def _fail(self, read: SlicedRead, error: Exception) -> None:
        read.is_over = True
        self._failed(read, error)


def _has_room(read: SlicedRead) -> bool:
    return read.client.is_closed or read.client.transport.has_room
