"""Syncs before the acknowledgement: which requests wait, for how many syncs, and
what a failed one costs."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.fetcher import Fetcher, FetchLimits
from barnabas.broker.storage.service import LogSyncs
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import DataPath, Wire, batch

T0 = TopicPartition("t", 0)


class Disk:
    """A thread at a time, which syncs when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.syncs = 0

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.begun.append((work, done))

    def sync(self, error: BaseException | None = None) -> None:
        work, done = self.begun.pop(0)
        if error is None:
            work()
        self.syncs += 1
        done(error)


class Broker:
    """A data path whose syncs are the test's."""

    def __init__(self, directory: Path, **texts: str) -> None:
        self.disk = Disk()
        self.path = DataPath(directory, sync=lambda log: self.syncs.request(log))
        node = self.path
        self.syncs = LogSyncs(self.path.clock, node.timers, self.disk, lambda log: node.replicas.synced(log, 0))
        self.path.configs["t"] = LogConfig(texts)

    def produce(self, wire: Wire, *values: bytes, acks: int = 1) -> None:
        data = PartitionProduceData(index=0, records=bytes(batch(*values)))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        wire.post(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 9)


def answer(wire: Wire) -> Any:
    response = wire.answer()
    return None if response is None else response.responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledgement_and_consumers_wait_for_the_sync(tmp_path: Path, acks: int) -> None:
    """Consumers do not see what could still be lost: the high watermark moves with the sync."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    partition = broker.path.lead("t")
    wire = broker.path.connect()
    broker.produce(wire, b"a", acks=acks)
    assert answer(wire) is None
    assert partition.log.high_watermark == 0
    broker.disk.sync()
    broker.path.timers.advance(0)
    found = answer(wire)
    assert (found.error_code, found.base_offset) == (ErrorCode.NONE, 0)
    assert partition.log.high_watermark == 1


def test_many_producers_share_a_sync(tmp_path: Path) -> None:
    """All appends during one sync are answered after the next; acks 0 waits for none."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    broker.path.lead("t")
    wires = [broker.path.connect() for _ in range(20)]
    for wire in wires:
        broker.produce(wire, b"a")
    broker.disk.sync()
    broker.path.timers.advance(0)
    assert [answer(wire) is not None for wire in wires] == [True] + 19 * [False]
    broker.disk.sync()
    broker.path.timers.advance(0)
    assert [answer(wire).base_offset for wire in wires[1:]] == list(range(1, 20))
    assert (broker.disk.syncs, broker.disk.begun) == (2, [])


def test_every_nth_append_waits_where_flush_messages_is_n(tmp_path: Path) -> None:
    """The number of acknowledged records without a sync never exceeds the limit."""
    broker = Broker(tmp_path, **{"flush.messages": "3"})
    broker.path.lead("t")
    wire = broker.path.connect()
    for expected in (True, True, False):
        broker.produce(wire, b"a")
        assert (answer(wire) is not None) is expected
    broker.disk.sync()
    broker.path.timers.advance(0)
    assert answer(wire).base_offset == 2


