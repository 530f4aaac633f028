"""Large requests are decoded, served and answered in slices, in the order of their connection."""

import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis import fetch
from barnabas.broker.replication import delayed_fetch
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import ReadResult, read_log
from barnabas.log import record_checks
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from barnabas.wire.kafka.records.batch_header import seal
from support.broker import DataPath, Wire, batch

PARTITIONS = 3000
TOO_LARGE = [
    (ApiKey.JOIN_GROUP, range(10), ErrorCode.INVALID_REQUEST),
    (ApiKey.SYNC_GROUP, range(6), ErrorCode.UNKNOWN_SERVER_ERROR),
]


def in_short_slices(broker: DataPath, monkeypatch: pytest.MonkeyPatch, steps: int = 100) -> None:
    def time_slice() -> Callable[[], bool]:
        left = steps

        def is_over() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        return is_over

    monkeypatch.setattr(broker.clock, "time_slice", time_slice)


def list_offsets() -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=partitions)]
    )


def test_a_large_request_gives_way_and_its_connection_waits_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other connections are served between its slices; its own connection is paused,
    then goes on."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    large, other = broker.connect(), broker.connect()
    in_short_slices(broker, monkeypatch)
    large.post(list_offsets(), 7)
    assert large.is_paused
    assert large.sent == []
    other.post(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]), 7)
    broker.timers.advance(0)
    turns = 0
    while not large.sent:
        assert large.is_paused
        broker.timers.advance(0)
        turns += 1
    assert len(other.sent) == 1
    assert turns > PARTITIONS // 100
    assert not large.is_paused
    answers = large.answer().topics[0].partitions
    assert [answer.partition_index for answer in answers] == list(range(PARTITIONS))
    assert (answers[0].error_code, answers[0].offset) == (0, 0)


def test_a_large_request_counts_as_waiting_until_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it becomes; a small one does not."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    client = broker.connect()
    in_short_slices(broker, monkeypatch)
    client.post(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]), 7)
    assert not client.served_bytes
    client.answer()
    client.post(list_offsets(), 7)
    while not client.sent:
        assert client.served_bytes > 4 * PARTITIONS * 8
        broker.timers.advance(0)
    assert not client.served_bytes


def test_few_large_requests_are_served_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait, and one whose client is gone keeps none waiting."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    clients = [broker.connect() for _ in range(10)]
    in_short_slices(broker, monkeypatch)
    for client in clients:
        client.post(list_offsets(), 7)
    clients[0].close()
    clients[9].close()
    waiting = clients[1:9]
    answered: list[Wire] = []
    while waiting:
        as_objects = [client for client in waiting if client.served_bytes > 100_000]
        assert len(as_objects) <= 4
        broker.timers.advance(0)
        answered += [client for client in waiting if client.sent]
        waiting = [client for client in waiting if not client.sent]
    assert {*answered} == {*clients[1:9]}


@pytest.mark.parametrize("version", [8, 9])
def test_a_metadata_request_that_names_far_more_topics_than_there_are_is_not_decoded(
    tmp_path: Path, version: int
) -> None:
    """Its connection is closed; one with as many as a client may ask for is served."""
    broker = DataPath(tmp_path)
    broker.serve(("metadata",))
    broker.lead("t")

    def ask(count: int) -> Wire:
        client = broker.connect()
        topics = [MetadataRequestTopic(name=f"none-{number}") for number in range(count)]
        client.post(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)
        return client

    known = broker.metadata.count_topics()
    served, refused = ask(10_000 + 2 * known), ask(10_001 + 2 * known)
    assert served.handler.busy
    assert not served.is_closed
    assert refused.is_closed
    assert not refused.sent


@pytest.mark.parametrize(("key", "versions", "error"), TOO_LARGE)
def test_a_request_too_large_for_its_api_is_refused_when_its_first_bytes_have_come(
    tmp_path: Path, key: ApiKey, versions: range, error: ErrorCode
) -> None:
    """With the API's own answer, in any version; also where it comes whole.

    The connection stays."""
    broker = DataPath(tmp_path)
    broker.serve(("join_group", "sync_group", "list_offsets"))
    client = broker.connect()
    size = 18 << 20
    whole = bytearray(size)
    for version in versions:
        head = struct.pack(">hhi", key, version, version)
        assert client.handler.drops(head, size)
        assert not client.handler.drops(head, 1 << 20)
        assert client.sent == []
        whole[:10] = head + b"\xff\xff"
        for refuse, what in ((client.handler.dropped, head), (client.handler.frame, memoryview(whole))):
            client.asked.append((key, version))
            refuse(what)
            assert client.sent[0][4:8] == head[4:8]
            assert client.answer().error_code == error
    assert not client.is_closed
    assert not client.is_paused
    assert not client.handler.busy


