#!/usr/bin/env python3
"""Processor time of what reads records: compaction, batches that a broker opens, offset
commits; beside Apache Kafka's.

usage: bench/records.py [--mb 64] [--only compaction,beside,produce,offsets] [--codecs none,lz4,...]
[--sizes 100,1000] [--alone]

Batches are made beforehand and sent through a plain socket, five at a time: 16 KB of records each,
not compressed, whose sizes differ around the size named, with keys of which each comes twice. Each
figure is taken twice and the second counts, because a JVM compiles while it works; both systems
run, and have their turns one after the other, for the machine's load is that of both then.
Compaction begins when a topic that is full becomes compacted. "beside" is how long a producer waits
for its acknowledgement that sends a record of 100 bytes each millisecond, in the seconds before a
compaction and during it. Processor time is that of the broker and of processes that it has started,
without what it takes when nothing is asked of it.
"""

import argparse
import contextlib
import os
import pathlib
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple, Self

from systems import HAS_REFERENCE, OURS, THEIRS, Running, cluster, print_comparison

from barnabas.client.admin.configurations import Resource, ResourceType, alter_configs
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch

_TICK = os.sysconf("SC_CLK_TCK")
_BATCH_BYTES = 16 * 1024
_IN_FLIGHT = 5
_RECORD_OVERHEAD_BYTES = 20
_SETTINGS = {"log.cleaner.backoff.ms": "200", "offsets.topic.num.partitions": "1"}
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
_WORDS = ["orders", "customer", "payment", "shipped", "pending", "cancelled", "warehouse", "address", "amount"]
_GB = 1e9
_COMMITTED_PARTITIONS = 1_000
_CALM_S = 5


class Used(NamedTuple):
    """What a piece of work took."""

    cpu_s: float
    seconds: float


class Batches(NamedTuple):
    """Batches and the bytes of their records, not compressed."""

    encoded: list[bytes]
    plain_bytes: int
    records: int


