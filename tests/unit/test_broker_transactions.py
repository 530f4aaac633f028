"""Transactions in a partition, through dispatch and codec: produce, markers, and
what readers see."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.frames import encode_request
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.wire.kafka.records.batch_header import read_headers
from support.broker import DATA_PATH_APIS, START_MS, DataPath, batch
from support.transaction_coordinators import name_coordinators

T = TopicPartition("t", 0)
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class TransactionPath(DataPath):
    """A data path with the partition side of transactions."""

    def __init__(self, directory: Path, *args: Any, **options: Any) -> None:
        super().__init__(directory, *args, **options)
        name_coordinators(self.metadata, 0)
        self.serve((*DATA_PATH_APIS, "write_txn_markers"))
        self.wire = self.connect()

    def produce(self, records: bytes, *, transactional_id: str | None = "pay") -> tuple[E, int]:
        """The error and offset of a batch for t-0, whose transaction the coordinator confirms."""
        self.wire.post(produce_request(records, transactional_id), 9)
        while self.coordinators.asked:
            self.coordinators.confirm()
        ((answer,),) = (topic.partition_responses for topic in self.wire.answer().responses)
        return E(answer.error_code), answer.base_offset

    def end(self, *, is_commit: bool, producer_id: int = 7, **fields: int) -> E:
        """Write a marker to t-0."""
        response = self.wire.ask(markers(marker(is_commit=is_commit, producer_id=producer_id, **fields)), 2)
        return codes(response)[producer_id, "t", 0]

    def fetch(self, offset: int = 0, isolation: int = READ_COMMITTED) -> PartitionData:
        return self.wire.ask(fetch_request(offset, isolation), 12).responses[0].partitions[0]

    def end_offset(self, isolation: int, *, replica_id: int = -1) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name="t", partitions=[partition])],
        )
        return self.wire.ask(request, 7).topics[0].partitions[0].offset


def produce_request(records: bytes, transactional_id: str | None = "pay", acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=500,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )


def fetch_request(offset: int, isolation: int, max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


def transactional(sequence: int = 0, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def marker(
    *,
    is_commit: bool = True,
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    topics: tuple[tuple[str, list[int]], ...] = (("t", [0]),),
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def markers(*each: WritableTxnMarker) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=list(each))


def codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], E]:
    return {
        (each.producer_id, topic.name, partition.partition_index): E(partition.error_code)
        for each in response.markers
        for topic in each.topics
        for partition in topic.partitions
    }


def offsets(data: PartitionData) -> list[int]:
    """The base offsets of the batches that were read."""
    return [header.base_offset for _, header in read_headers(bytes(data.records))]


def aborted(data: PartitionData) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []]


@pytest.fixture
def path(tmp_path: Path) -> TransactionPath:
    made = TransactionPath(tmp_path)
    made.lead("t")
    return made


# Produce


def test_requests_of_a_connection_keep_their_order_while_the_first_waits_for_the_coordinator(
    path: TransactionPath,
) -> None:
    """Those behind it are not even read; another connection is served meanwhile."""
    wire = path.connect()
    frames = b""
    for number, records in enumerate((transactional(0), transactional(1), batch(b"plain"))):
        request = produce_request(records, "pay" if number < 2 else None)
        frames += b"".join(bytes(part) for part in encode_request(request, 9, number, "test"))
    data = memoryview(bytearray(frames))
    position = wire.handler.take_from(data, 0)
    assert wire.is_paused
    assert position < len(data)
    assert (
        path.wire.ask(produce_request(batch(b"another"), None), 9).responses[0].partition_responses[0].base_offset == 0
    )
    path.coordinators.confirm()
    assert not wire.is_paused
    while position < len(data):
        position = wire.handler.take_from(data, position)
    answers = b"".join(wire.sent)
    assert path.replicas.partition(T).log.log_end_offset == 4
    correlation_ids = []
    while answers:
        size = int.from_bytes(answers[:4], "big") + 4
        correlation_ids.append(int.from_bytes(answers[4:8], "big"))
        answers = answers[size:]
    assert correlation_ids == [0, 1, 2]


def test_a_client_that_goes_while_its_batch_is_verified_is_answered_no_more(path: TransactionPath) -> None:
    """Its batch is appended all the same: it may have sent the next one elsewhere."""
    wire = path.connect()
    wire.post(produce_request(transactional()), 9)
    wire.close()
    path.coordinators.confirm()
    assert wire.sent == []
    assert path.replicas.partition(T).log.log_end_offset == 1


def test_a_batch_without_acks_that_is_not_verified_closes_the_connection(path: TransactionPath) -> None:
    """That is the only sign there is."""
    wire = path.connect()
    wire.post(produce_request(transactional(), acks=0), 9)
    path.coordinators.confirm({T: E.INVALID_PRODUCER_ID_MAPPING})
    assert (wire.sent, wire.is_closed) == ([], True)
    assert path.replicas.partition(T).log.log_end_offset == 0


def test_clients_must_not_write_markers(path: TransactionPath) -> None:
    """In a transaction of their own or outside of one."""
    control = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True, is_control=True)
    assert path.produce(control) == (E.INVALID_RECORD, -1)
    outside = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_control=True)
    assert path.produce(outside, transactional_id=None) == (E.INVALID_RECORD, -1)


# Markers


def test_each_partition_of_a_marker_has_its_outcome(path: TransactionPath) -> None:
    """Partitions that are not here, or led elsewhere, do not keep the others from theirs."""
    path.lead("t", 1, leader=1, replicas=(0, 1))
    path.produce(transactional())
    request = markers(
        marker(topics=(("t", [0, 1, 2, 0]), ("missing", [0]))), marker(producer_id=8), marker(producer_id=-1)
    )
    found = codes(path.wire.ask(request, 1))
    assert found == {
        (7, "t", 0): E.NONE,
        (7, "t", 1): E.NOT_LEADER_OR_FOLLOWER,
        (7, "t", 2): E.UNKNOWN_TOPIC_OR_PARTITION,
        (7, "missing", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        (8, "t", 0): E.NONE,
        (-1, "t", 0): E.INVALID_REQUEST,
    }
    assert path.replicas.partition(T).log.log_end_offset == 3  # named twice, written once


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_write_txn_markers_ends_a_transaction(path: TransactionPath, version: int) -> None:
    """The versions differ in form only, for transactions of version 1."""
    path.produce(transactional())
    assert codes(path.wire.ask(markers(marker()), version)) == {(7, "t", 0): E.NONE}
    assert path.replicas.partition(T).log.last_stable_offset == 2


def test_markers_of_old_coordinators_and_fenced_producers_are_refused(path: TransactionPath) -> None:
    """Those that come again are taken: a coordinator that got no answer repeats them."""
    path.produce(transactional(epoch=3))
    assert path.end(is_commit=True, epoch=2) == E.INVALID_PRODUCER_EPOCH
    assert path.end(is_commit=False, epoch=4, coordinator_epoch=5) == E.NONE
    assert path.end(is_commit=False, epoch=4, coordinator_epoch=5) == E.NONE
    assert path.end(is_commit=True, epoch=4, coordinator_epoch=4) == E.TRANSACTION_COORDINATOR_FENCED
    assert path.end(is_commit=True, epoch=3, coordinator_epoch=6) == E.INVALID_PRODUCER_EPOCH
    assert path.produce(transactional(1, epoch=3))[0] == E.INVALID_PRODUCER_EPOCH
    assert path.produce(transactional(0, epoch=4)) == (E.NONE, 3)


def test_a_late_marker_does_not_end_a_transaction_with_an_epoch_of_its_own(path: TransactionPath) -> None:
    """Since transaction.version 2 the marker of a transaction has a later epoch than
    its batches."""
    path.produce(transactional(epoch=1))
    assert path.end(is_commit=True, epoch=1, version=2) == E.INVALID_PRODUCER_EPOCH
    assert path.end(is_commit=True, epoch=2, version=2) == E.NONE
    assert path.end(is_commit=True, epoch=2, version=2) == E.NONE  # repeated


def test_markers_wait_for_the_replicas(tmp_path: Path) -> None:
    """Until all in sync have them, or the request's time is over; then the
    coordinator repeats them."""
    path = TransactionPath(tmp_path, {"request.timeout.ms": "1000"})
    path.lead("t", replicas=(0, 1), isr=(0, 1))
    path.wire.post(markers(marker()), 1)
    assert path.wire.answer() is None
    path.replicas.follower_fetched(T, 1, 1, 0, path.clock.monotonic_ms())
    path.timers.advance(0)
    assert codes(path.wire.answer()) == {(7, "t", 0): E.NONE}
    path.wire.post(markers(marker()), 1)
    path.timers.advance(1000)
    assert codes(path.wire.answer()) == {(7, "t", 0): E.REQUEST_TIMED_OUT}


def test_markers_need_the_in_sync_replicas_that_records_need(tmp_path: Path) -> None:
    """Else a marker could be lost with the only replica that has it."""
    path = TransactionPath(tmp_path)
    path.configs["t"] = LogConfig({"min.insync.replicas": "2"})
    path.lead("t", replicas=(0, 1), isr=(0,))
    assert path.end(is_commit=True) == E.NOT_ENOUGH_REPLICAS


def test_a_request_without_markers_is_answered(path: TransactionPath) -> None:
    """With nothing; a marker that names no partition has nothing to say either."""
    assert path.wire.ask(markers(), 1).markers == []
    assert codes(path.wire.ask(markers(marker(topics=(("t", []),))), 1)) == {}


# Readers


def test_readers_of_committed_records_stop_before_the_first_open_transaction(path: TransactionPath) -> None:
    """Others read on to the high watermark."""
    path.produce(batch(b"before"), transactional_id=None)
    path.produce(transactional())
    path.produce(batch(b"behind"), transactional_id=None)
    data = path.fetch()
    assert (data.last_stable_offset, data.high_watermark, offsets(data)) == (1, 3, [0])
    assert offsets(path.fetch(isolation=READ_UNCOMMITTED)) == [0, 1, 2]
    assert path.end(is_commit=True) == E.NONE
    data = path.fetch()
    assert (data.last_stable_offset, offsets(data), aborted(data)) == (4, [0, 1, 2, 3], [])


def test_readers_of_committed_records_are_told_of_aborted_transactions(path: TransactionPath) -> None:
    """Of those that have a record in what they get. Answers to other readers name none."""
    path.produce(transactional(producer_id=7))
    path.produce(transactional(producer_id=8))
    path.produce(transactional(1, producer_id=7))
    path.end(is_commit=False, producer_id=7)
    data = path.fetch()
    assert (data.last_stable_offset, offsets(data), aborted(data)) == (1, [0], [(7, 0)])
    path.end(is_commit=True, producer_id=8)
    assert aborted(path.fetch()) == [(7, 0)]
    assert aborted(path.fetch(offset=4)) == []
    assert path.fetch(isolation=READ_UNCOMMITTED).aborted_transactions is None


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_waiting_reader_of_committed_records_is_answered_by_the_marker(
    path: TransactionPath, is_commit: bool
) -> None:
    """The record alone does not wake it."""
    consumer = path.connect()
    consumer.post(fetch_request(0, READ_COMMITTED, max_wait_ms=500), 12)
    path.produce(transactional())
    assert consumer.answer() is None
    path.end(is_commit=is_commit)
    data = consumer.answer().responses[0].partitions[0]
    assert offsets(data) == [0, 1]
    assert aborted(data) == ([] if is_commit else [(7, 0)])


def test_the_end_of_a_partition_is_where_a_reader_must_stop(path: TransactionPath) -> None:
    """The last stable offset for readers of committed records; replicas copy up to
    the log's end."""
    path.produce(batch(b"before"), transactional_id=None)
    path.produce(transactional())
    assert path.end_offset(READ_COMMITTED) == 1
    assert path.end_offset(READ_UNCOMMITTED) == 2
    assert path.end_offset(READ_COMMITTED, replica_id=1) == 2


