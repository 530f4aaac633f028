"""Our log's files under Apache's tools and broker, and Apache's files under ours."""

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

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.lost_data import LostData
from barnabas.log.partition_log import Origin, PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from support.dumps import dumpable, java_dump, our_dump
from support.needs import needs_reference
from support.reference import Reference, apache_cluster
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

NOW = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SMALL_SEGMENTS = LogConfig({"segment.bytes": "60000"})
ANY = TopicPartition("mixed", 0)


def open_dirs(directory: Path, cluster_id: str = "cluster") -> LogDirs:
    dirs = LogDirs(
        OsFiles(), [str(directory)], SMALL_SEGMENTS, broker_id=0, cluster_id=cluster_id, rng=random.Random(5)
    )
    dirs.load(NOW, {})
    return dirs


def put(log: PartitionLog, data: bytearray, *, origin: int = Origin.CLIENT, leader_epoch: int | None = None) -> int:
    epoch = max(log.leader_epochs.latest_epoch, 0) if leader_epoch is None else leader_epoch
    info = log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW, origin=origin, guard=WITHOUT_VERIFICATION)
    log.update_high_watermark(log.log_end_offset)
    return info.last_offset - info.first_offset + 1


def fill(log: PartitionLog, rounds: int, *, producer_id: int, start_ms: int = NOW) -> int:
    """Batches of every codec, idempotent ones, a committed and an aborted transaction,
    rounds times; data records."""
    count = 0
    for number in range(rounds):
        for codec in CompressionType:
            records = [
                Record(i, start_ms + 100 * number + i, b"key%d" % i if i % 3 else None, b"value %d " % i * 9,
                       [("trace", b"1"), ("empty", None)] if i % 4 == 0 else ())
                for i in range(20)
            ]  # fmt: skip
            count += put(log, build_batch(records, compression=codec))
        records = [Record(i, start_ms + 100 * number + i, b"k", b"v" * 300) for i in range(10)]
        sequence = number * 10
        count += put(log, build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
        for offset, abort in ((1, False), (2, True)):
            count += put(
                log,
                build_batch(
                    records, producer_id=producer_id + offset, producer_epoch=0, base_sequence=sequence,
                    is_transactional=True,
                ),
            )  # fmt: skip
            marker = build_end_marker(
                EndMarker(abort, 3), offset=0, timestamp_ms=start_ms + 100 * number, producer_id=producer_id + offset,
                producer_epoch=0, leader_epoch=0,
            )  # fmt: skip
            put(log, marker, origin=Origin.COORDINATOR)
    return count


def data_records(log: PartitionLog) -> int:
    """Records that are no control records, by our own reading.

    Every batch's records are decoded."""
    count, at = 0, log.log_start_offset
    while True:
        part = log.read(at, 1 << 20, upper_bound=log.log_end_offset)
        if not part.size_bytes:
            return count
        assert isinstance(part.records, FileSlice)
        data = part.records.read()
        for position, header in read_headers(data):
            records = list(read_records(data, position))
            count += 0 if header.is_control else len(records)
            at = header.last_offset + 1


def commit_as_a_group(bootstrap: str, topic: str) -> None:
    """A consumer joins a group, reads a little and commits."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = eventually(lambda: consumer.poll(1), timeout_s=60)
    consumer.commit(message, asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(
    "options",
    [["--deep-iteration"], ["--print-data-log"], ["--verify-index-only"], ["--index-sanity-check"],
     ["--print-data-log", "--skip-record-metadata"], ["--max-bytes", "9000"]],
    ids=" ".join,
)  # fmt: skip
def test_apaches_dump_finds_no_fault_in_our_files_and_both_print_the_same(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Logs, indexes, time indexes, snapshots and transaction indexes, word for word."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(ANY, Uuid(bytes(range(16))), SMALL_SEGMENTS, NOW)
    fill(log, 12, producer_id=40)
    assert len(log.segments) > 2
    dirs.close(clean=True)
    files = dumpable(tmp_path / str(ANY))
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
    printed, complaints = java_dump(files, *options)
    assert complaints == ""
    assert our_dump(files, *options) == printed
    assert capsys.readouterr().err == ""


def test_both_dumps_complain_of_the_same_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An index entry and a time entry that lie, a torn tail, a gap, a corrupt snapshot."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(ANY, Uuid(bytes(range(16))), LogConfig(), NOW)
    fill(log, 3, producer_id=40)
    dirs.close(clean=True)
    folder = tmp_path / str(ANY)
    log_file, index, time_index = (folder / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))
    entries = bytearray(index.read_bytes())
    entries[3] += 1
    index.write_bytes(entries)
    times = bytearray(time_index.read_bytes())
    times[7] ^= 1
    time_index.write_bytes(times)
    data = log_file.read_bytes()
    first = next(read_headers(data))[1].size_bytes
    moved = bytearray(data)
    moved[first + 7] += 3
    log_file.write_bytes(bytes(moved) + data[: first // 2])
    snapshot = next(folder.glob("*.snapshot"))
    broken = bytearray(snapshot.read_bytes())
    broken[-1] ^= 1
    snapshot.write_bytes(broken)
    files = [log_file, index, snapshot]
    printed, complaints = java_dump(files, "--deep-iteration")
    assert our_dump(files, "--deep-iteration") == printed
    assert capsys.readouterr().err == complaints
    assert "Non-consecutive" in complaints
    assert "Mismatches in" in complaints


def stop_broker(cluster: Reference, number: int) -> None:
    """End the broker by a signal, and wait until the cluster has noticed: its next
    start finds its id free."""
    os.kill(cluster.pids[1], number)
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(60)
    try:
        eventually(lambda: not zookeeper.exists("/brokers/ids/0"), timeout_s=90, what="the broker is gone")
    finally:
        zookeeper.stop()
        zookeeper.close()


def consume(bootstrap: str, topic: str) -> list[bytes]:
    """Every value of partition 0, read uncommitted and to the end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True,
         "isolation.level": "read_uncommitted", "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([Assignment(topic, 0, OFFSET_BEGINNING)])
    values = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "the broker sent nothing for 60 s"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return values
        values.append(message.value())


def produce_with_librdkafka(bootstrap: str, topic: str) -> int:
    count = 0
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20,
             "enable.idempotence": codec == "gzip"}
        )  # fmt: skip
        for number in range(300):
            producer.produce(topic, b"%d " % number * 9, key=b"k", headers=[("h", b"1")], partition=0)
            count += 1
        producer.flush()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, b"in a transaction", partition=0)
        producer.flush()
        count += 5
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    return count


