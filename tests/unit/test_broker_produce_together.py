"""Produce requests that arrive together are appended and answered together, as if
each had come alone."""

import contextlib
import errno
import gc
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.apis import produce_template, produce_together
from barnabas.broker.apis.produce import read_message, response_to
from barnabas.broker.apis.produce_parts import ReadProduce, read_parts
from barnabas.broker.apis.produce_template import Templates
from barnabas.broker.apis.produce_together import _frames
from barnabas.broker.replication.produce_append import Appended, Produce
from barnabas.log.settings import LogConfig
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.codec import reader
from barnabas.wire.kafka.errors import ErrorCode, MalformedMessageError
from barnabas.wire.kafka.frames import decode_request_header, encode_request, encode_response
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.wire.kafka.records.batch_header import seal
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch
from support.broker import DATA_PATH_APIS, START_MS, DataPath, Wire
from support.rights import Rights

TOPICS = {
    "t": {},
    "rolls": {"segment.bytes": "1000"},
    "rolls-by-time": {"segment.ms": "500"},
    "few-entries": {"segment.index.bytes": "840", "index.interval.bytes": "100"},
    "indexed": {"index.interval.bytes": "100"},
    "small-batches": {"max.message.bytes": "150"},
    "lz4": {"compression.type": "lz4"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "synced": {"flush.messages": "4"},
    "durable": {"flush.before.ack": "true"},
    "recent": {"message.timestamp.before.max.ms": "1000"},
    "replicated": {},
    "replicated-too": {},
    "replicated-enough": {"min.insync.replicas": "2"},
}
"""By name, with their settings."""
KEYLESS = b""
"""A batch for a compacted topic that begins with this value has no keys, and is refused."""
REPLICATED = ("replicated", "replicated-too", "replicated-enough")
PARTITIONS = {"t": 3, "indexed": 2, "lz4": 2, "rolls": 2, "compacted": 2, "replicated": 2}
"""Of topics with several."""
IDS = {topic: Uuid(bytes([number + 1]) * 16) for number, topic in enumerate(TOPICS)}

versions = st.integers(3, 13)
topics = st.sampled_from(["t"] * 10 + [*TOPICS, "indexed", "missing", "__consumer_offsets"])
producers = st.one_of(
    st.just((-1, -1, -1)),
    # The next sequence.
    st.tuples(st.sampled_from([7, 7, 7, 8]), st.sampled_from([0, 0, 0, 0, 1]), st.none()),
    st.tuples(st.just(7), st.sampled_from([0, 0, 1, -1]), st.integers(-1, 6)),
)
batches = st.fixed_dictionaries(
    {
        "values": st.lists(st.binary(max_size=60), min_size=1, max_size=4),
        "producer": producers,
        "codec": st.sampled_from([CompressionType.NONE] * 6 + [*CompressionType]),
        "age_ms": st.sampled_from([0, 0, 0, 1, 700, 2_000, -7_200_000]),
        "flags": st.sampled_from(["usual"] * 12 + ["transactional", "append time", "many"]),
        "header": st.one_of(
            st.none(),
            st.none(),
            st.none(),
            # What stands there is replaced, and the CRC is right.
            st.tuples(
                st.sampled_from([0, 8, 12, 16, 21, 22, 23, 27, 43, 53, 57, 60, 61, 62, 65]), st.binary(max_size=2)
            ),
        ),
    }
)
requests = st.fixed_dictionaries(
    {
        "version": versions,
        "topic": topics,
        "batch": batches,
        "acks": st.sampled_from([1, 1, 1, 1, -1, -1, 0, 2]),
        "client": st.sampled_from(["a", "a", "a", None, "", "b" * 600, "__admin_client"]),
        "form": st.sampled_from(["usual"] * 12 + ["two partitions", "two topics", "transaction", "no records", "none"]),
        "damage": st.one_of(
            *[st.none()] * 8,
            st.tuples(st.just("change"), st.integers(0, 200), st.integers(1, 255)),
            st.tuples(st.just("cut"), st.integers(1, 200), st.just(0)),
            st.tuples(st.just("lengthen"), st.integers(1, 70), st.integers(0, 1)),
            st.tuples(st.just("tagged"), st.just(0), st.just(0)),
        ),
    }
)
usual_batches = st.fixed_dictionaries(
    {
        "values": st.lists(st.binary(max_size=60), min_size=1, max_size=4),
        "producer": st.sampled_from([(-1, -1, -1), (7, 0, None), (7, 0, None), (8, 0, None)]),
        "codec": st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4]),
        "age_ms": st.sampled_from([0, 1]),
        "flags": st.just("usual"),
        "header": st.none(),
    }
)
usual_requests = st.fixed_dictionaries(
    {
        "version": versions,
        "topic": st.sampled_from(
            ["t", "indexed", "lz4", "rolls", "compacted", "compacted", "replicated", "replicated"]
        ),
        "batch": usual_batches,
        "acks": st.sampled_from([1, -1, 0]),
        "client": st.just("a"),
        "form": st.just("usual"),
        "damage": st.none(),
    }
)


usual_partitions = st.sampled_from(
    [
        ("t", 0),
        ("t", 1),
        ("t", 2),
        ("indexed", 0),
        ("indexed", 1),
        ("compacted", 0),
        ("replicated", 0),
        ("replicated", 1),
    ]
)
several_partitions = st.fixed_dictionaries(
    {
        "version": versions,
        "parts": st.lists(
            st.builds(lambda where, wanted: (*where, wanted), usual_partitions, usual_batches),
            min_size=1,
            max_size=4,
            unique_by=lambda part: part[:2],
        ),
        "acks": st.sampled_from([1, -1, 0]),
        "client": st.just("a"),
        "damage": st.none(),
    }
)
odd_partitions = st.fixed_dictionaries(
    {
        "version": versions,
        "parts": st.lists(
            st.tuples(
                st.one_of(topics, st.sampled_from(list(PARTITIONS))),
                st.sampled_from([0, 0, 1, 2]),
                st.one_of(usual_batches, batches),
            ),
            min_size=0,
            max_size=5,
        ),
        "acks": st.sampled_from([1, 1, -1, 0, 2]),
        "client": st.sampled_from(["a", None, "b" * 600, "__admin_client"]),
        "damage": st.one_of(
            *[st.none()] * 4,
            st.tuples(st.just("change"), st.integers(0, 400), st.integers(1, 255)),
            st.tuples(st.just("cut"), st.integers(1, 200), st.just(0)),
            st.tuples(st.just("lengthen"), st.integers(1, 70), st.integers(0, 1)),
            st.tuples(st.just("tagged"), st.just(0), st.just(0)),
        ),
    }
)


def of_one_producer(request: dict, batches: list[dict]) -> list[dict]:
    """The same request with different batches."""
    return [{**request, "batch": each} for each in batches]