def make_batches(codec: CompressionType, size: int, mb: int) -> Batches:
    """Some of keys that come twice."""
    rng = random.Random(size)
    text = " ".join(rng.choice(_WORDS) + str(rng.randrange(10_000)) for _ in range(100_000)).encode()
    count = mb * 1_000_000 // size
    keys = [*range(count // 2)] * 2
    rng.shuffle(keys)
    now_ms = int(time.time() * 1000)
    encoded, plain_bytes = [], 0
    some: list[Record] = []
    size_bytes = 0
    for key in keys:
        start, length = (
            rng.randrange(len(text) - 2 * size),
            max(1, int(size * rng.uniform(0.5, 1.5)) - _RECORD_OVERHEAD_BYTES),
        )
        some.append(Record(len(some), now_ms, b"key-%08d" % key, text[start : start + length]))
        size_bytes += length + _RECORD_OVERHEAD_BYTES
        if size_bytes >= _BATCH_BYTES:
            encoded.append(bytes(build_batch(some, compression=codec)))
            plain_bytes += size_bytes
            some, size_bytes = [], 0
    return Batches(encoded, plain_bytes, len(keys) - len(some))


class Broker:
    """One broker of either system."""

    def __init__(self, system: str, running: Running, directory: str) -> None:
        self._pid = running.broker_pids[0]
        self.port = int(running.bootstrap.rpartition(":")[2])
        self.log_dir = next(pathlib.Path(directory).rglob("meta.properties")).parent
        self.admin = AdminConnection(running.bootstrap, {"request.timeout.ms": "60000"})
        self.system = system
        self._idle = 0.0

    def cpu_s(self) -> float:
        """With what processes used that it has started, whether they have ended or not."""
        tasks = pathlib.Path(f"/proc/{self._pid}/task")
        children = [pid for path in tasks.glob("*/children") for pid in path.read_text().split()]
        return sum(map(_cpu_ticks, [self._pid, *children])) / _TICK

    def rest(self) -> None:
        """Find out what it takes when nothing is asked of it."""
        time.sleep(2)
        used = self.during(lambda: time.sleep(3))
        self._idle = used.cpu_s / used.seconds

    def during(self, work) -> Used:
        before, began = self.cpu_s(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        return Used(self.cpu_s() - before - self._idle * seconds, seconds)

    def send(self, frames: Iterator[bytes], message_type) -> None:
        """Send requests, some ahead of their answers."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            under_way = 0
            for frame in frames:
                connection.sendall(frame)
                under_way += 1
                if under_way == _IN_FLIGHT:
                    _check(connection, *message_type)
                    under_way -= 1
            for _ in range(under_way):
                _check(connection, *message_type)

    def produce(self, topic: str, batches: Batches) -> None:
        self.send((_produce_frame(topic, batch) for batch in batches.encoded), (ProduceRequest, 7))


def _cpu_ticks(pid: int | str) -> int:
    """Of a process and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _check(connection: socket.socket, message, version: int):
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    frame = bytearray()
    while len(frame) < size:
        frame += connection.recv(size - len(frame))
    header = decode_response_header(bytes(frame), message.API_KEY, version)
    answer = decode(api(message.API_KEY).response, version, memoryview(frame), header.body_offset)
    if message is ProduceRequest:
        code = answer.responses[0].partition_responses[0].error_code
    elif message is OffsetCommitRequest:
        code = max(each.error_code for each in answer.topics[0].partitions)
    else:
        code = answer.error_code
    if code:
        raise RuntimeError(f"{message.__name__}: error {code}")


def _produce_frame(topic: str, batch: bytes) -> bytes:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=60_000, topic_data=data)
    return b"".join(bytes(part) for part in encode_request(request, 7, 1, "bench"))


class Pacer:
    """A producer that sends one record each millisecond.

    It notes how long after it was due each was acknowledged."""

    def __init__(self, broker: "Broker", topic: str) -> None:
        self._broker = broker
        self._frame = _produce_frame(
            topic, bytes(build_batch([Record(0, int(time.time() * 1000), b"key", b"v" * 100)]))
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.waits_ms: list[float] = []

    def _run(self) -> None:
        with socket.create_connection(("127.0.0.1", self._broker.port), 60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            due = time.perf_counter()
            while not self._is_over.is_set():
                due += 0.001
                time.sleep(max(due - time.perf_counter(), 0))
                connection.sendall(self._frame)
                _check(connection, ProduceRequest, 7)
                self.waits_ms.append((time.perf_counter() - due) * 1000)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _until(condition, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("not done in time")
        time.sleep(0.02)


def _new_topic(broker: Broker, name: str, **configs: str) -> None:
    create_topic(
        broker.admin,
        name,
        partitions=1,
        replication_factor=1,
        configs={k.replace("_", "."): v for k, v in configs.items()},
    )
    time.sleep(0.5)


def measure_compaction(
    broker: Broker, codec: CompressionType, size: int, batches: Batches, number: int, *, is_beside: bool = False
) -> dict[str, float]:
    topic = f"{'beside' if is_beside else 'compaction'}-{codec.name.lower()}-{size}-{number}"
    _new_topic(broker, topic)
    broker.produce(topic, batches)
    folder, checkpoint = broker.log_dir / f"{topic}-0", broker.log_dir / "cleaner-offset-checkpoint"
    closed = sorted(folder.glob("*.log"))
    upto = int(closed[-1].stem)
    plain_bytes = batches.plain_bytes * upto / batches.records

    def is_cleaned() -> bool:
        return checkpoint.exists() and f"{topic} 0 {upto}" in checkpoint.read_text()

    def compact() -> None:
        alter_configs(broker.admin, Resource(ResourceType.TOPIC, topic), _COMPACTED)
        _until(is_cleaned)
        time.sleep(0.3)  # a process ends

    name = f"compaction, {codec.name.lower()}, {size} B"
    if is_beside:
        figures = _beside(broker, name, compact)
    else:
        used = broker.during(compact)
        figures = {
            f"{name}, CPU s/GB": used.cpu_s / plain_bytes * _GB,
            f"{name}, MB/s": plain_bytes / 1e6 / (used.seconds - 0.3),
        }
    alter_configs(broker.admin, Resource(ResourceType.TOPIC, topic), {"cleanup.policy": "delete"})
    return figures


def _beside(broker: Broker, name: str, compact) -> dict[str, float]:
    topic = f"paced-{time.time_ns()}"
    _new_topic(broker, topic)
    with Pacer(broker, topic) as pacer:
        time.sleep(_CALM_S)
        calm = len(pacer.waits_ms)
        compact()
        waits_ms = pacer.waits_ms[:]
    return {f"{name}, p99 before, ms": _p99(waits_ms[:calm]), f"{name}, p99 beside, ms": _p99(waits_ms[calm:])}


def measure_produce(
    broker: Broker, codec: CompressionType, size: int, batches: Batches, number: int
) -> dict[str, float]:
    figures = {}
    for kind, configs in (
        (
            "compacted",
            {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "1.0", "min_compaction_lag_ms": "86400000"},
        ),
        ("zstd", {"compression_type": "zstd"}),
    ):
        if kind == "zstd" and codec is CompressionType.ZSTD:
            continue
        topic = f"to-{kind}-{codec.name.lower()}-{size}-{number}"
        _new_topic(broker, topic, **configs)
        used = broker.during(lambda: broker.produce(topic, batches))  # noqa: B023
        figures[f"produce {codec.name.lower()} to {kind}, {size} B, CPU s/GB"] = used.cpu_s / batches.plain_bytes * _GB
    return figures


def measure_offsets(broker: Broker, number: int) -> dict[str, float]:
    if not number:
        create_topic(broker.admin, "committed", partitions=_COMMITTED_PARTITIONS, replication_factor=1)
        time.sleep(2)

    def commits(per_request: int, count: int) -> Iterator[bytes]:
        for at in range(count):
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=at, committed_metadata="")
                for index in range(per_request)
            ]
            request = OffsetCommitRequest(
                group_id=f"group-{number}-{at % 20}", generation_id_or_member_epoch=-1, member_id="",
                topics=[OffsetCommitRequestTopic(name="committed", partitions=partitions)],
            )  # fmt: skip
            yield b"".join(bytes(part) for part in encode_request(request, 7, 1, "bench"))

    def find() -> bool:
        try:
            broker.send(
                iter([b"".join(map(bytes, encode_request(FindCoordinatorRequest(key="g", key_type=0), 2, 1, "b")))]),
                (FindCoordinatorRequest, 2),
            )
        except RuntimeError:
            return False
        return True

    _until(find)
    figures = {}
    for per_request, count in ((10, 2000), (1000, 200)):
        frames = list(commits(per_request, count))
        broker.send(iter(frames[:40]), (OffsetCommitRequest, 7))
        used = broker.during(lambda: broker.send(iter(frames), (OffsetCommitRequest, 7)))  # noqa: B023
        figures[f"commits of {per_request} offsets, CPU us each"] = used.cpu_s / per_request / count * 1e6
    return figures


def start(system: str, given: argparse.Namespace, stack: contextlib.ExitStack) -> Broker:
    settings = {**_SETTINGS, "log.segment.bytes": str(given.mb * 50_000)}
    flag = "--override" if system == OURS else "--set"
    extra = [argument for name, value in settings.items() for argument in (flag, f"{name}={value}")]
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    broker = Broker(system, stack.enter_context(cluster(system, directory, *extra)), directory)
    stack.callback(broker.admin.close)
    broker.rest()
    return broker


def measure(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The figures of each system, taken in turn."""
    found: dict[str, dict[str, float]] = {}
    steps = given.only.split(",")
    with contextlib.ExitStack() as stack:
        systems = [OURS] if given.alone or not HAS_REFERENCE else [OURS, THEIRS]
        brokers = [start(system, given, stack) for system in systems]
        for broker in brokers:
            found[broker.system] = {}
        for number in range(2):
            for broker in brokers:
                if "offsets" in steps:
                    found[broker.system] |= measure_offsets(broker, number)
        for size in map(int, given.sizes.split(",")):
            for codec in (CompressionType[name.upper()] for name in given.codecs.split(",")):
                batches = make_batches(codec, size, given.mb)
                for number in range(2):
                    for broker in brokers:
                        if "compaction" in steps:
                            found[broker.system] |= measure_compaction(broker, codec, size, batches, number)
                        if "beside" in steps:
                            found[broker.system] |= measure_compaction(
                                broker, codec, size, batches, number, is_beside=True
                            )
                        if "produce" in steps:
                            found[broker.system] |= measure_produce(broker, codec, size, batches, number)
                print(f"{size} B, {codec.name} done, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=128, help="megabytes of records, not compressed, in each log")
    parser.add_argument("--only", default="compaction,beside,produce,offsets")
    parser.add_argument("--codecs", default="none,lz4,zstd,gzip,snappy")
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--alone", action="store_true", help="do not run the reference systems")
    found = measure(parser.parse_args())
    print_comparison(found, width=48, digits=3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
