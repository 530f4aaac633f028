"""Reads that take long: how many are under way, and what they wait for."""

from collections.abc import Generator

from barnabas.base.tasks import Runner
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.sliced_reads import SlicedRead, SlicedReads
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from support.broker import ManualTimers
from support.coordination_processor import Recorder, ShortSlices
from support.slicing import thread_at_once


class Reads:
    """Reads of clients, and what became of them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.failed: list[tuple[int, Exception]] = []
        self.transports: list[Recorder] = []
        self.timers = ManualTimers(ShortSlices())
        self.reads = SlicedReads(
            lambda read, _: self.ended.append(read.xid),
            lambda read, error: self.failed.append((read.xid, error)),
            Runner(self.timers.clock, self.timers, thread_at_once),
        )

    def begin(self, slices: int, *, has_room: bool = True) -> ServerConnection:
        number, transport = len(self.transports), Recorder()
        transport.has_room = has_room
        self.transports.append(transport)
        client = ServerConnection(transport, "127.0.0.1", 1, 0)

        def work() -> Generator[None, None, None]:
            self.begun.append(number)
            for _ in range(slices - 1):
                yield

        self.reads.begin(SlicedRead(client, number, work(), 0))
        return client

    def turn(self) -> None:
        self.timers.advance(10)


def test_some_reads_are_under_way_at_a_time_and_all_come_to_their_end() -> None:
    """Their replies are not all in memory together; those under way get their slices in turn."""
    reads = Reads()
    for _ in range(20):
        reads.begin(3)
    while len(reads.ended) < 20:
        assert len(reads.begun) - len(reads.ended) <= 4
        reads.turn()
    assert reads.begun == reads.ended == list(range(20))
    assert not reads.timers.pending


def test_a_read_does_not_begin_while_there_is_no_room_for_its_reply() -> None:
    """Those under way go on; one whose client is gone waits for nothing."""
    reads = Reads()
    reads.begin(3)
    gone = reads.begin(1, has_room=False)
    waiting = reads.begin(1, has_room=False)
    gone.is_closed = True
    for _ in range(10):
        reads.turn()
    assert reads.ended == [0]
    waiting.transport.has_room = True
    reads.turn()
    assert reads.ended == [0, 2]


def test_a_read_that_fails_is_reported_and_ends() -> None:
    """In its first slice, or in a later one; the others go on."""
    reads = Reads()

    def work(slices: int) -> Generator[None, None, None]:
        for _ in range(slices):
            yield
        raise KeeperError(ErrorCode.NO_NODE)

    for number in range(2):
        client = ServerConnection(Recorder(), "127.0.0.1", 1, 0)
        reads.reads.begin(SlicedRead(client, 7 + number, work(number), 0))
    reads.begin(1)
    reads.turn()
    reads.turn()
    assert [(xid, error.code) for xid, error in reads.failed] == [(7, ErrorCode.NO_NODE), (8, ErrorCode.NO_NODE)]
    assert reads.ended == [0]