@pytest.mark.parametrize(
    ("name", "key", "version", "most_bytes"),
    [
        ("heartbeat", ApiKey.HEARTBEAT, 4, 256 << 10),
        ("list_offsets", ApiKey.LIST_OFFSETS, 7, 16 << 20),
        ("metadata", ApiKey.METADATA, 4, 16 << 20),
    ],
)
def test_a_request_larger_than_any_of_its_form_closes_the_connection_when_it_begins(
    tmp_path: Path, name: str, key: ApiKey, version: int, most_bytes: int
) -> None:
    """Its other bytes are not even read; one that comes whole is not decoded."""
    broker = DataPath(tmp_path)
    broker.serve((name,))
    head = struct.pack(">hhi", key, version, 1)
    in_pieces, whole = broker.connect(), broker.connect()
    assert not in_pieces.handler.drops(head, most_bytes)
    assert not in_pieces.is_closed
    assert in_pieces.handler.drops(head, most_bytes + 1)
    assert in_pieces.is_closed
    whole.handler.frame(memoryview(bytearray(head + b"\xff\xff" + bytes(most_bytes))))
    assert whole.is_closed
    assert not in_pieces.sent + whole.sent


@pytest.mark.parametrize("name", ["produce", "create_topics", "alter_configs", "leader_and_isr", "update_metadata"])
def test_requests_that_may_have_much_to_say_have_only_the_limit_of_all(tmp_path: Path, name: str) -> None:
    """Records, what an administrator writes, and what the controller says of a whole cluster."""
    broker = DataPath(tmp_path)
    broker.serve((name,))
    (handler,) = broker.dispatcher.handlers.values()
    client = broker.connect()
    assert not client.handler.drops(struct.pack(">hhi", handler.key, handler.max_version, 1), 100 << 20)
    assert not client.is_closed


def test_the_bytes_of_a_large_request_that_is_not_served_are_not_kept(tmp_path: Path) -> None:
    """At its end the connection is closed, as after a small one."""
    broker = DataPath(tmp_path)
    client = broker.connect()
    for key, version in ((ApiKey.LIST_OFFSETS, 99), (999, 0)):
        head = struct.pack(">hhi", key, version, 1)
        assert client.handler.drops(head, 1 << 20)
    assert not client.handler.drops(struct.pack(">hhi", ApiKey.LIST_OFFSETS, 7, 1), 16 << 20)
    client.handler.dropped(head)
    assert client.is_closed
    assert client.sent == []


def test_a_client_that_leaves_amid_its_large_request_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is decoded, while it is served, and while its answer is encoded."""

    def post(turns: int) -> tuple[DataPath, Wire, int]:
        broker = DataPath(tmp_path / str(turns))
        broker.lead("t")
        client = broker.connect()
        in_short_slices(broker, monkeypatch, steps=10)
        client.post(list_offsets(), 7)
        taken = 0
        while taken < turns and not client.sent:
            broker.timers.advance(0)
            taken += 1
        return broker, client, taken

    _, answered, needed = post(10_000)
    assert answered.sent
    for turns in (0, needed // 2, needed - 1):
        broker, client, _ = post(turns)
        client.close()
        for _ in range(needed + 10):
            broker.timers.advance(0)
        assert client.sent == []
        assert broker.dispatcher.connections == {}


def test_a_large_request_in_one_slice_pauses_nothing(tmp_path: Path) -> None:
    """Fast machines answer at once."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    client = broker.connect()
    client.post(list_offsets(), 7)
    assert not client.is_paused
    assert len(client.answer().topics[0].partitions) == PARTITIONS