def test_a_timestamp_is_looked_up_among_the_records_that_a_reader_may_see(path: TransactionPath) -> None:
    """The first one that is not older may be in an open transaction."""
    path.produce(transactional())
    partition = ListOffsetsPartition(partition_index=0, timestamp=START_MS)
    found = []
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name="t", partitions=[partition])],
        )
        found.append(path.wire.ask(request, 7).topics[0].partitions[0].offset)
    assert found == [-1, 0]


def test_followers_copy_open_transactions_and_markers(tmp_path: Path) -> None:
    """And have the same last stable offset and aborted transactions as their leader."""
    leader, follower = TransactionPath(tmp_path / "leader"), DataPath(tmp_path / "follower")
    log = leader.lead("t").log
    copy = follower.lead("t", leader=1, replicas=(0, 1)).log
    leader.produce(transactional(producer_id=7))
    leader.produce(transactional(producer_id=8))
    leader.end(is_commit=False, producer_id=7)
    copy.append_as_follower(bytes(leader.fetch(isolation=READ_UNCOMMITTED).records), now_ms=0)
    copy.update_high_watermark(log.high_watermark)
    assert copy.last_stable_offset == log.last_stable_offset == 1
    assert copy.aborted_transactions(0, 3) == log.aborted_transactions(0, 3)
    assert copy.producers.has_open_transaction(8, 0)
    assert not copy.producers.has_open_transaction(7, 0)