steps = st.one_of(
    st.tuples(
        st.just("together"), st.builds(of_one_producer, usual_requests, st.lists(usual_batches, min_size=2, max_size=8))
    ),
    st.tuples(
        st.just("together"), st.builds(of_one_producer, usual_requests, st.lists(batches, min_size=2, max_size=6))
    ),
    st.tuples(st.just("together"), st.lists(st.one_of(usual_requests, requests), min_size=1, max_size=5)),
    st.tuples(st.just("together"), st.lists(several_partitions, min_size=1, max_size=5)),
    st.tuples(st.just("together"), st.lists(st.one_of(several_partitions, usual_requests), min_size=1, max_size=5)),
    st.tuples(st.just("together"), st.lists(st.one_of(several_partitions, odd_partitions), min_size=1, max_size=5)),
    st.one_of(
        st.tuples(st.just("fetch"), topics),
        st.tuples(st.just("wait"), st.sampled_from([1, 400, 600])),
        st.tuples(st.just("lead"), st.sampled_from(list(TOPICS))),
        st.tuples(st.just("together"), st.lists(requests, min_size=1, max_size=5)),
    ),
)


class Run:
    """A broker that leads all topics, a producer and a consumer."""

    def __init__(self, directory: Path, *, is_fast: bool, denied: Sequence[str] | None = None) -> None:
        """Without ``denied`` topics there is no authorizer."""
        self.is_fast = is_fast
        self.broker = DataPath(directory)
        if denied is not None:
            rights = Rights()
            rights.allow_everything()
            rights.deny(*((AclOperation.WRITE, ResourceType.TOPIC, topic) for topic in denied))
            self.broker.serve(DATA_PATH_APIS, auth_helper=rights.helper)
        if not is_fast:
            self.broker.dispatcher.fast_apis.clear()
        self.broker.configs = {topic: LogConfig(settings) for topic, settings in TOPICS.items()}
        for topic in TOPICS:
            self.lead(topic, 0)
        self.broker.metadata.update(
            UpdateMetadataRequest(
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name=topic,
                        topic_id=topic_id,
                        partition_states=[
                            UpdateMetadataPartitionState(partition_index=index, replicas=[0], isr=[0])
                            for index in range(PARTITIONS.get(topic, 1))
                        ],
                    )
                    for topic, topic_id in IDS.items()
                ]
            )
        )
        self.epochs = dict.fromkeys(TOPICS, 0)
        self.served_fast = 0
        self.producer, self.consumer = self.broker.connect(), self.broker.connect()

    def lead(self, topic: str, epoch: int) -> None:
        replicas = (0, 1) if topic in REPLICATED else (0,)
        isr = (0,) if topic == "replicated-enough" else replicas
        for index in range(PARTITIONS.get(topic, 1)):
            self.broker.lead(topic, index, epoch=epoch, replicas=replicas, isr=isr, topic_id=IDS[topic])

    def step(self, kind: str, what: object) -> object:
        """Do one step; what can be seen afterwards."""
        if kind == "together":
            if self.producer.is_closed or self.producer.is_paused:
                self.producer = self.broker.connect()
            self.deliver(b"".join(what))
            # Otherwise only the fast path's follower would have what came behind records that wait.
            self.follow_all()
        elif kind == "fetch":
            if self.consumer.is_paused:
                self.consumer.close()
            self.consumer = self.broker.connect()
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic=what, partitions=[wanted])
            self.consumer.post(FetchRequest(max_wait_ms=500, min_bytes=300, topics=[topic]), 12)
        elif kind == "wait":
            self.broker.timers.advance(what)
        elif kind == "lead" and not self.broker.replicas.get(TopicPartition(what, 0)).offline:
            self.epochs[what] += 1
            self.lead(what, self.epochs[what])
        return self.seen()

    def follow(self, topic: str, offset: int | None = None, index: int | None = None) -> None:
        """The follower of a replicated topic has all before an offset of a partition,
        or before the end of each."""
        wanted = []
        for each in range(PARTITIONS.get(topic, 1)) if index is None else [index]:
            log = self.broker.replicas.get(TopicPartition(topic, each)).log
            end = log.log_end_offset if offset is None else offset
            wanted.append(FetchPartition(partition=each, fetch_offset=end, partition_max_bytes=1))
        topics = [FetchTopic(topic=topic, partitions=wanted)]
        follower = self.broker.connect()
        follower.post(FetchRequest(replica_id=1, topics=topics), 12)
        follower.close()
        follower.handler = None

    def follow_all(self) -> None:
        """The followers of the replicated topics have all."""
        for topic in REPLICATED:
            self.follow(topic)

    def deliver(self, frames: bytes, *, is_followed: bool = True) -> None:
        """As a connection does it.

        What waits for a follower is followed at once, or ends the delivery."""
        data, position, wire = memoryview(bytearray(frames)), 0, self.producer
        while not wire.is_closed:
            if wire.is_paused and is_followed:
                self.follow_all()
            if wire.is_paused or position == len(data):
                break
            stop = position + 4 + int.from_bytes(data[position : position + 4], "big")
            taken = wire.handler.take_from(data, position)
            if taken == position:
                wire.handler.frame(memoryview(bytearray(data[position + 4 : stop])))
                taken = stop
            else:
                self.served_fast += 1
            position = taken

    def seen(self) -> object:
        """What the producer has received, and whether the consumer's fetch was answered.

        What it got differs: records that came together are readable together.
        """
        producer = self.producer
        is_waiting = producer.is_paused and not producer.is_closed
        return b"".join(producer.sent), producer.is_closed, is_waiting, bool(self.consumer.sent)

    def counted(self) -> list[object]:
        """What metrics show of the producers' side."""
        stats = self.broker.replicas.topic_stats
        produce = self.broker.dispatcher.request_metrics.by_name()["Produce"]
        return [
            sum(produce.counts),
            *(
                (totals.messages_in, totals.bytes_in, totals.total_produce_requests, totals.failed_produce_requests)
                for totals in (stats.elsewhere, *(stats.by_topic[topic].totals() for topic in sorted(TOPICS)))
            ),
        ]

    def state(self) -> list[object]:
        return self.counted() + [
            state_of(self.broker, topic, index) for topic in TOPICS for index in range(PARTITIONS.get(topic, 1))
        ]


def state_of(broker: DataPath, topic: str, index: int = 0) -> object:
    """All of a log that a batch can change, and its files."""
    log = broker.replicas.get(TopicPartition(topic, index)).log
    bounds = log.bounds
    segments = [
        (
            segment.base_offset,
            segment.size,
            segment._max_timestamp,
            segment._first_timestamp_ms,
            segment._bytes_since_entry,
            [
                None if index is None else {name: getattr(index, name) for name in type(index).__slots__}
                for index in (segment.indexes.offsets, segment.indexes.times)
            ],
        )
        for segment in log.segments
    ]
    producers = {
        key: [getattr(entry, name) for name in type(entry).__slots__] for key, entry in log.producers.entries.items()
    }
    folder = Path(log.directory)
    return (
        topic,
        log.offline is None,
        [getattr(bounds, name) for name in type(bounds).__slots__],
        log.durability.durable_offset,
        segments,
        producers,
        {path.name: path.read_bytes() for path in sorted(folder.iterdir())},
    )


