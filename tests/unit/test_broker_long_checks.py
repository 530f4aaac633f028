"""Records of topics that open every batch: long checks and conversions are made beside the event
loop, short ones at once."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.files import FileSlice
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.log import record_checks
from barnabas.log.conversion import RejectedRecordsError
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.wire.kafka.records.batch_header import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    read_header,
    seal,
)
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from support.broker import DataPath, Wire

COMPACTED = {"cleanup.policy": "compact"}
ZSTD = {"compression.type": "zstd"}

LARGE = [Record(number, 1000, b"k%d" % number, b"%04d" % number * 100) for number in range(400)]
OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)

MANY = [Record(number, 1000, b"k%d" % number, b"v") for number in range(5000)]
SMALL = [Record(number, 1000, b"k%d" % number, b"v" * 100) for number in range(100)]


class Topic:
    """A topic that one broker leads, and a producer.

    Work beside the loop waits until the test does it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
        self.broker = DataPath(directory)
        self.log = self.broker.lead("t").log
        self.configure(settings)
        self.client = self.broker.connect()
        self.beside: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        monkeypatch.setattr(
            self.broker.dispatcher.runner, "_in_thread", lambda work, done: self.beside.append((work, done))
        )

    def configure(self, settings: dict[str, str]) -> None:
        self.log.configure(LogConfig(settings))

    def produce(
        self, records: bytearray, client: Wire | None = None, version: int = 9, topic_id: Uuid = ZERO_UUID
    ) -> None:
        name = "t" if version < 13 else ""
        partitions = [PartitionProduceData(index=0, records=records)]
        data = [TopicProduceData(name=name, topic_id=topic_id, partition_data=partitions)]
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
        (client or self.client).post(request, version)

    def name(self, topic_id: Uuid, partitions: int = 1) -> None:
        """The topic has this id, and the metadata knows it."""
        for index in range(partitions):
            self.broker.lead("t", index, topic_id=topic_id)
        states = [
            UpdateMetadataPartitionState(partition_index=index, replicas=[0], isr=[0]) for index in range(partitions)
        ]
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=states)
        self.broker.metadata.update(UpdateMetadataRequest(topic_states=[topic]))

    def recreate(self, topic_id: Uuid, partitions: int = 1) -> PartitionLog:
        """Delete the topic, and create one of its name. The log of its first partition."""
        for index in range(partitions):
            self.broker.replicas.stop_replicas([(TopicPartition("t", index), -2, True)], self.broker.clock.wall_ms())
        self.name(topic_id, partitions)
        return self.broker.replicas.get(TopicPartition("t", 0)).log

    def check(self) -> None:
        """Do what waits beside the loop."""
        ((work, done),) = self.beside
        self.beside.clear()
        work()
        self.finish(done)

    def finish(self, done: Callable[[BaseException | None], None]) -> None:
        """Let the loop know that work beside it is done; it goes on in its next turn."""
        done(None)
        self.broker.timers.advance(0)

    def answer(self) -> tuple[ErrorCode, list[int]]:
        """The error of the one partition, and the records that are named with it."""
        (answer,) = self.client.answer().responses[0].partition_responses
        return ErrorCode(answer.error_code), [error.batch_index for error in answer.record_errors]

    def stored(self) -> bytes:
        part = self.log.read(0, 1 << 22, upper_bound=self.log.log_end_offset, min_one_batch=True)
        assert isinstance(part.records, FileSlice)
        return part.records.read()


@pytest.mark.parametrize(
    ("settings", "codec"),
    [(COMPACTED, codec) for codec in CompressionType]
    + [(ZSTD, codec) for codec in CompressionType if codec is not CompressionType.ZSTD],
)
@pytest.mark.parametrize("records", [LARGE, MANY], ids=["large", "many"])
def test_a_long_check_is_made_beside_the_event_loop_and_only_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    codec: CompressionType,
    records: list[Record],
) -> None:
    """However few bytes a batch has on the wire.

    The connection waits; the batch is appended as the topic asks for it."""
    topic = Topic(tmp_path, monkeypatch, settings)
    topic.produce(build_batch(records, compression=codec))
    assert topic.client.is_paused
    assert (topic.client.sent, topic.log.log_end_offset) == ([], 0)
    ((work, done),) = topic.beside
    work()
    for function in ("validate_records", "validate_and_convert", "convert_unpacked", "decompress_produced"):
        monkeypatch.setattr(record_checks, function, None)  # would be called on the loop
    topic.finish(done)
    assert topic.answer() == (ErrorCode.NONE, [])
    stored = topic.stored()
    assert read_header(stored).compression == (CompressionType.ZSTD if settings is ZSTD else codec)
    assert [(record.offset, record.value) for record in read_records(stored)] == [
        (record.offset, record.value) for record in records
    ]