def test_apaches_broker_and_ours_take_over_each_others_log_dirs(tmp_path: Path) -> None:
    """Back and forth, after clean stops and after kills, and no record is lost or changed."""
    settings = {"log.segment.bytes": "60000", "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1", "zookeeper.session.timeout.ms": "4000",
                "log.retention.ms": "-1"}  # the records of `fill` are old  # fmt: skip
    logs = tmp_path / "kafka-logs-0"
    partition = TopicPartition("mixed", 0)
    with apache_cluster(tmp_path, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("mixed", 1, 1)]).values():
            future.result(60)
        expected = produce_with_librdkafka(cluster.bootstrap, "mixed")
        commit_as_a_group(cluster.bootstrap, "mixed")
        stop_broker(cluster, signal.SIGTERM)
    for folder, option in (("__consumer_offsets-0", "--offsets-decoder"),
                           ("__transaction_state-0", "--transaction-log-decoder")):  # fmt: skip
        files = [path for path in dumpable(logs / folder) if path.suffix == ".log"]
        printed, complaints = java_dump(files, option)
        assert (our_dump(files, option), complaints) == (printed, "")
        assert len(printed) > 5
    cluster_id = re.search(r"cluster.id=(\S+)", (logs / "meta.properties").read_text())
    assert cluster_id
    files = dumpable(logs / "mixed-0")
    for option in ("--print-data-log", "--verify-index-only"):
        printed, complaints = java_dump(files, option)
        assert (our_dump(files, option), complaints) == (printed, "")

    dirs = open_dirs(logs, cluster_id[1])
    log = dirs.get(partition)
    assert log is not None
    assert data_records(log) == expected
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 2
    assert log.durability.recovery_point == log.log_end_offset, "the stop was clean"
    assert log.lost_data is None
    expected += fill(log, 6, producer_id=4000)
    lost = LostData("only to see what Apache's broker does with the mark", 1, 2)
    log.note_lost_data(lost)
    dirs.close(clean=True)

    with apache_cluster(tmp_path, settings=settings) as cluster:
        values = consume(cluster.bootstrap, "mixed")
        assert len(values) == expected
        expected += produce_with_librdkafka(cluster.bootstrap, "mixed")
        stop_broker(cluster, signal.SIGKILL)

    dirs = open_dirs(logs, cluster_id[1])
    log = dirs.get(partition)
    assert log is not None
    assert data_records(log) == expected
    assert log.lost_data == lost, "Apache's broker leaves our mark where it is"
    log.forget_lost_data()
    fresh = fill(log, 3, producer_id=7000)
    dirs.close(clean=False)

    with apache_cluster(tmp_path, settings=settings) as cluster:
        after = consume(cluster.bootstrap, "mixed")
        assert len(after) == expected + fresh
        assert after[: len(values)] == values