# What is left of transactions


def test_a_transaction_is_open_after_a_crash(tmp_path: Path) -> None:
    """Its next batch needs no verification, and its marker ends it."""
    before = TransactionPath(tmp_path)
    before.lead("t")
    before.produce(transactional())
    before.log_dirs.close(clean=False)
    path = TransactionPath(tmp_path)
    log = path.lead("t", epoch=1).log
    assert (log.last_stable_offset, log.log_end_offset) == (0, 1)
    path.wire.post(produce_request(transactional(1)), 9)
    assert not path.coordinators.asked
    assert path.wire.answer().responses[0].partition_responses[0].error_code == E.NONE
    assert path.end(is_commit=False) == E.NONE
    assert aborted(path.fetch()) == [(7, 0)]


def test_records_of_open_transactions_may_be_deleted(path: TransactionPath) -> None:
    """Up to the high watermark, as others.

    The last stable offset is where the log begins then, until the marker comes."""
    for sequence in range(3):
        path.produce(transactional(sequence))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=500)
    (answer,) = path.wire.ask(request, 2).topics[0].partitions
    assert (E(answer.error_code), answer.low_watermark) == (E.NONE, 2)
    data = path.fetch(offset=2)
    assert (data.log_start_offset, data.last_stable_offset, offsets(data)) == (2, 2, [])
    assert path.end(is_commit=False) == E.NONE
    data = path.fetch(offset=2)
    assert (data.last_stable_offset, offsets(data), aborted(data)) == (4, [2, 3], [(7, 0)])