class Encoder:
    """Makes requests' bytes. It counts what a producer that does not fail would count."""

    def __init__(self) -> None:
        self.sequences: dict[tuple[str, int, int, int], int] = {}
        self.correlation_id = 0
        self.now_ms = START_MS + 1_000_000

    def frame(self, request: dict) -> bytes:
        self.correlation_id += 1
        if "parts" in request:
            return self.encoded(request, self.topics(request["version"], request["parts"]))
        version, topic = request["version"], request["topic"]
        records = None if request["form"] == "none" else self.batch(topic, request["batch"])
        data = PartitionProduceData(index=0, records=b"" if request["form"] == "no records" else records)
        partitions = [data, PartitionProduceData(index=1, records=records)]
        wanted = TopicProduceData(
            name="" if version >= 13 else topic,
            topic_id=IDS.get(topic, Uuid(b"?" * 16)),
            partition_data=partitions if request["form"] == "two partitions" else [data],
        )
        return self.encoded(request, [wanted, wanted] if request["form"] == "two topics" else [wanted])

    def topics(self, version: int, parts: list[tuple[str, int, dict]]) -> list[TopicProduceData]:
        """Records for partitions, in this order."""
        found: list[TopicProduceData] = []
        for topic, index, wanted in parts:
            name, topic_id = "" if version >= 13 else topic, IDS.get(topic, Uuid(b"?" * 16))
            if not found or (found[-1].name, found[-1].topic_id) != (name, topic_id):
                found.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=[]))
            records = self.batch(topic, wanted, index)
            found[-1].partition_data.append(PartitionProduceData(index=index, records=records))
        return found

    def encoded(self, request: dict, topics: list[TopicProduceData]) -> bytes:
        message = ProduceRequest(
            transactional_id="x" if request.get("form") == "transaction" else None,
            acks=request["acks"],
            timeout_ms=500,
            topic_data=topics,
        )
        parts = encode_request(message, request["version"], self.correlation_id, request["client"])
        return damaged(b"".join(bytes(part) for part in parts)[4:], request["damage"])

    def batch(self, topic: str, wanted: dict, index: int = 0) -> bytearray:
        values = [b""] * 5_000 if wanted["flags"] == "many" else wanted["values"]
        producer_id, epoch, sequence = wanted["producer"]
        if sequence is None:
            sequence = self.sequences.get((topic, index, producer_id, epoch), 0)
        self.sequences[topic, index, producer_id, epoch] = sequence + len(values)
        timestamp_ms = self.now_ms - wanted["age_ms"]
        has_keys = topic == "compacted" and wanted["values"][0] != KEYLESS
        made = build_batch(
            [Record(at, timestamp_ms, value[:9] if has_keys else None, value) for at, value in enumerate(values)],
            compression=wanted["codec"],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=wanted["flags"] == "transactional",
            log_append_time=wanted["flags"] == "append time",
        )
        if wanted["header"] is not None:
            at, replacement = wanted["header"]
            made[at : at + len(replacement)] = replacement
            seal(made)
        return made


def damaged(content: bytes, damage: tuple[str, int, int] | None) -> bytes:
    """A frame with this content, or with something else."""
    kind, where, what = damage or ("", 0, 0)
    if kind == "change":
        where %= len(content)
        content = content[:where] + bytes([content[where] ^ what]) + content[where + 1 :]
    elif kind == "cut":
        content = content[:-where] or b"\0"
    elif kind == "lengthen":
        content += bytes([what]) * where
    elif kind == "tagged":
        content = content[:-1] + b"\1\5\2ab"
    return len(content).to_bytes(4, "big") + content


@pytest.fixture(scope="module")
def directory() -> Path:
    with contextlib.ExitStack() as stack:
        path = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        stack.callback(shutil.rmtree, path)
        yield Path(path)


@given(
    st.sampled_from([True, True, False]),
    st.sampled_from([None, None, [], ["t"], ["indexed", "compacted", "replicated"]]),
    st.lists(steps, min_size=1, max_size=12),
)
@settings(max_examples=50, deadline=None)
def test_requests_together_leave_what_each_alone_leaves(
    directory: Path, has_records: bool, denied: list[str] | None, plan: list[tuple[str, object]]
) -> None:
    """Usual and hostile requests, at every version, in topics of every kind, with all rights or
    some; alone they are read by the general decoder."""
    runs = []
    for name in ("fast", "slow"):
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir()
        runs.append(Run(directory / name, is_fast=name == "fast", denied=denied))
    encoder = Encoder()
    for kind, what in [*(FIRST_RECORDS if has_records else []), *plan]:
        done = [encoder.frame(each) for each in what] if kind == "together" else what
        fast, general = (run.step(kind, done) for run in runs)
        assert fast == general
        if kind == "wait":
            encoder.now_ms += what
    fast, general = (run.state() for run in runs)
    assert fast == general


def values_of(read: ReadProduce) -> object:
    """All that a reader has found in a request, and the answer to it."""
    correlation_id, produce, words = read
    outcomes = []
    for number in range(len(produce.partitions)):
        appended = Appended()
        appended.log_append_time_ms, appended.log_start_offset = 1_000 + number, number
        outcomes.append((appended, 70 + number, 80 + number))
    answer = words.encode(correlation_id, outcomes)
    return correlation_id, *produce_values(produce), answer


def produce_values(produce: Produce) -> tuple[object, ...]:
    topics = [(topic.name, topic.partitions, topic.topic_id) for topic in produce.head.topics]
    batches = [(bytes(records), header) for records, header in produce.batches]
    return produce.options, topics, list(produce.partitions), list(produce.head.topic_ids), batches


def decoded_values(frame: memoryview) -> object:
    """What the general decoder finds in a request; None if that is no Produce request."""
    try:
        api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
        if api_key != ApiKey.PRODUCE or version not in range(3, 14):
            return None
        message = reader(ProduceRequest, version)(frame, offset)[0]
    except MalformedMessageError:
        return None
    produce = done_here(read_message(message, version, client_id, NAMES.get))
    values = produce_values(produce)
    for number in range(len(produce.partitions)):
        appended = Appended()
        appended.log_append_time_ms, appended.log_start_offset = 1_000 + number, number
        produce.outcomes.append((appended, 70 + number, 80 + number))
    response = done_here(response_to(None, "", produce))  # without an error it asks for no leaders
    return correlation_id, *values, b"".join(map(bytes, encode_response(response, version, correlation_id)))


NAMES = {topic_id: topic for topic, topic_id in IDS.items()}


