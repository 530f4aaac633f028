"""Reads that take long: how many are under way, and what they wait for."""

from collections.abc import Generator

from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.sliced_reads import SlicedRead, SlicedReads
from support.coordination_processor import Recorder


class Reads:
    """Reads of clients, and what became of them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.transports: list[Recorder] = []
        self.reads = SlicedReads(lambda read, now_ms: self.ended.append(read.xid))

    def begin(self, slices: int) -> ServerConnection:
        number, transport = len(self.transports), Recorder()
        self.transports.append(transport)
        client = ServerConnection(transport, "127.0.0.1", 1, 0)

        def work() -> Generator[None, None, None]:
            self.begun.append(number)
            for _ in range(slices - 1):
                yield

        self.reads.begin(SlicedRead(client, number, work(), 0), 0)
        return client

    def turn(self) -> None:
        for transport in self.transports:
            later, transport.later = transport.later, []
            for work in later:
                work(0)


def test_some_reads_are_under_way_at_a_time_and_all_come_to_their_end() -> None:
    """Their replies are not all in memory together; those under way get their slices in turn."""
    reads = Reads()
    for _ in range(20):
        reads.begin(3)
    while len(reads.ended) < 20:
        assert len(reads.begun) - len(reads.ended) <= 4
        reads.turn()
    assert reads.begun == reads.ended == list(range(20))
    assert not any(transport.later for transport in reads.transports)


def test_a_read_does_not_begin_while_there_is_no_room_for_its_reply() -> None:
    """Those under way go on; one whose client is gone waits for nothing."""
    reads = Reads()
    reads.begin(3)
    gone = reads.begin(1)
    waiting = reads.begin(1)
    for client in (gone, waiting):
        client.transport.has_room = False
    gone.is_closed = True
    for _ in range(10):
        reads.turn()
    assert reads.ended == [0]
    waiting.transport.has_room = True
    reads.turn()
    assert reads.ended == [0, 2]