@pytest.mark.parametrize("settings", [COMPACTED, ZSTD], ids=["compacted", "codec"])
def test_a_short_check_is_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """The answer is there when the frame has been handed on."""
    topic = Topic(tmp_path, monkeypatch, settings)
    topic.produce(build_batch(SMALL, compression=CompressionType.LZ4))
    assert topic.beside == []
    assert topic.answer() == (ErrorCode.NONE, [])
    assert topic.log.log_end_offset == len(SMALL)


PACKED = [codec for codec in CompressionType if codec]


def with_body(body: bytes, codec: CompressionType, count: int = 3) -> bytearray:
    """A batch whose header agrees with itself, around any body."""
    size = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    batch = bytearray(HEADER.pack(0, size, -1, MAGIC, 0, int(codec), count - 1, 1000, 1000, -1, -1, -1, count)) + body
    seal(batch)
    return batch


@pytest.mark.parametrize("codec", PACKED)
def test_a_long_check_of_a_topic_that_asks_for_nothing_is_made_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """The batch is stored as it came."""
    topic = Topic(tmp_path, monkeypatch, {})
    batch = build_batch(MANY, compression=codec)
    topic.produce(batch)
    assert topic.client.is_paused
    assert (topic.client.sent, topic.log.log_end_offset) == ([], 0)
    ((work, done),) = topic.beside
    work()
    monkeypatch.setattr(record_checks, "validate_records", None)  # would be called on the loop
    topic.finish(done)
    assert topic.answer() == (ErrorCode.NONE, [])
    assert topic.stored()[HEADER_BYTES:] == batch[HEADER_BYTES:]


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("is_large", [False, True])
def test_junk_is_refused_and_the_producer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType, is_large: bool
) -> None:
    """Little of it at once, much of it beside the loop where the codec is slow;
    consumers see nothing of it."""
    topic = Topic(tmp_path, monkeypatch, {})
    topic.produce(with_body(b"this is no compressed body" * (20_000 if is_large else 3), codec))
    assert bool(topic.beside) == (is_large and codec in (CompressionType.GZIP, CompressionType.ZSTD))
    if topic.beside:
        topic.check()
    assert topic.answer() == (ErrorCode.INVALID_RECORD, [])
    assert topic.log.log_end_offset == 0
    topic.produce(build_batch(SMALL, compression=codec))
    assert topic.answer() == (ErrorCode.NONE, [])


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("count", [len(SMALL) - 1, len(SMALL) + 1, 1_000_000])
def test_a_wrong_number_of_records_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType, count: int
) -> None:
    """The log would have offsets without records, or records without offsets."""
    topic = Topic(tmp_path, monkeypatch, {})
    topic.produce(with_body(bytes(build_batch(SMALL, compression=codec)[HEADER_BYTES:]), codec, count))
    if topic.beside:
        topic.check()
    assert topic.answer() == (ErrorCode.INVALID_RECORD, [])
    assert topic.log.log_end_offset == 0


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """It grows beyond the limit, and a producer with many such records would divide the batch."""
    topic = Topic(tmp_path, monkeypatch, {"max.message.bytes": "3000000"})
    topic.produce(build_batch([Record(0, 1000, None, bytes(50_000_000))], compression=codec))
    topic.check()
    assert topic.answer() == (ErrorCode.MESSAGE_TOO_LARGE, [])
    assert topic.log.log_end_offset == 0


