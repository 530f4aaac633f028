"""Produce, Fetch and their neighbours through dispatch and codec, on real logs, without sockets."""

from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from support.broker import START_MS, DataPath, Wire, batch


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    return DataPath(tmp_path)


def produce_request(records: bytes | bytearray | None, *, topic: str = "t", acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=500,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])],
    )


def produce(
    wire: Wire, records: bytes | bytearray | None, *, version: int = 9, **options: object
) -> PartitionProduceResponse:
    response = wire.ask(produce_request(records, **options), version)
    return response.responses[0].partition_responses[0]


def fetch_request(offset: int, *, max_wait_ms: int = 0, **fields: object) -> FetchRequest:
    partition = {
        name: fields.pop(name)
        for name in ("current_leader_epoch", "last_fetched_epoch", "log_start_offset")
        if name in fields
    }
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **partition)
    fields.setdefault("min_bytes", 1)
    return FetchRequest(max_wait_ms=max_wait_ms, topics=[FetchTopic(topic="t", partitions=[wanted])], **fields)


def fetched(response: object) -> PartitionData:
    return response.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes]:
    found, buffer, position = [], bytes(data.records), 0
    while position < len(buffer):
        size = int.from_bytes(buffer[position + 8 : position + 12], "big") + 12
        found += [record.value for record in read_records(buffer[position : position + size])]
        position += size
    return found