def test_what_a_large_produce_request_carries_is_appended_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition as a whole."""
    broker = DataPath(tmp_path)
    partition = broker.lead("t")
    client = broker.connect()
    in_short_slices(broker, monkeypatch)
    data = [PartitionProduceData(index=index, records=batch(b"x")) for index in range(PARTITIONS)]
    client.post(
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        ),
        9,
    )
    while not client.sent:
        broker.timers.advance(0)
    answers = client.answer().responses[0].partition_responses
    assert [answer.error_code for answer in answers[:2]] == [0, 3]
    assert partition.log.log_end_offset == 1


def test_records_that_are_committed_while_others_of_their_request_are_appended_count_as_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower has the first partition's record before the last partition's is
    appended; no fetch follows that."""
    broker = DataPath(tmp_path)
    first, last = (broker.lead("t", index, replicas=(0, 1), isr=(0, 1)) for index in (0, PARTITIONS))
    client = broker.connect()
    in_short_slices(broker, monkeypatch, steps=0)
    data = [PartitionProduceData(index=index, records=batch(b"x")) for index in range(PARTITIONS + 1)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    client.post(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics), 9)

    def followed(partition: Partition) -> None:
        while not partition.log.log_end_offset:
            broker.timers.advance(0)
        broker.replicas.follower_fetched(partition.topic_partition, 1, 1, 0, broker.clock.wall_ms())

    followed(first)
    assert last.log.log_end_offset == 0
    followed(last)
    for _ in range(10 * PARTITIONS):
        if client.sent:
            break
        broker.timers.advance(0)  # the answer is encoded in slices
    answers = client.answer().responses[0].partition_responses
    assert [answers[index].error_code for index in (0, 1, PARTITIONS)] == [0, 3, 0]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_thousands_of_records_in_one_batch_are_checked_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """The loop is free meanwhile; then the batch is appended without a second check, or refused."""
    broker = DataPath(tmp_path)
    partition = broker.lead("t")
    values = [b"v" * (10 + number % 7) for number in range(5000)]
    records = batch(*values)
    if is_damaged:
        records[-1] ^= 0x40  # 32 headers that are not there
        seal(records)
    beside: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    monkeypatch.setattr(broker.dispatcher.runner, "_in_thread", lambda work, done: beside.append((work, done)))
    data = PartitionProduceData(index=0, records=records)
    topic_data = [TopicProduceData(name="t", partition_data=[data])]
    client = broker.connect()
    client.post(ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=topic_data), 9)
    assert not client.sent
    ((work, done),) = beside
    work()
    monkeypatch.setattr(record_checks, "validate_records", None)  # would be called on the loop
    done(None)
    (answer,) = client.answer().responses[0].partition_responses
    assert answer.error_code == (ErrorCode.INVALID_RECORD if is_damaged else ErrorCode.NONE)
    assert partition.log.log_end_offset == (0 if is_damaged else 5000)


def test_small_requests_are_not_served_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered before the frame returns, whatever else waits."""
    broker = DataPath(tmp_path)
    client = broker.connect()
    in_short_slices(broker, monkeypatch, steps=0)
    client.post(ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[]), 9)
    assert len(client.sent) == 1


LARGE_REQUESTS = {
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(PARTITIONS)
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        2,
        lambda response: [each.error_code for each in response.topics[0].partitions] == [0] + [3] * (PARTITIONS - 1),
    ),
    "DescribeLogDirs": (
        DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=list(range(PARTITIONS * 3)))]),
        2,
        lambda response: [each.partition_index for each in response.results[0].topics[0].partitions] == [0],
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(PARTITIONS)
                    ],
                )
            ]
        ),
        3,
        lambda response: [each.error_code for each in response.topics[0].partitions] == [0] + [3] * (PARTITIONS - 1),
    ),
}


def test_what_a_large_fetch_asks_for_and_its_answer_are_made_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hundred partitions at a time, those that are not there behind the others."""
    made: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(fetch, name)

        def make(*args: Any, **fields: Any) -> Any:
            made[name] += 1
            return real(*args, **fields)

        return make

    for name in ("PartitionFetch", "PartitionData"):
        monkeypatch.setattr(fetch, name, counted(name))
    broker = DataPath(tmp_path)
    broker.lead("t", PARTITIONS - 1)
    client = broker.connect()
    in_short_slices(broker, monkeypatch, steps=0)
    client.post(fetch_of(PARTITIONS, min_bytes=1), 11)
    most = 0
    while not client.sent:
        before = made.total()
        broker.timers.advance(0)
        most = max(most, made.total() - before)
    assert 0 < most <= 256
    assert made == {"PartitionFetch": PARTITIONS, "PartitionData": PARTITIONS}
    answers = client.answer().responses[0].partitions
    assert [each.partition_index for each in answers] == [PARTITIONS - 1, *range(PARTITIONS - 1)]