@given(st.lists(st.one_of(usual_requests, requests, several_partitions, odd_partitions), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_all_readers_find_the_same_in_a_request(wanted: list[dict]) -> None:
    """From templates, part by part and decoded: what a reader does not leave is equal,
    and so is the answer to it."""
    templates, encoder = Templates(NAMES.get), Encoder()
    for request in wanted:
        first = memoryview(encoder.frame(request))[4:]
        # The second one comes from the template that the first one has left, if it has left one.
        for frame in (first, memoryview(encoder.frame(request))[4:]):
            # Another one follows, and has not come whole.
            data = memoryview(bytes(frame) + b"\0\0\1\0\0\0")
            parts = read_parts(data, 0, len(frame), range(3, 14), NAMES.get)
            from_template = templates.read(data, 0, len(frame))
            if parts is not None or from_template is not None:
                general = decoded_values(frame)
                assert parts is None or values_of(parts) == general
                assert from_template is None or values_of(from_template) == general
            if parts is not None:
                templates.learn(data, 0, len(frame), parts)
        is_usual = request["damage"] is None and request.get("form") == "usual" and request["client"] != "b" * 600
        if is_usual and (request["version"] < 13 or request["topic"] in IDS):
            assert from_template is not None


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_reader_finds_a_transactional_id(version: int) -> None:
    """It is a part of what the request asks for; no request with one becomes a template."""
    frame = memoryview(Encoder().frame({**USUAL, "version": version, "form": "transaction"}))[4:]
    read = read_parts(frame, 0, len(frame), range(3, 14), NAMES.get)
    assert read is not None
    assert read[1].options.transactional_id == "x"
    assert values_of(read) == decoded_values(frame)
    templates = Templates(NAMES.get)
    templates.learn(frame, 0, len(frame), read)
    assert templates.read(frame, 0, len(frame)) is None


def test_a_template_is_of_no_use_when_its_topic_is_gone() -> None:
    """Another topic of the same name has another id."""
    names = dict(NAMES)
    frame = memoryview(Encoder().frame({**USUAL, "version": 13}))[4:]
    templates = Templates(names.get)
    templates.learn(frame, 0, len(frame), read_parts(frame, 0, len(frame), range(3, 14), names.get))
    assert templates.read(frame, 0, len(frame)) is not None
    del names[IDS["t"]]
    assert templates.read(frame, 0, len(frame)) is None


def frames_in(wire: Wire) -> list[bytes]:
    """What was sent, frame by frame."""
    frames, rest = [], b"".join(wire.sent)
    while rest:
        size = 4 + int.from_bytes(rest[:4], "big")
        frames.append(rest[:size])
        rest = rest[size:]
    return frames


class CountingFile:
    """A log file that counts its writes."""

    def __init__(self, file: object) -> None:
        self.file = file
        self.writes: list[int] = []

    def append(self, parts: list[bytes]) -> None:
        self.writes.append(len(parts))
        self.file.append(parts)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


class ShortOfDescriptors(CountingFile):
    """A log file whose first write fails for want of a descriptor."""

    def append(self, parts: list[bytes]) -> None:
        super().append(parts) if self.writes else self.fail(parts)

    def fail(self, parts: list[bytes]) -> None:
        self.writes.append(len(parts))
        raise OSError(errno.EMFILE, "Too many open files")


USUAL_BATCH = {
    "values": [b"a", b"bc"],
    "producer": (7, 0, None),
    "codec": CompressionType.NONE,
    "age_ms": 0,
    "flags": "usual",
    "header": None,
}
USUAL = {
    "topic": "t",
    "batch": USUAL_BATCH,
    "acks": 1,
    "client": "a",
    "form": "usual",
    "damage": None,
}


PARTS = [(topic, index, USUAL_BATCH) for topic, partitions in PARTITIONS.items() for index in range(partitions)]
FIRST_RECORDS = [("together", [{**USUAL, "version": 7, "parts": PARTS}])]
"""The first records of a segment are appended by themselves."""


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_requests_that_came_together_are_served_fast_in_one_write(tmp_path: Path, version: int, acks: int) -> None:
    """Plain, compressed, of idempotent producers and of others: after the first
    batch of a segment."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    run.step("together", [encoder.frame({**USUAL, "version": version})])
    run.served_fast = 0
    segment = run.broker.replicas.get(TopicPartition("t", 0)).log.segments.active
    file = segment._open_files._open[segment.path] = CountingFile(segment.file)
    frames = [
        encoder.frame({**USUAL, "version": version, "acks": acks, "batch": {**USUAL_BATCH, **change}})
        for change in ({}, {"codec": CompressionType.LZ4}, {"values": [b"x" * 20_000]}, {})
    ]
    run.producer.sent.clear()
    run.step("together", frames)
    assert (run.served_fast, file.writes, len(run.producer.sent)) == (1, [4], 1 if acks else 0)


def test_batches_for_a_compacted_topic_share_a_write_if_their_records_have_keys(tmp_path: Path) -> None:
    """Plain and compressed, of one record and of many.

    Those without keys are refused, and a bomb is opened in a thread."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()

    def send(*changes: dict) -> list[int]:
        """Each answer's error."""
        run.producer.sent.clear()
        batches = [{**USUAL_BATCH, **change} for change in changes]
        run.step(
            "together",
            [encoder.frame({**USUAL, "version": 8, "topic": "compacted", "batch": each}) for each in batches],
        )
        return [error for _, [(_, _, error, _)] in partition_answers(run.producer, 8)]

    assert send({}) == [0]
    log = run.broker.replicas.get(TopicPartition("compacted", 0)).log
    (file,) = count_writes(run, ("compacted", 0))
    many = {"values": [b"%d" % at for at in range(500)]}
    lz4, gzip = {"codec": CompressionType.LZ4}, {"codec": CompressionType.GZIP}
    assert send({}, lz4, {"values": [b"one"]}, many, {**many, **lz4}, {**many, **gzip}) == [0] * 6
    assert (file.writes, log.log_end_offset) == ([6], 2 + 2 + 2 + 1 + 3 * 500)
    refused = int(ErrorCode.INVALID_RECORD)
    for change in (
        {"values": [KEYLESS]},
        {"values": [KEYLESS, b"a"], **lz4},
        {"values": [KEYLESS] * 9, "producer": (-1, -1, -1)},
    ):
        assert send(change) == [refused]
    bomb = {"values": [b"x" + bytes(100_000)], **lz4, "producer": (-1, -1, -1)}
    assert send(bomb, {"producer": (-1, -1, -1)}) == [0, 0]


def test_requests_for_several_partitions_are_answered_in_their_order(tmp_path: Path) -> None:
    """One call serves them, with a write for each partition that follows another."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    requests = [{**USUAL, "version": 8, "topic": topic} for topic in ("t", "indexed", "indexed", "t")]
    run.step("together", list(map(encoder.frame, requests)))
    run.producer.sent.clear()
    run.served_fast = 0
    run.step("together", list(map(encoder.frame, requests)))
    assert run.served_fast == 1
    assert [int.from_bytes(frame[4:8], "big") for frame in frames_in(run.producer)] == [5, 6, 7, 8]


def several(version: int, parts: list[tuple[str, int]], acks: int = 1) -> dict:
    """A request for several partitions."""
    return {**USUAL, "version": version, "acks": acks, "parts": [(*part, USUAL_BATCH) for part in parts]}


def partition_answers(wire: Wire, version: int) -> list[tuple[int, list[tuple[str, int, int, int]]]]:
    """Of each answer the correlation id, and each partition's topic, index, error
    code and base offset."""
    names = {topic_id: topic for topic, topic_id in IDS.items()}
    found = []
    for frame in frames_in(wire):
        wire.sent, wire.asked = [frame], [(0, version)]
        partitions = [
            (topic.name or names[topic.topic_id], answer.index, answer.error_code, answer.base_offset)
            for topic in wire.answer().responses
            for answer in topic.partition_responses
        ]
        found.append((int.from_bytes(frame[4:8], "big"), partitions))
    wire.sent = []
    return found


def with_records(directory: Path) -> tuple[Run, Encoder]:
    """A broker whose partitions have records, so that requests are served fast."""
    run, encoder = Run(directory, is_fast=True), Encoder()
    run.step("together", [encoder.frame(each) for each in FIRST_RECORDS[0][1]])
    run.producer.sent.clear()
    run.served_fast = 0
    encoder.correlation_id = 10
    return run, encoder


def count_writes(run: Run, *partitions: tuple[str, int]) -> list[CountingFile]:
    files = []
    for partition in partitions:
        segment = run.broker.replicas.get(TopicPartition(*partition)).log.segments.active
        file = segment._open_files._open[segment.path] = CountingFile(segment.file)
        files.append(file)
    return files


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_requests_for_several_partitions_are_served_fast_in_one_write_to_each(
    tmp_path: Path, version: int, acks: int
) -> None:
    """Java's producers send them, each time for others."""
    run, encoder = with_records(tmp_path)
    files = count_writes(run, ("t", 0), ("t", 2), ("indexed", 1))
    wanted = [[("t", 0), ("indexed", 1)], [("t", 2), ("t", 0)], [("indexed", 1), ("t", 0), ("t", 2)]]
    run.deliver(b"".join(encoder.frame(several(version, parts, acks)) for parts in wanted), is_followed=False)
    assert (run.served_fast, [file.writes for file in files]) == (1, [[3], [2], [2]])
    answers = [
        (11, [("t", 0, 0, 2), ("indexed", 1, 0, 2)]),
        (12, [("t", 2, 0, 2), ("t", 0, 0, 4)]),
        (13, [("indexed", 1, 0, 4), ("t", 0, 0, 6), ("t", 2, 0, 4)]),
    ]
    assert partition_answers(run.producer, version) == (answers if acks else [])


def test_requests_for_several_partitions_wait_together(tmp_path: Path) -> None:
    """Each is answered when its own partitions, and the requests before it, have made progress."""
    run, encoder = with_records(tmp_path)
    wanted = [[("replicated", 0), ("t", 0)], [("replicated", 0), ("replicated", 1)], [("replicated", 0)]]
    run.deliver(b"".join(encoder.frame(several(9, parts, -1)) for parts in wanted), is_followed=False)
    assert (run.served_fast, run.producer.sent, run.producer.is_paused) == (1, [], True)
    run.follow("replicated", index=0)
    assert partition_answers(run.producer, 9) == [(11, [("replicated", 0, 0, 2), ("t", 0, 0, 2)])]
    assert run.producer.is_paused
    run.follow("replicated", index=1)
    assert partition_answers(run.producer, 9) == [
        (12, [("replicated", 0, 0, 4), ("replicated", 1, 0, 2)]),
        (13, [("replicated", 0, 0, 6)]),
    ]
    assert not run.producer.is_paused
    assert not len(run.broker.purgatory)


@pytest.mark.parametrize("version", [5, 10, 13])
@pytest.mark.parametrize("ending", ["timeout", "moved"])
def test_partitions_that_are_not_acknowledged_are_named_as_in_the_general_path(
    tmp_path: Path, version: int, ending: str
) -> None:
    """Those that are have their offsets."""
    answers = []
    for is_fast in (True, False):
        (tmp_path / str(is_fast)).mkdir()
        run, encoder = with_records(tmp_path / str(is_fast))
        if not is_fast:
            run.broker.dispatcher.fast_apis.clear()
        wanted = several(version, [("replicated", 0), ("t", 1), ("replicated", 1)], -1)
        run.deliver(encoder.frame(wanted), is_followed=False)
        assert (run.served_fast, run.producer.sent) == (is_fast, [])
        run.follow("replicated", index=0)
        if ending == "timeout":
            run.broker.timers.advance(500)
        else:
            run.broker.lead("replicated", 1, epoch=5, leader=1, replicas=(0, 1), topic_id=IDS["replicated"])
            run.broker.timers.advance(0)
        assert not run.producer.is_paused
        answers.append(b"".join(run.producer.sent))
    assert answers[0] == answers[1]
    code = ErrorCode.REQUEST_TIMED_OUT if ending == "timeout" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition_answers(run.producer, version) == [
        (11, [("replicated", 0, 0, 2), ("t", 1, 0, 2), ("replicated", 1, code, -1)])
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_write_that_fails_is_answered_for_its_partition(tmp_path: Path, acks: int) -> None:
    """The others have their records once; with acks 0 the connection ends behind the
    answers before it."""
    run, encoder = with_records(tmp_path)
    segment = run.broker.replicas.get(TopicPartition("indexed", 0)).log.segments.active
    segment._open_files._open[segment.path] = ShortOfDescriptors(segment.file)
    wanted = [[("t", 0), ("replicated", 0)], [("t", 0), ("indexed", 0), ("replicated", 0)]]
    run.deliver(b"".join(encoder.frame(several(9, parts, acks)) for parts in wanted), is_followed=False)
    ends = [run.broker.replicas.get(TopicPartition(*each)).log.log_end_offset for each in (("t", 0), ("indexed", 0))]
    assert (run.served_fast, ends, run.producer.is_closed) == (1, [6, 2], acks == 0)
    if acks < 0:
        assert run.producer.sent == []
        run.follow("replicated")
    answers = [
        (11, [("t", 0, 0, 2), ("replicated", 0, 0, 2)]),
        (12, [("t", 0, 0, 4), ("indexed", 0, ErrorCode.KAFKA_STORAGE_ERROR, -1), ("replicated", 0, 0, 4)]),
    ]
    assert partition_answers(run.producer, 9) == (answers if acks else [])


def test_a_log_dir_that_fails_between_two_partitions_takes_the_second_and_what_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    """Records that only this broker has, in a log dir that is lost, must not be acknowledged."""
    run, encoder = with_records(tmp_path)
    run.broker.replicas.get(TopicPartition("t", 0)).log.segments.active.file.close()
    requests = [
        {**USUAL, "version": 9, "topic": "replicated", "acks": -1},
        several(9, [("replicated", 1), ("t", 0), ("t", 1)], -1),
    ]
    run.deliver(b"".join(map(encoder.frame, requests)), is_followed=False)
    lost = ErrorCode.KAFKA_STORAGE_ERROR
    assert partition_answers(run.producer, 9) == [
        (11, [("replicated", 0, lost, -1)]),
        (12, [("replicated", 1, lost, -1), ("t", 0, lost, -1), ("t", 1, lost, -1)]),
    ]
    assert not run.producer.is_paused


def test_a_batch_that_is_refused_holds_up_no_other(tmp_path: Path) -> None:
    """Neither in its request nor behind it; those of its partition that came
    together are two writes then."""
    run, encoder = with_records(tmp_path)
    wrong = several(9, [("t", 0), ("t", 1)])
    wrong["parts"][1] = ("t", 1, {**USUAL_BATCH, "header": (57, b"\0\0\0\3")})
    alone = {**USUAL_BATCH, "producer": (-1, -1, -1)}
    behind = {**several(9, []), "parts": [("t", 1, alone), ("t", 0, USUAL_BATCH)]}
    requests = [several(9, [("t", 0), ("t", 2)]), wrong, behind]
    files = count_writes(run, ("t", 0), ("t", 1), ("t", 2))
    run.deliver(b"".join(map(encoder.frame, requests)))
    assert (run.served_fast, [file.writes for file in files]) == (1, [[3], [1], [1]])
    assert partition_answers(run.producer, 9) == [
        (11, [("t", 0, 0, 2), ("t", 2, 0, 2)]),
        (12, [("t", 0, 0, 4), ("t", 1, ErrorCode.INVALID_RECORD, -1)]),
        (13, [("t", 1, 0, 2), ("t", 0, 0, 6)]),
    ]


@pytest.mark.parametrize("api_key", [1, 3, 99])
def test_a_frame_of_another_api_behind_a_produce_request_writes_nothing(tmp_path: Path, api_key: int) -> None:
    """Also where the rest of it could be read as a Produce request for several partitions."""
    run, encoder = with_records(tmp_path)
    first = bytes(encoder.frame(several(9, [("t", 0), ("t", 2)])))
    other = bytearray(encoder.frame(several(9, [("t", 0), ("t", 2)])))
    other[4:6] = api_key.to_bytes(2, "big")
    run.deliver(first + bytes(other))
    assert run.broker.replicas.get(TopicPartition("t", 0)).log.log_end_offset == 4


def test_a_request_for_very_many_records_in_several_partitions_is_appended_in_slices(tmp_path: Path) -> None:
    """And answered by itself.

    What came behind it is served in the next call, and everything is appended in order."""
    run, encoder = with_records(tmp_path)
    slices = iter([slices_of(2)()])
    run.broker.clock.time_slice = lambda: next(slices, lambda: False)
    many = {**USUAL_BATCH, "values": [b""] * 1_900}
    parts = [("t", index, many) for index in range(3)]
    requests = [several(9, [("t", 0)]), {**several(9, []), "parts": parts}, several(9, [("t", 2)])]
    run.deliver(b"".join(map(encoder.frame, requests)))
    run.broker.timers.advance(0)
    assert run.served_fast == 2
    assert partition_answers(run.producer, 9) == [
        (11, [("t", 0, 0, 2)]),
        (12, [("t", 0, 0, 4), ("t", 1, 0, 2), ("t", 2, 0, 2)]),
        (13, [("t", 2, 0, 1_902)]),
    ]


def answers_of(wire: Wire, version: int) -> list[tuple[int, int, int]]:
    """The correlation id, error code and base offset of each answer that was sent."""
    found = []
    for frame in frames_in(wire):
        wire.sent, wire.asked = [frame], [(0, version)]
        answer = wire.answer().responses[0].partition_responses[0]
        found.append((int.from_bytes(frame[4:8], "big"), answer.error_code, answer.base_offset))
    wire.sent = []
    return found


def begun(directory: Path, *topics: str) -> tuple[Run, Encoder]:
    """A broker that serves these topics fast from now on.

    Requests have the correlation ids 11, 12, ..."""
    run, encoder = Run(directory, is_fast=True), Encoder()
    for topic in topics:
        run.step("together", [encoder.frame({**USUAL, "version": 9, "topic": topic})])
        if topic in REPLICATED:
            run.follow(topic)
    run.producer.sent.clear()
    run.served_fast = 0
    encoder.correlation_id = 10
    return run, encoder


@pytest.mark.parametrize("version", range(3, 14))
def test_requests_for_all_in_sync_replicas_wait_together(tmp_path: Path, version: int) -> None:
    """One write, and the answers to all that the follower has leave together; meanwhile the
    connection delivers nothing."""
    run, encoder = begun(tmp_path, "replicated")
    log = run.broker.replicas.get(TopicPartition("replicated", 0)).log
    request = {**USUAL, "version": version, "topic": "replicated", "acks": -1}
    run.deliver(b"".join(encoder.frame(request) for _ in range(4)), is_followed=False)
    assert (run.served_fast, log.log_end_offset, run.producer.is_paused, run.producer.sent) == (1, 10, True, [])
    run.follow("replicated", 5)
    assert (run.producer.is_paused, len(run.producer.sent)) == (True, 1)
    assert answers_of(run.producer, version) == [(11, 0, 2)]
    run.follow("replicated", 10)
    assert (run.producer.is_paused, len(run.producer.sent)) == (False, 1)
    assert answers_of(run.producer, version) == [(12, 0, 4), (13, 0, 6), (14, 0, 8)]
    assert not len(run.broker.purgatory)


def test_at_the_timeout_those_are_acknowledged_that_the_follower_has(tmp_path: Path) -> None:
    """The others get REQUEST_TIMED_OUT, each by itself."""
    run, encoder = begun(tmp_path, "replicated")
    request = {**USUAL, "version": 9, "topic": "replicated", "acks": -1}
    run.deliver(b"".join(encoder.frame(request) for _ in range(3)), is_followed=False)
    run.follow("replicated", 6)
    run.broker.timers.advance(499)
    assert answers_of(run.producer, 9) == [(11, 0, 2), (12, 0, 4)]
    run.broker.timers.advance(1)
    assert answers_of(run.producer, 9) == [(13, ErrorCode.REQUEST_TIMED_OUT, -1)]
    assert not run.producer.is_paused


@pytest.mark.parametrize("version", [9, 10, 13])
def test_requests_that_wait_learn_that_the_leader_has_moved(tmp_path: Path, version: int) -> None:
    """All of them, with the new leader where the version has it, as the general path answers."""
    answers = []
    for is_fast in (True, False):
        (tmp_path / str(is_fast)).mkdir()
        run, encoder = begun(tmp_path / str(is_fast), "replicated")
        if not is_fast:
            run.broker.dispatcher.fast_apis.clear()
        request = {**USUAL, "version": version, "topic": "replicated", "acks": -1}
        run.deliver(b"".join(encoder.frame(request) for _ in range(2 if is_fast else 1)), is_followed=False)
        run.broker.lead("replicated", epoch=5, leader=1, replicas=(0, 1), topic_id=IDS["replicated"])
        run.broker.timers.advance(0)
        answers.append(frames_in(run.producer))
        assert not run.producer.is_paused
    fast, general = answers
    assert [frame[8:] for frame in fast] == [general[0][8:]] * 2
    run.producer.sent = general
    assert answers_of(run.producer, version) == [(11, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_answers_keep_their_order_when_only_some_wait(tmp_path: Path) -> None:
    """Those before the first that waits leave at once, and each other one when none
    before it waits."""
    run, encoder = begun(tmp_path, "t", "replicated", "indexed")
    wanted = [("t", 1), ("replicated", -1), ("t", 1), ("indexed", 0), ("indexed", -1)]
    requests = [{**USUAL, "version": 9, "topic": topic, "acks": acks} for topic, acks in wanted]
    run.deliver(b"".join(map(encoder.frame, requests)), is_followed=False)
    assert run.served_fast == 1
    assert answers_of(run.producer, 9) == [(11, 0, 2)]
    assert run.producer.is_paused
    run.follow("replicated")
    assert answers_of(run.producer, 9) == [(12, 0, 2), (13, 0, 4), (15, 0, 4)]
    assert not run.producer.is_paused


def test_partitions_that_make_progress_are_answered_before_one_that_does_not(tmp_path: Path) -> None:
    """If their requests came first."""
    run, encoder = begun(tmp_path, "replicated", "replicated-too")
    topics = ["replicated", "replicated-too", "replicated"]
    requests = [{**USUAL, "version": 9, "topic": topic, "acks": -1} for topic in topics]
    run.deliver(b"".join(map(encoder.frame, requests)), is_followed=False)
    run.follow("replicated")
    assert answers_of(run.producer, 9) == [(11, 0, 2)]
    run.broker.timers.advance(500)
    assert answers_of(run.producer, 9) == [(12, ErrorCode.REQUEST_TIMED_OUT, -1), (13, 0, 4)]


def test_a_client_that_leaves_takes_what_waits_for_it_along(tmp_path: Path) -> None:
    """Nothing is left to expire, and nothing is sent."""
    run, encoder = begun(tmp_path, "replicated", "replicated-too")
    requests = [{**USUAL, "version": 9, "topic": topic, "acks": -1} for topic in ("replicated", "replicated-too")]
    run.deliver(b"".join(map(encoder.frame, requests)), is_followed=False)
    assert len(run.broker.purgatory) == 1
    assert run.producer.handler.busy
    run.producer.close()
    assert not len(run.broker.purgatory)
    run.follow("replicated")
    assert run.producer.sent == []


def test_a_connection_that_breaks_at_the_first_answers_takes_what_waits_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are in the log, and nothing is left to expire."""
    run, encoder = begun(tmp_path, "t", "replicated")
    monkeypatch.setattr(run.producer, "send", lambda parts: run.producer.close())
    requests = [{**USUAL, "version": 9, "topic": topic, "acks": acks} for topic, acks in (("t", 1), ("replicated", -1))]
    run.deliver(b"".join(map(encoder.frame, requests)), is_followed=False)
    assert run.broker.replicas.get(TopicPartition("replicated", 0)).log.log_end_offset == 4
    assert not len(run.broker.purgatory)
    assert not run.producer.handler.busy


def test_requests_that_wait_do_not_keep_the_buffer_in_which_they_came(tmp_path: Path) -> None:
    """It may be as large as a request, and the wait as long as its timeout."""
    run, encoder = begun(tmp_path, "replicated")
    received = bytearray(encoder.frame({**USUAL, "version": 9, "topic": "replicated", "acks": -1}))
    assert run.producer.handler.take_from(memoryview(received), 0) == len(received)
    assert run.producer.is_paused
    received.clear()  # raises BufferError while a view of it is alive


@pytest.mark.parametrize("ending", ["answered", "expired", "abandoned"])
def test_requests_that_have_waited_leave_nothing_to_the_garbage_collector(tmp_path: Path, ending: str) -> None:
    """Servers freeze what is alive at a full collection: a cycle among what waits
    would stay for good."""
    run, encoder = begun(tmp_path, "replicated", "replicated-too")
    requests = [{**USUAL, "version": 9, "topic": topic, "acks": -1} for topic in ("replicated", "replicated-too")]
    for _ in range(2):  # the first time warms caches
        gc.collect()
        run.deliver(b"".join(map(encoder.frame, requests)), is_followed=False)
        assert len(run.broker.purgatory) == 1
        if ending == "answered":
            for topic in REPLICATED:
                run.follow(topic)
        elif ending == "expired":
            run.broker.timers.advance(500)
        else:
            run.producer.close()
            run.producer.handler = None
            run.producer = run.broker.connect()
        assert not len(run.broker.purgatory)
        found = gc.collect()
    assert not found


@pytest.mark.parametrize("version", [8, 13])
def test_each_request_of_a_run_gets_a_storage_error_when_the_write_fails(tmp_path: Path, version: int) -> None:
    """The log has none of their records, and goes offline."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    request = {**USUAL, "version": version}
    run.step("together", [encoder.frame(request)])
    log = run.broker.replicas.get(TopicPartition("t", 0)).log
    bounds, producers = state_of(run.broker, "t")[2], state_of(run.broker, "t")[5]
    log.segments.active.file.close()
    run.producer.sent.clear()
    run.step("together", [encoder.frame(request) for _ in range(3)])
    run.producer.sent = frames_in(run.producer)
    run.producer.asked = [(0, version)] * 3
    answers = [run.producer.answer().responses[0].partition_responses[0] for _ in range(3)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 3
    assert log.offline is not None
    assert (state_of(run.broker, "t")[2], state_of(run.broker, "t")[5]) == (bounds, producers)


def test_batches_that_came_together_can_be_sent_again_when_descriptors_were_short(tmp_path: Path) -> None:
    """The log stays online, and has none of them; each is answered with the error of
    their write."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    request = {**USUAL, "version": 9, "batch": {**USUAL_BATCH, "producer": (-1, -1, -1)}}
    run.step("together", [encoder.frame(request)])
    segment = run.broker.replicas.get(TopicPartition("t", 0)).log.segments.active
    segment._open_files._open[segment.path] = ShortOfDescriptors(segment.file)
    found = []
    for _ in range(2):
        run.producer.sent.clear()
        run.step("together", [encoder.frame(request) for _ in range(2)])
        found.append([error for _, [(_, _, error, _)] in partition_answers(run.producer, 9)])
    assert found == [[ErrorCode.KAFKA_STORAGE_ERROR] * 2, [0, 0]]


def test_an_index_that_cannot_be_written_after_a_run_takes_the_log_offline(tmp_path: Path) -> None:
    """As in the general path; each request of the run gets the error, and none after
    it is taken."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    request = {**USUAL, "version": 9, "topic": "indexed", "batch": {**USUAL_BATCH, "values": [b"x" * 200]}}
    run.step("together", [encoder.frame(request)])
    log = run.broker.replicas.get(TopicPartition("indexed", 0)).log
    run.step("together", [encoder.frame(request) for _ in range(40)])
    written, end = Path(log.segments.active.path).stat().st_size, log.log_end_offset
    index = Path(log.segments.active.file_path(".index"))
    index.unlink()
    index.mkdir()
    run.producer.sent.clear()
    run.step("together", [encoder.frame(request) for _ in range(40)])
    run.producer.sent = frames_in(run.producer)
    run.producer.asked = [(0, 9)] * 40
    codes = {run.producer.answer().responses[0].partition_responses[0].error_code for _ in range(40)}
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert log.offline is not None
    assert Path(log.segments.active.path).stat().st_size == written
    assert log.log_end_offset == end


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_call_ends_with_its_slice_of_time(tmp_path: Path, acks: int) -> None:
    """What it has taken is written in one write, and what came behind it is for the next call."""
    run, encoder = with_records(tmp_path)
    (file,) = count_writes(run, ("t", 0))
    run.broker.clock.time_slice = slices_of(3)
    request = {**USUAL, "version": 9, "acks": acks}
    run.deliver(b"".join(encoder.frame(request) for _ in range(8)))
    assert (run.served_fast, file.writes) == (3, [3, 3, 2])
    answers = [(11 + number, 0, 2 + 2 * number) for number in range(8)]
    assert answers_of(run.producer, 9) == (answers if acks else [])


def slices_of(batches: int) -> object:
    """In place of a clock's `time_slice`: slices that end after a number of questions."""

    def time_slice() -> object:
        left = iter(range(batches - 1))
        return lambda: next(left, None) is None

    return time_slice


def test_many_partitions_are_written_in_groups(tmp_path: Path) -> None:
    """How long the writes take shows only when they are done, so not all of a large request wait
    for the end of a slice.
    """
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    for index in range(3, 40):
        run.broker.lead("t", index, topic_id=IDS["t"])
    request = several(9, [("t", index) for index in range(40)])
    run.deliver(encoder.frame(request))
    logs = [run.broker.replicas.get(TopicPartition("t", index)).log for index in range(40)]
    written: list[int] = []

    def is_over() -> bool:
        written.append(sum(log.log_end_offset > 2 for log in logs))
        return False

    run.broker.clock.time_slice = lambda: is_over
    run.producer.sent.clear()
    run.deliver(encoder.frame(request))
    assert written == [0] * 15 + [16] * 16 + [32] * 9
    assert [log.log_end_offset for log in logs] == [4] * 40
    assert {code for _, found in partition_answers(run.producer, 9) for _, _, code, _ in found} == {0}


@pytest.mark.parametrize(
    ("topic", "values", "in_topic", "elsewhere"),
    [("t", [b""] * 5_000, 1, 0), ("lz4", [b"x" * 100_000], 1, 0), ("missing", [b""], 0, 1)],
    ids=["many records", "large records", "no replica here"],
)
def test_a_partition_of_a_request_is_counted_once(
    tmp_path: Path, topic: str, values: list[bytes], in_topic: int, elsewhere: int
) -> None:
    """Also if its records are checked in a thread before they are appended, and where the
    broker does not lead it."""
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    run.step(
        "together", [encoder.frame({**USUAL, "version": 9, "topic": topic, "batch": {**USUAL_BATCH, "values": values}})]
    )
    stats = run.broker.replicas.topic_stats
    assert sum(each.total_produce_requests for each in stats.by_topic.values()) == in_topic
    assert stats.elsewhere.total_produce_requests == elsewhere


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_that_take_long_to_check_are_appended_in_their_turn(tmp_path: Path, acks: int) -> None:
    """In a thread, from memory of their own, while what came before them is appended and
    what came behind them waits."""
    run, encoder = with_records(tmp_path)
    long = {**USUAL_BATCH, "values": [b"x"] * 5_000}
    batches = [USUAL_BATCH, USUAL_BATCH, long, USUAL_BATCH]
    received = bytearray(
        b"".join(encoder.frame({**USUAL, "version": 9, "acks": acks, "batch": each}) for each in batches)
    )
    held = []
    run.broker.dispatcher.runner._in_thread = lambda work, then: held.append((work, then))
    taken = run.producer.handler.take_from(memoryview(received), 0)
    log = run.broker.replicas.get(TopicPartition("t", 0)).log
    assert (log.log_end_offset, run.producer.is_paused, len(held)) == (6, True, 1)
    rest = bytes(received[taken:])
    received[:] = bytes(len(received))  # a connection reads the next bytes into the same memory
    ((work, then),) = held
    work()
    then(None)
    assert (log.log_end_offset, run.producer.is_paused) == (5_006, False)
    run.deliver(rest)
    answers = [(11, 0, 2), (12, 0, 4), (13, 0, 6), (14, 0, 5_006)]
    assert answers_of(run.producer, 9) == (answers if acks else [])
    assert run.counted()[0] == 5  # of them the first records of all partitions


def test_a_client_that_leaves_while_its_records_are_checked_has_them_appended(tmp_path: Path) -> None:
    """And nothing waits for it."""
    run, encoder = with_records(tmp_path)
    long = {**USUAL_BATCH, "values": [b"x"] * 5_000}
    held = []
    run.broker.dispatcher.runner._in_thread = lambda work, then: held.append((work, then))
    run.deliver(
        encoder.frame({**USUAL, "version": 9, "topic": "replicated", "acks": -1, "batch": long}), is_followed=False
    )
    run.producer.close()
    ((work, then),) = held
    work()
    then(None)
    assert run.broker.replicas.get(TopicPartition("replicated", 0)).log.log_end_offset == 5_002
    assert (len(run.broker.purgatory), run.producer.sent) == (0, [])


def test_templates_in_use_stay_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests of most producers without a template are read part by part, and
    those that go on get one."""
    monkeypatch.setattr(produce_template, "_MOST_TEMPLATES", 8)
    read = []
    whole = produce_together.read_parts
    monkeypatch.setattr(produce_together, "read_parts", lambda *wanted: read.append(1) or whole(*wanted))
    run, encoder = Run(tmp_path, is_fast=True), Encoder()
    for _ in range(2):
        for client in range(10):
            run.step("together", [encoder.frame({**USUAL, "version": 9, "client": f"client {client}"})])
    assert (run.served_fast, len(read)) == (20, 12)
    read.clear()
    for _ in range(64):
        run.step("together", [encoder.frame({**USUAL, "version": 9, "client": "busy"})])
    assert run.served_fast == 84
    assert 1 <= len(read) < 64


def test_a_short_write_together_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes a part of the batches is continued where it ended."""
    path = str(tmp_path / "file")
    file = OsFiles().open(path, create=True)
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole(fd, [b"".join(parts)[:5]], at))
    file.append([b"abc", b"defg", b"hij"])
    assert (Path(path).read_bytes(), file.size()) == (b"abcdefghij", 10)


def test_frames_behind_a_request_are_taken_up_to_one_that_is_too_large() -> None:
    """The connection ends there, as it does where no other request comes first."""
    sizes = (10, 20, 101, 20)
    data = memoryview(b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes))
    assert _frames(data, 4, 14, 100) == [(4, 14), (18, 38)]
    assert len(_frames(data, 4, 14, 101)) == 4
