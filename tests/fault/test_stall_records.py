"""What a client sees while a broker gets very large batches, forged ones, many offsets, and
several such things at once.

`support.stalls` says what a stall is, and what the machine's load explains of it.
"""

import threading
import time
from collections.abc import Callable
from os import environ
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.configurations import Resource, ResourceType, alter_configs
from barnabas.client.admin.topics import create_topic, delete_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES, seal
from barnabas.wire.kafka.records.compression import CompressionType, compress
from barnabas.wire.kafka.records.records import Record, build_batch
from barnabas.wire.kafka.records.varints import put_varint
from support.memory import Memory
from support.raw import ask
from support.stalls import Stalls, cpu_s, one_broker
from support.waiting import eventually

pytestmark = [pytest.mark.fault]

RECORDS = int(environ.get("BARNABAS_RECORDS", "20000"))
PARTITIONS = int(environ.get("BARNABAS_PARTITIONS", "600"))
GROUPS = int(environ.get("BARNABAS_GROUPS", "10"))
BOMB_MIB = int(environ.get("BARNABAS_BOMB_MIB", "64"))
MEMORY_MIB = 16
_NOW_MS = int(time.time() * 1000)
_SETTINGS = {"log.cleaner.backoff.ms": "500"}
_LARGE = {"max.message.bytes": "20000000"}
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "300000"}


def produce(port: int, topic: str, batch: bytes) -> ErrorCode:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=60_000, topic_data=data)
    return ErrorCode(ask(port, request, 9).responses[0].partition_responses[0].error_code)


def small_records(codec: CompressionType) -> bytes:
    """One batch of many small records, whose sizes differ."""
    records = [Record(at, _NOW_MS, b"key-%d" % (at % 5000), b"v" * (at % 9)) for at in range(RECORDS)]
    return bytes(build_batch(records, compression=codec))


def forged(body: bytes, count: int, codec: CompressionType) -> bytes:
    """A batch with a header that agrees with itself, whatever the records are."""
    packed = bytes(compress(codec, body))
    size = HEADER_BYTES - 12 + len(packed)
    fields = (0, size, -1, 2, 0, int(codec), count - 1, _NOW_MS, _NOW_MS, -1, -1, -1, count)
    batch = bytearray(HEADER.pack(*fields)) + packed
    seal(batch)
    return bytes(batch)


def millions_of_headers() -> bytes:
    """A few kilobytes of gzip that hold a record with 2,000,000 empty headers."""
    fields = bytearray(b"\0\0\0\1\1")
    put_varint(fields, 2_000_000)
    body = bytearray()
    put_varint(body, len(fields) + 4_000_000)
    return forged(bytes(body + fields) + bytes(4_000_000), 1, CompressionType.GZIP)


def alter_topic(admin: AdminConnection, topic: str, **changes: str) -> None:
    alter_configs(
        admin, Resource(ResourceType.TOPIC, topic), {name.replace("_", "."): value for name, value in changes.items()}
    )


def commit_offsets(port: int, topic: str, group: str) -> None:
    """All partitions of a topic at once."""
    eventually(lambda: ask(port, FindCoordinatorRequest(key=group, key_type=0), 2).error_code == 0)
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    answers = ask(port, request, 6).topics[0].partitions
    assert {answer.error_code for answer in answers} == {0}


def report(stalls: Stalls, record_property: Callable[[str, object], None]) -> None:
    for number, row in enumerate(stalls.rows):
        record_property(f"{number:02}", row)
        print(row)
    assert stalls.late == []