def test_a_failed_sync_is_answered_with_an_error_and_never_repeated(tmp_path: Path) -> None:
    """KAFKA_STORAGE_ERROR; the log dir is offline from then on."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    broker.path.lead("t")
    wires = [broker.path.connect() for _ in range(3)]
    for wire in wires:
        broker.produce(wire, b"a")
    broker.disk.sync(OSError(5, "Input/output error"))
    broker.path.timers.advance(0)
    assert [answer(wire).error_code for wire in wires] == 3 * [ErrorCode.KAFKA_STORAGE_ERROR]
    assert broker.disk.begun == []
    assert broker.path.log_dirs.online == []


def test_a_leader_syncs_what_it_has_from_before(tmp_path: Path) -> None:
    """After a start the recovered records are in the page cache alone: consumers
    wait for the sync."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    partition = broker.path.lead("t")
    partition.log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=0)
    broker.path.lead("t", epoch=1)
    assert partition.log.high_watermark == 0
    broker.disk.sync()
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    ("texts", "waits"),
    [({}, False), ({"flush.before.ack": "true"}, True), ({"flush.messages": "3"}, False)],
)
def test_a_follower_acknowledges_records_after_their_sync(tmp_path: Path, texts: dict[str, str], waits: bool) -> None:
    """Its next fetch says that it has them, so that must wait for a sync; without
    the setting it need not."""
    broker = Broker(tmp_path, **texts)
    fetcher = Fetcher(0, FetchLimits(1 << 20, 1 << 20, 1, 500, 1000), lambda name, offset: None, lambda name: None)
    partition = broker.path.lead("t", leader=1, replicas=(0, 1))
    partition.log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=0)
    fetcher.follow(partition)
    assert bool(fetcher.unsynced()) is waits
    called: list[int] = []
    broker.syncs.when_durable(partition.log, partition.log.log_end_offset, lambda: called.append(1))
    assert called == []
    broker.disk.sync()
    assert called == [1]
    assert fetcher.unsynced() == []


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), RuntimeError("no thread")])
def test_a_sync_that_fails_while_the_log_stays_online_is_made_after_a_pause(tmp_path: Path, error: Exception) -> None:
    """A follower that waits for it waits on, and hears of the sync that succeeds,
    without another request."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    partition = broker.path.lead("t", leader=1, replicas=(0, 1))
    partition.log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=0)
    called: list[int] = []
    broker.syncs.when_durable(partition.log, 1, lambda: called.append(1))
    for _ in range(3):
        broker.disk.sync(error)
        assert (called, broker.disk.begun, partition.log.offline) == ([], [], None)
        broker.path.timers.advance(500)
        assert len(broker.disk.begun) == 1
    broker.disk.sync()
    assert (called, partition.log.durability.durable_offset) == ([1], 1)
    broker.path.timers.advance(10_000)
    assert broker.disk.begun == []


def test_requests_that_fail_during_the_pause_plan_one_sync_between_them(tmp_path: Path) -> None:
    """Each request is tried at once; what follows after the pause is one sync, not one for each."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    partition = broker.path.lead("t", leader=1, replicas=(0, 1))
    partition.log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=0)
    shortage = OSError(errno.EMFILE, "Too many open files")
    for _ in range(5):
        broker.syncs.request(partition.log)
        broker.disk.sync(shortage)
    broker.path.timers.advance(500)
    assert len(broker.disk.begun) == 1
    broker.disk.sync(shortage)
    assert broker.disk.begun == []
    broker.path.timers.advance(500)
    assert len(broker.disk.begun) == 1


def test_a_flush_that_is_requested_during_a_sync_follows_it(tmp_path: Path) -> None:
    """No further append is needed for it, and the recovery point moves."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    partition = broker.path.lead("t", leader=1, replicas=(0, 1))
    for _ in range(2):  # the first sync of a new log is a full one
        partition.log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=0)
        broker.syncs.request(partition.log)
        if partition.log.durability.recovery_point == 0:
            broker.disk.sync()
    broker.syncs.flush(partition.log, True)
    broker.disk.sync()
    assert (partition.log.durability.durable_offset, partition.log.durability.recovery_point) == (2, 1)
    broker.disk.sync()
    assert partition.log.durability.recovery_point == 2
    assert broker.disk.begun == []


def test_a_truncation_during_a_sync_has_another_one_follow_for_what_waits(tmp_path: Path) -> None:
    """Records were appended again up to the offset: another sync follows for them, and
    then the callback comes."""
    broker = Broker(tmp_path, **{"flush.before.ack": "true"})
    log = broker.path.lead("t", leader=1, replicas=(0, 1)).log
    for _ in range(2):
        log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=0)
    called: list[int] = []
    broker.syncs.when_durable(log, 2, lambda: called.append(1))
    log.truncate_to(1)
    log.append_as_leader(batch(b"b"), leader_epoch=0, now_ms=0)
    broker.disk.sync()
    assert called == []
    broker.disk.sync()
    assert (called, log.durability.durable_offset, broker.disk.begun) == ([1], 2, [])