def test_retention_leaves_a_transaction_open_whose_records_it_deletes(tmp_path: Path) -> None:
    """The producer goes on with it, and its marker ends it."""
    path = TransactionPath(tmp_path)
    path.configs["t"] = LogConfig({"segment.bytes": "100", "retention.bytes": "100"})
    log = path.lead("t").log
    for sequence in range(4):
        path.produce(transactional(sequence))
    assert log.apply_retention(path.clock.wall_ms()) > 0
    assert log.last_stable_offset == log.log_start_offset > 0
    assert path.produce(transactional(4))[0] == E.NONE
    assert path.end(is_commit=True) == E.NONE
    assert log.last_stable_offset == log.log_end_offset


def test_an_open_transaction_is_described_and_does_not_expire(path: TransactionPath) -> None:
    """With its first offset and the coordinator that ended the one before; others
    are forgotten in time."""
    path.produce(transactional(producer_id=7))
    path.end(is_commit=True, producer_id=7, coordinator_epoch=3)
    path.produce(transactional(1, producer_id=7))
    path.produce(batch(b"v", producer_id=8, producer_epoch=0, base_sequence=0), transactional_id=None)
    log = path.replicas.partition(T).log
    log.producers.remove_expired(path.clock.wall_ms() + 1000, 1000)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    (producer,) = path.wire.ask(request, 0).topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.coordinator_epoch, producer.current_txn_start_offset) == (7, 3, 2)
