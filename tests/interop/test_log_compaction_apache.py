"""Compacted logs under Apache's tools and broker, both directions, and compacted group
offsets under both brokers."""

import contextlib
import io
import os
import random
import re
import signal
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.cli.log_files import dump_log
from barnabas.log.compaction.cleanable import cleanable
from barnabas.log.compaction.compaction import Compaction
from barnabas.log.compaction.plan import CompactionLimits, CompactionOutcome
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import Origin, PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch
from support.needs import needs_reference
from support.reference import Reference, apache_cluster, apache_tool
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

NOW = 1_700_000_000_000
COMPACT = LogConfig(
    {
        "cleanup.policy": "compact",
        "segment.bytes": "60000",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "9",
    }
)
LIMITS = CompactionLimits(1 << 20, 0.9, 20_000)
TABLE = TopicPartition("table", 0)
CLEANER = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "1000"}


def open_dirs(directory: Path, cluster_id: str = "cluster") -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(directory)], COMPACT, broker_id=0, cluster_id=cluster_id, rng=random.Random(5))
    dirs.load(NOW, {})
    return dirs


def put(log: PartitionLog, data: bytearray, origin: int = Origin.CLIENT) -> None:
    log.append_as_leader(
        data, leader_epoch=max(log.leader_epochs.latest_epoch, 0), now_ms=NOW, origin=origin, guard=WITHOUT_VERIFICATION
    )
    log.update_high_watermark(log.log_end_offset)


def fill(log: PartitionLog, rounds: int, state: dict[bytes, bytes], *, producer_id: int) -> None:
    """Every codec, delete markers, an idempotent producer, committed and aborted transactions.

    ``state`` follows."""
    rng = random.Random(producer_id)
    for number in range(rounds):
        for codec in CompressionType:
            records = []
            for at in range(30):
                key = b"key%d" % rng.randrange(200)
                value = None if rng.randrange(6) == 0 else b"value %d of %d " % (at, number) * 5
                records.append(Record(at, NOW + number, key, value, [("trace", b"1")] if at % 4 == 0 else ()))
            fields = {} if codec else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": number * 30}
            put(log, build_batch(records, compression=codec, **fields))
            for record in records:
                state.pop(record.key or b"", None)
                if record.value is not None:
                    state[record.key or b""] = record.value
        for offset, abort in ((1, False), (2, True)):
            key, value = b"in a transaction", b"%d aborted=%d" % (number, abort)
            fields = {"producer_id": producer_id + offset, "producer_epoch": 0, "base_sequence": number}
            put(log, build_batch([Record(0, NOW + number, key, value)], is_transactional=True, **fields))
            marker = build_end_marker(
                EndMarker(abort, 3), offset=0, timestamp_ms=NOW + number, producer_id=producer_id + offset,
                producer_epoch=0, leader_epoch=0,
            )  # fmt: skip
            put(log, marker, Origin.COORDINATOR)
            if not abort:
                state[key] = value


def compact(dirs: LogDirs, log: PartitionLog, now_ms: int) -> CompactionOutcome:
    log.roll(now_ms)
    found = cleanable(log, now_ms)
    compaction = Compaction(log, found.first_dirty_offset, found.upto_offset, LIMITS, now_ms)
    while compaction.outcome is None:
        compaction.step()
        if compaction.wants_swap:
            compaction.swap(now_ms)
    dirs.compacted(log, compaction.outcome.end_offset)
    return compaction.outcome