@pytest.mark.parametrize("codec", PACKED)
def test_a_topic_may_leave_compressed_batches_unopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """Plain ones are checked all the same."""
    topic = Topic(tmp_path, monkeypatch, {"compression.check": "false"})
    topic.produce(with_body(b"this is no compressed body", codec))
    topic.produce(with_body(b"this is no record", CompressionType.NONE))
    assert topic.beside == []
    assert [topic.answer()[0] for _ in range(2)] == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]
    assert topic.log.log_end_offset == 3


def test_answers_keep_their_order_while_the_first_request_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is read on when its request is answered, so a short check does
    not overtake a long one."""
    topic = Topic(tmp_path, monkeypatch, {})
    topic.produce(build_batch(MANY, compression=CompressionType.LZ4))
    assert topic.client.is_paused
    topic.check()
    topic.produce(build_batch(SMALL, compression=CompressionType.LZ4))
    first, second = (topic.client.answer().responses[0].partition_responses[0] for _ in range(2))
    assert (first.base_offset, second.base_offset) == (0, len(MANY))


def test_others_are_served_while_a_batch_is_checked_and_append_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets are assigned when the check is done."""
    topic = Topic(tmp_path, monkeypatch, COMPACTED)
    other = topic.broker.connect()
    topic.produce(build_batch(LARGE))
    topic.produce(build_batch(SMALL), other)
    assert other.answer().responses[0].partition_responses[0].base_offset == 0
    topic.check()
    assert topic.client.answer().responses[0].partition_responses[0].base_offset == len(SMALL)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_what_a_long_check_finds_is_in_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """Records without keys are named, and nothing is appended."""
    topic = Topic(tmp_path, monkeypatch, COMPACTED)
    keyless = [record._replace(key=None) if record.offset in (7, 300) else record for record in LARGE]
    topic.produce(build_batch(keyless, compression=codec))
    topic.check()
    assert topic.answer() == (ErrorCode.INVALID_RECORD, [7, 300])
    assert topic.log.log_end_offset == 0


@pytest.mark.parametrize(("before", "after"), [({}, COMPACTED), (COMPACTED, ZSTD), (ZSTD, {})])
def test_a_batch_is_converted_for_the_configuration_in_force_when_its_check_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: dict[str, str]
) -> None:
    """What was checked for other settings counts for nothing; the other check is made beside the
    event loop, too.
    """
    topic = Topic(tmp_path, monkeypatch, before)
    topic.produce(build_batch([record._replace(key=None) for record in MANY] if after is COMPACTED else MANY))
    ((work, done),) = topic.beside
    work()
    topic.configure(after)
    topic.beside.clear()
    with monkeypatch.context() as on_loop:
        for function in ("validate_records", "validate_and_convert", "convert_unpacked", "decompress_produced"):
            on_loop.setattr(record_checks, function, None)
        topic.finish(done)
    assert topic.client.is_paused
    topic.check()
    if after is COMPACTED:
        error, named = topic.answer()
        assert (error, len(named)) == (ErrorCode.INVALID_RECORD, len(MANY))
        assert topic.log.log_end_offset == 0
        return
    assert topic.answer() == (ErrorCode.NONE, [])
    assert read_header(topic.stored()).compression == (CompressionType.ZSTD if after else CompressionType.NONE)


@pytest.mark.parametrize(("version", "code"), [(9, ErrorCode.NOT_LEADER_OR_FOLLOWER), (13, ErrorCode.UNKNOWN_TOPIC_ID)])
def test_records_are_not_appended_to_a_topic_that_was_created_during_their_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, code: ErrorCode
) -> None:
    """It has the name of the deleted one for which they came. Its own records are appended."""
    topic = Topic(tmp_path, monkeypatch, COMPACTED)
    topic.name(OLD)
    topic.produce(build_batch(LARGE), version=version, topic_id=OLD)
    log = topic.recreate(NEW)
    topic.check()
    assert topic.answer() == (code, [])
    assert log.log_end_offset == 0
    topic.produce(build_batch(SMALL), version=version, topic_id=NEW)
    assert topic.answer() == (ErrorCode.NONE, [])
    assert log.log_end_offset == len(SMALL)