def test_a_batch_is_appended_at_the_end_and_read_back(broker: DataPath) -> None:
    """Offsets are dense from 0 and the bytes come back with them."""
    broker.lead("t")
    wire = broker.connect()
    assert produce(wire, batch(b"a", b"b")).base_offset == 0
    assert produce(wire, batch(b"c")).base_offset == 2
    data = fetched(wire.ask(fetch_request(0), 12))
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)
    assert values(data) == [b"a", b"b", b"c"]
    assert values(fetched(wire.ask(fetch_request(2), 12))) == [b"c"]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_answers_the_offset(broker: DataPath, version: int) -> None:
    """The versions differ in form only."""
    broker.lead("t")
    answer = produce(broker.connect(), batch(b"a"), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_by_name_carries_the_records(broker: DataPath, version: int) -> None:
    """The versions differ in form only."""
    broker.lead("t")
    wire = broker.connect()
    produce(wire, batch(b"a"))
    assert values(fetched(wire.ask(fetch_request(0), version))) == [b"a"]


def test_produce_without_acks_is_not_answered_and_an_error_closes_the_connection(broker: DataPath) -> None:
    """With acks 0 a closed connection is the only sign there is."""
    broker.lead("t")
    wire = broker.connect()
    wire.post(produce_request(batch(b"a"), acks=0), 9)
    assert (wire.sent, wire.is_closed, wire.is_paused) == ([], False, False)
    wire.asked.clear()
    assert values(fetched(wire.ask(fetch_request(0), 12))) == [b"a"]
    wire.post(produce_request(batch(b"a"), acks=0, topic="missing"), 9)
    assert (wire.sent, wire.is_closed) == ([], True)


def test_what_cannot_be_appended_is_an_error_of_its_partition(broker: DataPath) -> None:
    """Each kind of trouble has its code; nothing is appended."""
    partition = broker.lead("t")
    wire = broker.connect()
    corrupt = batch(b"a")
    corrupt[-1] ^= 1
    old = batch(b"a")
    old[16] = 1
    cases = [
        (None, {}, ErrorCode.INVALID_RECORD),
        (b"", {}, ErrorCode.INVALID_RECORD),
        (corrupt, {}, ErrorCode.CORRUPT_MESSAGE),
        (old, {}, ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), {}, ErrorCode.INVALID_RECORD),
        (batch(b"a"), {"acks": 7}, ErrorCode.INVALID_REQUIRED_ACKS),
        (batch(b"a"), {"topic": "missing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (batch(b"a"), {"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
            {},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ]
    for records, options, code in cases:
        answer = produce(wire, records, **options)
        assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert partition.log.log_end_offset == 0


def test_refused_records_are_named_by_their_index(broker: DataPath) -> None:
    """From version 8 on a producer hears which records of its batch were wrong; those without
    a key, those of tomorrow."""
    log = broker.lead("t").log
    log.configure(LogConfig({"cleanup.policy": "compact", "message.timestamp.after.max.ms": "1000"}))
    records = [Record(n, START_MS, None if n in (1, 3) else b"k", b"v") for n in range(5)]
    wire = broker.connect()
    answer = produce(wire, build_batch(records))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all("without key" in error.batch_index_error_message for error in answer.record_errors)
    answer = produce(wire, build_batch([Record(0, START_MS, b"k", b""), Record(1, START_MS + 90_000_000, b"k", b"")]))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert produce(wire, build_batch(records), version=7).record_errors == []
    assert log.log_end_offset == 0


def test_an_idempotent_batch_is_appended_once_and_gaps_are_refused(broker: DataPath) -> None:
    """A repeated batch gets the offset it had; a later sequence number than the next
    is out of order."""
    broker.lead("t")
    wire = broker.connect()
    first = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    assert produce(wire, batch(b"a", b"b", **first)).base_offset == 0
    assert produce(wire, batch(b"a", b"b", **first)).base_offset == 0
    gap = produce(wire, batch(b"c", producer_id=5, producer_epoch=0, base_sequence=7))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, batch(b"c", producer_id=5, producer_epoch=0, base_sequence=2)).base_offset == 2


def test_acks_of_all_wait_for_the_followers_in_the_isr(broker: DataPath) -> None:
    """The answer leaves when the slowest in-sync follower has fetched past the batch."""
    broker.lead("t", replicas=(0, 1), isr=(0, 1))
    producer, follower = broker.connect(), broker.connect()
    producer.post(produce_request(batch(b"a"), acks=-1), 9)
    assert producer.answer() is None
    assert producer.is_paused
    assert values(fetched(follower.ask(fetch_request(0, replica_id=1), 12))) == [b"a"]
    assert producer.answer() is None
    follower.post(fetch_request(1, replica_id=1, max_wait_ms=500), 12)
    answer = producer.answer().responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert not producer.is_paused


def test_acks_of_all_time_out_and_end_when_leadership_moves(broker: DataPath) -> None:
    """A record whose fate is unknown is answered with what is known."""
    broker.lead("t", replicas=(0, 1), isr=(0, 1))
    wire = broker.connect()
    wire.post(produce_request(batch(b"a"), acks=-1), 9)
    broker.timers.advance(500)
    assert wire.answer().responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    wire.post(produce_request(batch(b"b"), acks=-1), 9)
    broker.lead("t", epoch=1, leader=1, replicas=(0, 1), isr=(1,))
    broker.timers.advance(0)
    assert wire.answer().responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_of_all_are_refused_below_min_insync_replicas(broker: DataPath) -> None:
    """acks=1 is taken all the same."""
    broker.configs["t"] = LogConfig({"min.insync.replicas": "2"})
    broker.lead("t", replicas=(0, 1), isr=(0,))
    wire = broker.connect()
    assert produce(wire, batch(b"a"), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(wire, batch(b"a"), acks=1).error_code == ErrorCode.NONE


def test_consumers_see_nothing_above_the_high_watermark(broker: DataPath) -> None:
    """What is on the leader alone is not there for consumers, but for followers it is."""
    broker.lead("t", replicas=(0, 1), isr=(0, 1))
    wire = broker.connect()
    produce(wire, batch(b"a"))
    data = fetched(wire.ask(fetch_request(0), 12))
    assert (data.high_watermark, values(data)) == (0, [])
    assert values(fetched(wire.ask(fetch_request(0, replica_id=1), 12))) == [b"a"]


def test_a_long_poll_is_answered_by_the_append_it_waits_for(broker: DataPath) -> None:
    """No polling: the producer is answered, then the consumer."""
    broker.lead("t")
    consumer, producer = broker.connect(), broker.connect()
    consumer.post(fetch_request(0, max_wait_ms=500), 12)
    assert consumer.answer() is None
    assert consumer.is_paused
    produce(producer, batch(b"a"))
    assert values(fetched(consumer.answer())) == [b"a"]
    assert not consumer.is_paused
    assert len(broker.purgatory) == 0


def test_a_long_poll_waits_for_min_bytes_and_ends_with_its_time(broker: DataPath) -> None:
    """Fewer bytes than asked for come when the time is over."""
    broker.lead("t")
    consumer, producer = broker.connect(), broker.connect()
    consumer.post(fetch_request(0, max_wait_ms=300, min_bytes=1000), 12)
    produce(producer, batch(b"a"))
    assert consumer.answer() is None
    broker.timers.advance(300)
    assert values(fetched(consumer.answer())) == [b"a"]


def test_a_client_that_leaves_takes_its_parked_request_with_it(broker: DataPath) -> None:
    """Nothing is kept for the dead."""
    broker.lead("t")
    consumer = broker.connect()
    consumer.post(fetch_request(0, max_wait_ms=2**31 - 1), 12)
    assert len(broker.purgatory) == 1
    consumer.close()
    assert len(broker.purgatory) == 0


def test_offsets_outside_of_the_log_are_refused(broker: DataPath) -> None:
    """The end itself is fine."""
    broker.lead("t")
    wire = broker.connect()
    produce(wire, batch(b"a"))
    assert fetched(wire.ask(fetch_request(1), 12)).error_code == ErrorCode.NONE
    for offset in (-1, 2):
        assert fetched(wire.ask(fetch_request(offset), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_batch_is_whole_however_small_the_limits(broker: DataPath) -> None:
    """KIP-74: a consumer with tiny limits still makes progress."""
    broker.lead("t")
    wire = broker.connect()
    for _ in range(3):
        produce(wire, batch(b"x" * 1000))
    data = fetched(wire.ask(fetch_request(0, max_bytes=10), 12))
    assert values(data) == [b"x" * 1000]


def test_leader_epochs_fence_both_ways(broker: DataPath) -> None:
    """KIP-320: an older epoch is fenced, a newer one is unknown here."""
    broker.lead("t", epoch=3)
    wire = broker.connect()
    for epoch, code in [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ]:
        assert fetched(wire.ask(fetch_request(0, current_leader_epoch=epoch), 12)).error_code == code


def test_a_reader_whose_log_left_ours_hears_where(broker: DataPath) -> None:
    """The answer to a fetch beyond the end of its last epoch names the epoch that is
    common, and its end."""
    broker.lead("t", epoch=1)
    wire = broker.connect()
    produce(wire, batch(b"a"))
    broker.lead("t", epoch=5)
    produce(wire, batch(b"b"))
    data = fetched(wire.ask(fetch_request(4, last_fetched_epoch=1), 12))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (1, 1)
    assert values(data) == []
    assert values(fetched(wire.ask(fetch_request(1, last_fetched_epoch=1), 12))) == [b"b"]


def test_a_follower_that_is_no_replica_is_refused(broker: DataPath) -> None:
    """Its fetches must not move the high watermark."""
    broker.lead("t", replicas=(0, 1), isr=(0, 1))
    wire = broker.connect()
    request = fetch_request(0, replica_state=ReplicaState(replica_id=9), current_leader_epoch=0)
    request.topics[0].topic_id = bytes(15) + b"\1"
    assert fetched(wire.ask(fetch_request(0, replica_id=9), 12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (
        fetched(wire.ask(fetch_request(0, replica_id=9, current_leader_epoch=0), 12)).error_code
        == ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def fetch_of(*asked: tuple[str, int]) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=topic, partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)]
        )
        for topic, index in asked
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)


@pytest.mark.parametrize(("version", "error"), [(9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)])
def test_a_zstd_topic_is_refused_to_versions_that_do_not_know_the_codec(
    broker: DataPath, version: int, error: ErrorCode
) -> None:
    """Only the topic's compression.type counts: with ``producer`` zstd batches leave
    as they are."""
    broker.configs["t"] = LogConfig({"compression.type": "zstd"})
    for topic in ("t", "u"):
        broker.lead(topic)
        produce(broker.connect(), batch(b"a", compression=CompressionType.ZSTD), topic=topic)
    refused, served = broker.connect().ask(fetch_of(("t", 0), ("u", 0)), version).responses
    assert refused.partitions[0].error_code == error
    assert bool(refused.partitions[0].records) is (error is ErrorCode.NONE)
    assert served.partitions[0].records


def test_an_answer_has_the_order_of_the_request_and_unknown_partitions_at_its_end(broker: DataPath) -> None:
    """A topic that the request names twice is twice in the answer; neighbours of one
    topic are together."""
    for topic, index in (("t", 0), ("t", 1), ("u", 0)):
        broker.lead(topic, index)
    response = broker.connect().ask(fetch_of(("none", 0), ("t", 1), ("u", 0), ("t", 0), ("t", 9)), 12)
    found = [
        (topic.topic, [partition.partition_index for partition in topic.partitions]) for topic in response.responses
    ]
    assert found == [("t", [1]), ("u", [0]), ("t", [0]), ("none", [0]), ("t", [9])]


def test_a_session_answers_news_only_and_serves_from_memory(broker: DataPath) -> None:
    """The second request names nothing; it hears of new records, the third of nothing."""
    broker.lead("t")
    consumer, producer = broker.connect(), broker.connect()
    opened = consumer.ask(fetch_request(0, session_epoch=0), 12)
    assert opened.session_id > 0
    produce(producer, batch(b"a"))
    second = FetchRequest(session_id=opened.session_id, session_epoch=1, min_bytes=1)
    assert values(fetched(consumer.ask(second, 12))) == [b"a"]
    advanced = fetch_request(1, session_id=opened.session_id, session_epoch=2)
    assert consumer.ask(advanced, 12).responses == []
    stale = FetchRequest(session_id=opened.session_id, session_epoch=2)
    assert consumer.ask(stale, 12).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_offsets_are_listed_by_place_and_by_time(broker: DataPath) -> None:
    """Start, end, largest timestamp, and the first record at or after a time."""
    broker.lead("t", epoch=2)
    wire = broker.connect()
    for n in range(3):
        produce(wire, batch(b"a", timestamp_ms=START_MS + n * 10))

    def listed(timestamp: int) -> tuple[int, int, int]:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        found = wire.ask(request, 9).topics[0].partitions[0]
        return found.timestamp, found.offset, found.leader_epoch

    assert listed(-1) == (-1, 3, 2)
    assert listed(-2) == (-1, 0, 2)
    assert listed(-3) == (START_MS + 20, 2, 2)
    assert listed(START_MS + 5) == (START_MS + 10, 1, 2)
    assert listed(START_MS + 99) == (-1, -1, -1)


def test_the_end_is_not_known_until_the_new_leaders_watermark_reaches_its_epoch(broker: DataPath) -> None:
    """Right after an election clients are asked to come back, instead of an offset
    that goes back."""
    broker.lead("t", replicas=(0, 1), isr=(0, 1))
    wire = broker.connect()
    produce(wire, batch(b"a"))
    broker.lead("t", epoch=1, leader=1, replicas=(0, 1), isr=(0, 1))
    broker.lead("t", epoch=2, replicas=(0, 1), isr=(0, 1))
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    assert wire.ask(request, 9).topics[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert wire.ask(request, 4).topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_the_end_of_a_leader_epoch_is_answered(broker: DataPath) -> None:
    """The largest epoch not above the one asked for."""
    broker.lead("t", epoch=1)
    wire = broker.connect()
    produce(wire, batch(b"a"))
    broker.lead("t", epoch=4)
    wanted = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (1, 3, 4)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=wanted)])
    found = [(end.leader_epoch, end.end_offset) for end in wire.ask(request, 4).topics[0].partitions]
    assert found == [(1, 1), (1, 1), (4, 1)]


def test_deleted_records_raise_the_log_start(broker: DataPath) -> None:
    """-1 stands for the high watermark; beyond it nothing can be deleted."""
    broker.lead("t")
    wire = broker.connect()
    for _ in range(3):
        produce(wire, batch(b"a"))

    def delete(offset: int) -> tuple[int, int]:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=100)
        found = wire.ask(request, 2).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert delete(1) == (ErrorCode.NONE, 1)
    assert delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (ErrorCode.NONE, 3)
    assert fetched(wire.ask(fetch_request(0), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_dirs_are_described_with_sizes(broker: DataPath, tmp_path: Path) -> None:
    """Sizes are those of the logs; the disk's are positive."""
    partition = broker.lead("t")
    wire = broker.connect()
    produce(wire, batch(b"a"))
    (found,) = wire.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert (found.log_dir, found.error_code) == (str(tmp_path), ErrorCode.NONE)
    assert found.topics[0].partitions[0].partition_size == partition.log.segments.size_bytes > 0
    assert 0 < found.usable_bytes <= found.total_bytes


def test_versions_are_advertised_as_they_are_dispatched(broker: DataPath) -> None:
    """Produce alone is advertised from 0, for librdkafka's sake."""
    answer = broker.connect().ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    advertised = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert advertised.pop(0) == (0, broker.dispatcher.handlers[0].max_version)
    assert advertised == {
        key: (handler.min_version, handler.max_version)
        for key, handler in broker.dispatcher.handlers.items()
        if key != 0
    }


def test_a_follower_serves_only_readers_that_may_read_from_followers(broker: DataPath) -> None:
    """A broker that follows turns producers away and keeps its log; consumers with
    KIP-392 may read it."""
    broker.lead("t", replicas=(0, 1), isr=(0,))
    wire = broker.connect()
    produce(wire, batch(b"a"))
    broker.lead("t", epoch=1, leader=1, replicas=(0, 1), isr=(1,))
    assert produce(wire, batch(b"b")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(wire.ask(fetch_request(0), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert values(fetched(wire.ask(fetch_request(0), 12))) == [b"a"]
    assert broker.replicas.partition(TopicPartition("t", 0)).leader_id == 1