def java_dump(files: list[Path], *options: str) -> tuple[list[str], list[str]]:
    done = apache_tool("kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    assert done.returncode == 0, done.stderr
    printed, complaints = (
        [line for line in text.splitlines() if not line.startswith("SLF4J")] for text in (done.stdout, done.stderr)
    )
    return printed, complaints


def our_dump(files: list[Path], *options: str) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert dump_log.main(["--files", ",".join(map(str, files)), *options]) == 0
    return out.getvalue().splitlines()


def dumpable(folder: Path) -> list[Path]:
    suffixes = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def stop_broker(cluster: Reference, number: int = signal.SIGTERM) -> None:
    """End the broker, and wait until the cluster has noticed: its next start finds its id free."""
    os.kill(cluster.pids[1], number)
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(60)
    try:
        eventually(lambda: not zookeeper.exists("/brokers/ids/0"), timeout_s=90, what="the broker is gone")
    finally:
        zookeeper.stop()
        zookeeper.close()


def table_of(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """The newest value of each key, by a consumer at read_committed that checks every CRC."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True,
         "isolation.level": "read_committed", "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([Assignment(topic, 0, OFFSET_BEGINNING)])
    state: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(60)
        assert message is not None, "the broker sent nothing for 60 s"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return state
        state.pop(message.key(), None)
        if message.value() is not None:
            state[message.key()] = message.value()


def committed(bootstrap: str, groups: range, topic: str) -> list[int]:
    """The committed offset of each group."""
    found = []
    for number in groups:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}"})
        found.append(consumer.committed([Assignment(topic, 0)], 30)[0].offset)
        consumer.close()
    return found


def commit(bootstrap: str, groups: range, topic: str, rounds: int) -> None:
    """Each group commits 1, 2, 3 ... and its own number at last."""
    for number in groups:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}"})
        for offset in [*range(1, rounds), 1000 + number]:
            consumer.commit(offsets=[Assignment(topic, 0, offset)], asynchronous=False)
        consumer.close()


@pytest.mark.parametrize("options", [["--deep-iteration"], ["--print-data-log"], ["--verify-index-only"],
                                     ["--index-sanity-check"]], ids=" ".join)  # fmt: skip
def test_apaches_dump_finds_no_fault_in_compacted_files_and_both_print_the_same(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Headers without records, delete horizons, gaps, and the indexes that were made with them."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TABLE, Uuid(bytes(range(16))), COMPACT, NOW)
    state: dict[bytes, bytes] = {}
    for turn in range(3):
        fill(log, 8, state, producer_id=100 * (turn + 1))
        compact(dirs, log, NOW + 5 * turn)
    dirs.close(clean=True)
    files = dumpable(tmp_path / str(TABLE))
    printed, complaints = java_dump(files, *options)
    # Of its own broker's compaction Apache's tool says the same: that a .log has gaps, and that the
    # largest timestamp is one of a header whose records are gone.
    known = ("Non-consecutive", " is followed by ", "Found timestamp mismatch", "log timestamp: -1")
    assert [line for line in complaints if not any(text in line for text in known)] == []
    assert our_dump(files, *options) == printed
    assert capsys.readouterr().err.splitlines() == complaints
    if options == ["--print-data-log"]:
        assert any("count: 0 " in line for line in printed), "a header without records"
        assert any("deleteHorizonMs: OptionalLong[" in line for line in printed)


def test_apaches_broker_serves_and_compacts_what_ours_compacted_and_the_reverse(tmp_path: Path) -> None:
    """The newest value of each key is the same after both compactions, and each continues
    from the other's checkpoint."""
    settings = {**CLEANER, "zookeeper.session.timeout.ms": "4000", "offsets.topic.num.partitions": "1"}
    topic = {"cleanup.policy": "compact", "segment.bytes": "60000", "min.cleanable.dirty.ratio": "0.01",
             "delete.retention.ms": "100"}  # fmt: skip
    logs = tmp_path / "kafka-logs-0"
    state: dict[bytes, bytes] = {}
    with apache_cluster(tmp_path, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("table", 1, 1, config=topic)]).values():
            future.result(60)
        stop_broker(cluster)
    cluster_id = re.search(r"cluster.id=(\S+)", (logs / "meta.properties").read_text())
    assert cluster_id
    checkpoint = logs / "cleaner-offset-checkpoint"

    def by_us(producer_id: int, *, clean: bool) -> int:
        dirs = open_dirs(logs, cluster_id[1])
        log = dirs.get(TABLE)
        assert log is not None
        before = log.bounds.cleaned_offset or 0
        fill(log, 10, state, producer_id=producer_id)
        done = compact(dirs, log, NOW + producer_id)
        assert before < done.end_offset
        fill(log, 1, state, producer_id=producer_id + 50)
        dirs.close(clean=clean)
        return done.end_offset

    end = by_us(1000, clean=True)
    assert f"table 0 {end}\n" in checkpoint.read_text()
    with apache_cluster(tmp_path, settings=settings) as cluster:
        assert table_of(cluster.bootstrap, "table") == state
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4"})
        for number in range(3000):
            key, value = b"key%d" % (number % 150), b"by Apache %d " % number * 4
            producer.produce("table", value, key=key, partition=0)
            state[key] = value
        producer.flush()
        eventually(lambda: int((re.findall(r"table 0 (\d+)", checkpoint.read_text()) or ["0"])[0]) > end, timeout_s=60)
        assert table_of(cluster.bootstrap, "table") == state
        stop_broker(cluster)
    by_us(2000, clean=False)
    with apache_cluster(tmp_path, settings=settings) as cluster:
        assert table_of(cluster.bootstrap, "table") == state


def test_group_offsets_that_ours_compacted_are_loaded_by_apaches_broker(tmp_path: Path) -> None:
    """Of the many commits of a group the last one counts, after the compaction as before."""
    settings = {"offsets.topic.num.partitions": "1", "zookeeper.session.timeout.ms": "4000"}

    logs = tmp_path / "kafka-logs-0"
    groups = range(8)
    with apache_cluster(tmp_path, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(60)
        commit(cluster.bootstrap, groups, "t", 30)
        stop_broker(cluster)
    cluster_id = re.search(r"cluster.id=(\S+)", (logs / "meta.properties").read_text())
    assert cluster_id
    dirs = open_dirs(logs, cluster_id[1])
    log = dirs.get(TopicPartition("__consumer_offsets", 0))
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    size = log.segments.size_bytes
    compact(dirs, log, NOW)
    assert log.segments.size_bytes < size / 10
    dirs.close(clean=True)
    with apache_cluster(tmp_path, settings=settings) as cluster:
        assert committed(cluster.bootstrap, groups, "t") == [1000 + number for number in groups]


def size_bytes(folder: Path) -> int:
    """Of a log's segments; those that go meanwhile count nothing."""
    found = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def test_our_broker_compacts_its_group_offsets_and_loads_them_again(tmp_path: Path) -> None:
    """While it runs; and after a restart the coordinator knows what was committed last."""
    overrides = {**CLEANER, "offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "5000"}
    options = [text for name, value in overrides.items() for text in ("--override", f"{name}={value}")]
    groups = range(5)
    with up(tmp_path, *options) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(60)
        commit(cluster.bootstrap, groups, "t", 60)
        checkpoint = eventually(lambda: next(tmp_path.rglob("cleaner-offset-checkpoint"), None))
        eventually(
            lambda: int((re.findall(r"__consumer_offsets 0 (\d+)", checkpoint.read_text()) or ["0"])[0]) > 200,
            timeout_s=60,
            what="the offsets are compacted",
        )
        folder = checkpoint.parent / "__consumer_offsets-0"
        assert committed(cluster.bootstrap, groups, "t") == [1000 + number for number in groups]
        eventually(lambda: size_bytes(folder) < 10_000, timeout_s=60, what="the old segments are gone")
    with up(tmp_path, *options) as cluster:
        assert committed(cluster.bootstrap, groups, "t") == [1000 + number for number in groups]