def test_a_request_in_slices_appends_nothing_to_the_successor_of_the_topic_that_it_names_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions whose turn comes after the topic was deleted and created again."""
    topic = Topic(tmp_path, monkeypatch, {})
    topic.name(OLD, partitions=2)
    topic.broker.clock.time_slice = lambda: lambda: True
    data = [PartitionProduceData(index=index, records=build_batch(SMALL)) for index in (0, 1)]
    named = [TopicProduceData(name="", topic_id=OLD, partition_data=data)]
    topic.client.post(ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=named), 13)
    topic.recreate(NEW, partitions=2)
    topic.broker.timers.advance(0)
    topic.broker.timers.advance(0)
    first, second = topic.client.answer().responses[0].partition_responses
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
    assert topic.broker.replicas.get(TopicPartition("t", 1)).log.log_end_offset == 0


def test_log_append_time_is_that_of_the_append_and_not_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does not go back where others append while records are checked."""
    topic = Topic(tmp_path, monkeypatch, {**COMPACTED, "message.timestamp.type": "LogAppendTime"})
    other = topic.broker.connect()
    topic.produce(build_batch(LARGE))
    topic.broker.clock.now_ms += 700
    topic.produce(build_batch(SMALL), other)
    topic.check()
    answers = [wire.answer().responses[0].partition_responses[0] for wire in (other, topic.client)]
    assert [answer.base_offset for answer in answers] == [0, len(SMALL)]
    assert {answer.log_append_time_ms for answer in answers} == {topic.broker.clock.wall_ms()}


@pytest.mark.parametrize("codec", CompressionType)
def test_many_headers_are_checked_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """Each takes as long as a field of a record, and a batch may have 200,000."""
    topic = Topic(tmp_path, monkeypatch, {})
    topic.produce(build_batch([Record(0, 1000, None, b"v", [("", None)] * 199_000)], compression=codec))
    assert topic.client.is_paused
    topic.check()
    assert topic.answer() == (ErrorCode.NONE, [])
    topic.produce(build_batch([Record(0, 1000, None, b"v", [("", None)] * 1_000)], compression=codec))
    assert topic.answer() == (ErrorCode.NONE, [])
    topic.produce(build_batch([Record(0, 1000, None, b"v", [("", None)] * 201_000)], compression=codec))
    topic.check()
    assert topic.answer() == (ErrorCode.MESSAGE_TOO_LARGE, [])


def test_a_leader_that_lost_the_leadership_during_a_check_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is decided when the check is done, as if the request came then."""
    topic = Topic(tmp_path, monkeypatch, COMPACTED)
    topic.produce(build_batch(LARGE))
    topic.broker.lead("t", epoch=1, leader=1, replicas=(0, 1))
    topic.check()
    assert topic.answer() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert topic.log.log_end_offset == 0


def test_a_refused_batch_keeps_nothing_of_what_it_was_unpacked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither until its answer nor after it: the error holds no frames, and waits for
    no collection of garbage."""
    topic = Topic(tmp_path, monkeypatch, COMPACTED)
    bomb = build_batch([Record(0, 1000, None, bytes(8 << 20))], compression=CompressionType.GZIP)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        topic.produce(bomb)
        ((work, done),) = topic.beside
        topic.beside.clear()
        work()
        assert tracemalloc.get_traced_memory()[0] < 2 << 20  # with the room that is used again
        made = weakref.ref(getattr(work, "__self__"))  # noqa: B009  # the check, of which only `run` is known
        topic.finish(done)
        assert topic.answer()[0] is ErrorCode.INVALID_RECORD
        del work, done
        assert made() is None
    finally:
        tracemalloc.stop()
        gc.enable()


def test_a_check_that_has_found_an_error_refuses_the_batch_each_time() -> None:
    """With an error of its own, which has what the first one had."""

    def check() -> None:
        raise RejectedRecordsError([(3, KafkaError(ErrorCode.INVALID_RECORD, "a record without a key"))])

    deferred = record_checks.DeferredCheck(check)
    deferred.run()
    errors = []
    for _ in range(2):
        with pytest.raises(RejectedRecordsError) as raised:
            deferred.validate_records(b"", (), None)  # type: ignore[arg-type]  # neither is looked at
        errors.append(raised.value)
    assert errors[0] is not errors[1]
    assert {(error.code, error.message, tuple(error.record_errors)) for error in errors} == {
        (ErrorCode.INVALID_RECORD, errors[0].message, ((3, "a record without a key"),))
    }