def test_no_large_or_forged_batch_keeps_a_producer_waiting(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Thousands of records for compacted topics and topics of another codec, their
    compaction, and bombs at both."""
    with one_broker(tmp_path, _SETTINGS) as (stalls, admin, port):
        create_topic(admin, "keys", partitions=1, replication_factor=1, configs=_COMPACTED)
        create_topic(
            admin,
            "compacted",
            partitions=1,
            replication_factor=1,
            configs={**_COMPACTED, **_LARGE, "segment.bytes": "20000000"},
        )
        create_topic(admin, "zstd", partitions=1, replication_factor=1, configs={"compression.type": "zstd", **_LARGE})
        eventually(lambda: produce(port, "compacted", small_records(CompressionType.NONE)) is ErrorCode.NONE)
        eventually(lambda: produce(port, "zstd", small_records(CompressionType.NONE)) is ErrorCode.NONE)
        for topic, codec in (("compacted", CompressionType.LZ4), ("zstd", CompressionType.GZIP)):
            batch = small_records(codec)
            found: list[ErrorCode] = []
            stalls.during(
                f"a batch of {RECORDS} records in {codec.name} for {topic}",
                lambda: found.append(produce(port, topic, batch)),  # noqa: B023  # called at once
            )
            assert found == [ErrorCode.NONE]
        bomb = millions_of_headers()
        memory = Memory(stalls.cluster.pids["0"])
        codes: list[ErrorCode] = []
        stalls.during(
            "15 batches with 2,000,000 headers",
            lambda: codes.extend(produce(port, "compacted", bomb) for _ in range(15)),
        )
        assert set(codes) == {ErrorCode.MESSAGE_TOO_LARGE}
        stalls.rows.append(f"memory for them: {memory.grown_mib:.1f} MiB")
        assert memory.grown_mib <= MEMORY_MIB
        log = stalls.cluster.broker_log(0)
        plain = build_batch([Record(0, _NOW_MS, b"key", b"v" * 200_000)])
        for _ in range(3):
            eventually(lambda: produce(port, "keys", bytes(plain)) is ErrorCode.NONE)
        eventually(lambda: "Compacted keys-0" in log.read_text(), timeout_s=120)  # numpy is loaded
        # As a broker without the check left it: what a compressed batch holds is not
        # looked at here.
        unchecked = {"segment.bytes": "1000000", "compression.check": "false"}
        create_topic(admin, "bomb", partitions=1, replication_factor=1, configs=unchecked)
        large = forged(bytes(BOMB_MIB << 20), 2, CompressionType.GZIP)
        eventually(lambda: produce(port, "bomb", large) is ErrorCode.NONE)
        for _ in range(2):
            assert produce(port, "bomb", build_batch([Record(0, _NOW_MS, b"key", b"v" * 600_000)])) is ErrorCode.NONE
        memory = Memory(stalls.cluster.pids["0"])

        def compact() -> None:
            alter_topic(admin, "bomb", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            eventually(lambda: "bomb-0: 1 batches that cannot be read" in log.read_text(), timeout_s=120)

        stalls.during(f"compacting a log with a bomb of {BOMB_MIB} MiB", compact)
        stalls.rows.append(f"memory for it: {memory.grown_mib:.1f} MiB")
        assert memory.grown_mib <= MEMORY_MIB
        report(stalls, record_property)


def test_no_number_of_offsets_and_no_mixture_keeps_a_producer_waiting(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Offsets of many groups; then topics, commits, large batches and a compaction at once.

    A clean start loads them."""
    with one_broker(tmp_path, _SETTINGS) as (stalls, admin, port):
        create_topic(admin, "large", partitions=PARTITIONS, replication_factor=1)
        create_topic(
            admin,
            "compacted",
            partitions=1,
            replication_factor=1,
            configs={**_COMPACTED, **_LARGE, "segment.bytes": "4000000"},
        )
        commit_offsets(port, "large", "first")

        def commit_all() -> None:
            for number in range(GROUPS):
                commit_offsets(port, "large", f"group-{number}")

        stalls.during(f"{GROUPS * PARTITIONS} offsets of {GROUPS} groups", commit_all)
        batch = small_records(CompressionType.NONE)

        def produce_large() -> None:
            for _ in range(5):
                assert produce(port, "compacted", batch) is ErrorCode.NONE

        def make_and_delete() -> None:
            create_topic(admin, "another", partitions=PARTITIONS, replication_factor=1)
            delete_topics(admin, ["another"])

        failures: list[BaseException] = []

        def kept(work: Callable[[], Any]) -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        def all_at_once() -> None:
            threads = [
                threading.Thread(target=kept, args=(work,)) for work in (commit_all, produce_large, make_and_delete)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        stalls.during("commits, large batches, a topic made and deleted, and compaction at once", all_at_once)
        assert failures == []
        stalls.pacer.stop()
        stalls.rows.append(clean_start(stalls.cluster, port))
        report(stalls, record_property)


def clean_start(cluster: ProcessCluster, port: int) -> str:
    """Stop the broker and start it again; the row says when it served committed offsets."""
    cluster.stop_broker(0)
    topics = [OffsetFetchRequestTopic(name="large", partition_indexes=[0])]

    def are_served() -> bool:
        try:
            answer = ask(port, OffsetFetchRequest(group_id=f"group-{GROUPS - 1}", topics=topics), 5)
        except OSError:
            return False  # it does not listen yet
        return answer.error_code == 0 and answer.topics[0].partitions[0].committed_offset == 1

    began = time.monotonic()
    cluster.start_broker(0)
    eventually(are_served, timeout_s=120, what="committed offsets are served")
    took_s = time.monotonic() - began
    return f"clean start with these partitions and offsets: CPU {cpu_s(cluster.pids['0']):.2f} s, took {took_s:.2f} s"