@pytest.mark.parametrize("name", LARGE_REQUESTS)
def test_every_step_of_a_large_request_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Decoding it, serving it and encoding its answer: what a reader or a writer makes
    in one step is the most."""
    message, version, is_right = LARGE_REQUESTS[name]
    broker = DataPath(tmp_path)
    broker.lead("t")
    client = broker.connect()
    in_short_slices(broker, monkeypatch, steps=10)
    client.post(message, version)
    turns = 0
    while not client.sent:
        broker.timers.advance(0)
        turns += 1
    assert turns > 4 * PARTITIONS // 128 // 10
    assert is_right(client.answer())


@pytest.mark.parametrize("appended", ["before it waits", "while it waits", "never"])
def test_a_large_fetch_that_waits_reads_again_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appended: str
) -> None:
    """Of a session of 600 partitions, one gets a record: between two slices, while the
    fetch waits, or not at all."""
    partitions = 600
    broker = DataPath(tmp_path)
    for index in range(partitions):
        broker.lead("t", index)
    client, producer = broker.connect(), broker.connect()
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(partitions)]
    reads: list[object] = []

    def counted(log: PartitionLog, *args: Any, **named: Any) -> ReadResult:
        reads.append(log)
        return read_log(log, *args, **named)

    def produce() -> None:
        data = [PartitionProduceData(index=0, records=batch(b"x"))]
        topic = TopicProduceData(name="t", partition_data=data)
        producer.ask(ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[topic]), 9)

    monkeypatch.setattr(delayed_fetch, "read_log", counted)
    in_short_slices(broker, monkeypatch, steps=5)
    topics = [FetchTopic(topic="t", partitions=asked)]
    client.post(FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=0, topics=topics), 11)
    if appended == "before it waits":
        while len(reads) < partitions // 2:
            broker.timers.advance(0)
        produce()
    while len(reads) < partitions:
        broker.timers.advance(0)
    broker.timers.advance(0)
    assert not client.sent or appended == "before it waits"
    if appended == "while it waits":
        produce()
    while not client.sent:
        broker.timers.advance(1)
    answers = client.answer().responses[0].partitions
    assert [answer.partition_index for answer in answers if answer.records] == ([] if appended == "never" else [0])
    assert len(answers) == partitions
    assert len(reads) == partitions + (0 if appended == "never" else 1)


@pytest.mark.parametrize("ending", ["followed", "died"])
def test_records_of_many_partitions_are_deleted_when_no_live_follower_has_them(tmp_path: Path, ending: str) -> None:
    """Each partition is looked at when it changes, and all of them when other
    brokers live than before."""
    broker = DataPath(tmp_path)
    broker.metadata.update(UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=0), UpdateMetadataBroker(id=1)]))
    partitions = [broker.lead("t", index, replicas=(0, 1), isr=(0,)) for index in range(3)]
    client = broker.connect()
    data = [PartitionProduceData(index=index, records=batch(b"x")) for index in range(3)]
    client.ask(
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        ),
        9,
    )
    wanted = [DeleteRecordsPartition(partition_index=index, offset=1) for index in range(3)]
    topics = [DeleteRecordsTopic(name="t", partitions=wanted)]
    client.post(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)
    assert client.sent == []
    if ending == "died":
        broker.metadata.update(UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=0)]))
        broker.purgatory.check_and_complete(partitions[1].topic_partition)
        broker.timers.advance(0)
    else:
        for number, partition in enumerate(partitions):
            assert client.sent == [], number
            partition.leading().followers[1].log_start_offset = 1
            broker.purgatory.check_and_complete(partition.topic_partition)
            broker.timers.advance(0)
    answers = client.answer().topics[0].partitions
    assert [(answer.error_code, answer.low_watermark) for answer in answers] == [(0, 1)] * 3


def fetch_of(partitions: int, *, min_bytes: int) -> FetchRequest:
    """The first fetch of a session, from the beginning of each partition."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=10_000) for index in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=100, min_bytes=min_bytes, session_epoch=0, topics=[FetchTopic(topic="t", partitions=wanted)]
    )


@pytest.mark.parametrize(
    ("min_bytes", "read_before", "has_another"),
    [(1, 300, True), (1000, 600, False)],
    ids=["while the fetch is read, and it is answered for another partition", "while it waits for more bytes"],
)
def test_a_record_that_comes_during_a_large_fetch_is_not_lost_to_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_bytes: int, read_before: int, has_another: bool
) -> None:
    """The next fetch of the session has it at the latest."""
    broker = DataPath(tmp_path)
    for index in range(600):
        broker.lead("t", index)
    consumer, producer = broker.connect(), broker.connect()
    reads = []

    def counted(log: PartitionLog, *arguments: Any, **options: Any) -> ReadResult:
        reads.append(log)
        return read_log(log, *arguments, **options)

    def produce(index: int) -> None:
        data = [PartitionProduceData(index=index, records=batch(b"x"))]
        topic = TopicProduceData(name="t", partition_data=data)
        producer.ask(ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[topic]), 9)

    def answer() -> Any:
        for _ in range(400):
            if consumer.sent:
                break
            broker.timers.advance(1)
        return consumer.answer()

    monkeypatch.setattr(delayed_fetch, "read_log", counted)
    in_short_slices(broker, monkeypatch, steps=5)
    if has_another:
        produce(599)
    consumer.post(fetch_of(600, min_bytes=min_bytes), 11)
    while len(reads) < read_before:
        broker.timers.advance(0)
    broker.timers.advance(0)
    produce(0)
    first = answer()
    consumer.post(FetchRequest(max_wait_ms=100, min_bytes=1, session_id=first.session_id, session_epoch=1), 11)
    answers = [first, answer()]
    assert 0 in {
        each.partition_index
        for found in answers
        for topic in found.responses
        for each in topic.partitions
        if each.records
    }
