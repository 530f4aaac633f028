"""Log dirs of real brokers under load: one fails alone, all fail, one cannot be read at
the start, replicas move."""

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin
from barnabas.client.admin.log_dirs import LogDirContents, Replica, alter_replica_log_dirs, describe_log_dirs
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.errors import ErrorCode
from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.needs import needs
from support.trio import Trio, trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]
MOVES = int(os.environ.get("BARNABAS_MOVES", "4"))
TOPIC = "dirs"


def two_dirs(directory: Path) -> dict[int, dict[str, object]]:
    return {number: {"log.dirs": ",".join(paths(directory, number))} for number in range(3)}


def paths(directory: Path, broker: int) -> list[str]:
    return [f"{directory}/logs{broker}-{which}" for which in "ab"]


@contextlib.contextmanager
def asking(cluster: Trio) -> Iterator[AdminConnection]:
    with AdminConnection(cluster.bootstrap) as connection:
        yield connection


def dirs_of(cluster: Trio, broker: int) -> list[LogDirContents]:
    with asking(cluster) as connection:
        return describe_log_dirs(connection, broker)


def place(cluster: Trio, broker: int, partition: int, topic: str = TOPIC) -> str:
    """The log dir of a replica."""
    return next(
        log_dir.path
        for log_dir in dirs_of(cluster, broker)
        if (stored := log_dir.replicas.get(TopicPartition(topic, partition))) and not stored.is_future
    )


def same_bytes(cluster: Trio, partition: int) -> bool:
    found = set()
    for broker in range(3):
        folders = [Path(path) / f"{TOPIC}-{partition}" for path in paths(cluster.directory, broker)]
        files = sorted(file for folder in folders for file in folder.glob("*.log"))
        found.add(b"".join(file.read_bytes() for file in files))
    return len(found) == 1


def test_replicas_move_between_log_dirs_under_load_without_losing_or_doubling_a_record(
    tmp_path: Path, record_property
) -> None:
    """Leaders' and followers' replicas, to and fro, one broker killed with 9 in the
    middle of its moves."""
    with trio(tmp_path, each=two_dirs(tmp_path)) as cluster:
        cluster.create(TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        longest = []
        for move in range(MOVES):
            load.goes_on(2000, "the load goes on")
            broker = move % 3
            targets = {
                Replica(broker, TOPIC, partition): next(
                    path for path in paths(tmp_path, broker) if path != place(cluster, broker, partition)
                )
                for partition in range(PARTITIONS)
            }
            with asking(cluster) as connection:
                assert set(alter_replica_log_dirs(connection, targets).values()) == {ErrorCode.NONE}
            if move == 1:
                cluster.brokers[broker].kill()
                cluster.brokers[broker].start()
            start = time.monotonic()
            eventually(
                lambda broker=broker, targets=targets: all(
                    place_or_none(cluster, broker, partition) == targets[Replica(broker, TOPIC, partition)]
                    for partition in range(PARTITIONS)
                ),
                timeout_s=60,
                what="the replicas have moved",
            )
            longest.append(round(time.monotonic() - start, 2))
            cluster.wait_until_in_sync(TOPIC)
        load.goes_on(1000, "the load goes on after the moves")
        load.finish()
        record_property("seconds for a move", longest)
        assert load.failed == []
        assert_exactly_once_in_order(load, read_all(cluster.bootstrap, TOPIC), cluster.directory)
        for partition in range(PARTITIONS):
            eventually(lambda partition=partition: same_bytes(cluster, partition), what="equal bytes on all replicas")


def place_or_none(cluster: Trio, broker: int, partition: int) -> str | None:
    try:
        return place(cluster, broker, partition)
    except Exception:  # the broker is starting again, or knows of no replica yet
        return None


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of its own, where that may be mounted; a test is skipped elsewhere."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def is_lost(cluster: Trio, broker: int, path: str) -> bool:
    with contextlib.suppress(Exception):  # it does not answer yet
        return {log_dir.path: log_dir.error for log_dir in dirs_of(cluster, broker)}[path] != ErrorCode.NONE
    return False


def check_that_one_dir_was_lost_alone(cluster: Trio, load: Load, broker: int, path: str) -> None:
    """The broker serves on with its other dir; all partitions have leaders; nothing is lost."""
    eventually(lambda: is_lost(cluster, broker, path), timeout_s=60, what="the log dir is offline")
    load.goes_on(1000, "leaders of the lost replicas are elsewhere")
    assert cluster.brokers[broker].process.poll() is None
    other = next(one for one in dirs_of(cluster, broker) if one.path != path)
    assert other.error == ErrorCode.NONE
    kept = {name.partition for name in other.replicas if name.topic == TOPIC}
    known = eventually(lambda: cluster.partitions(TOPIC), what="metadata")
    eventually(
        lambda: all(
            (broker in partition.isrs) == (partition.id in kept) and partition.leader >= 0
            for partition in cluster.partitions(TOPIC) or known
        ),
        timeout_s=60,
        what="the lost replicas are out of sync, the others in sync",
    )
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topic("after", partitions=2, replication_factor=3)
        eventually(
            lambda: (
                {p.partition for one in dirs_of(cluster, broker) for p in one.replicas if p.topic == "after"} == {0, 1}
            ),
            what="new partitions are made on the dir that works",
        )
    load.finish()
    assert load.failed == []
    assert_exactly_once_in_order(load, read_all(cluster.bootstrap, TOPIC), cluster.directory)


def test_a_full_disk_costs_its_log_dir_and_leaders_move(tmp_path: Path) -> None:
    """ENOSPC on a tmpfs: the replicas there are lost, those of the broker's other dir serve on."""
    full = tmp_path / "logs0-b"
    with small_disk(full, "8m"), trio(tmp_path, each=two_dirs(tmp_path)) as cluster:
        cluster.create(TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        load.goes_on(500, "the load goes on")
        with (full / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        check_that_one_dir_was_lost_alone(cluster, load, 0, str(full))


def test_files_that_cannot_grow_cost_their_log_dir(tmp_path: Path) -> None:
    """EFBIG, by a limit on the process: it works wherever processes have limits.

    The last dir costs the broker."""
    with trio(tmp_path, {"log.segment.bytes": 100_000_000}, each=two_dirs(tmp_path)) as cluster:
        cluster.create(TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        load.goes_on(500, "the load goes on")
        cluster.create("bulk", partitions=1)
        lost = place(cluster, 0, 0, "bulk")
        bulk = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for _ in range(60):
            bulk.produce("bulk", bytes(100_000))
        assert bulk.flush(60) == 0
        size = next((Path(lost) / "bulk-0").glob("*.log")).stat().st_size
        pid = cluster.brokers[0].process.pid
        # No other file is nearly as large.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        bulk.produce("bulk", bytes(100_000))
        assert bulk.flush(60) == 0
        eventually(lambda: is_lost(cluster, 0, lost), timeout_s=60, what="the log dir is offline")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        check_that_one_dir_was_lost_alone(cluster, load, 0, lost)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        for partition in range(PARTITIONS):
            bulk.produce(TOPIC, b"0", partition=partition)
        assert bulk.flush(60) == 0
        assert cluster.brokers[0].process.wait(60) == 1  # its last log dir is lost


@needs("strace")
def test_a_failing_sync_costs_its_log_dir_and_is_not_repeated(tmp_path: Path) -> None:
    """EIO of fdatasync, put in by strace: an acknowledgement that waits for it never
    comes from there."""
    with trio(tmp_path, {"log.flush.before.ack": "true"}, each=two_dirs(tmp_path)) as cluster:
        cluster.create(TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        load.goes_on(200, "the load goes on")
        lost = place(cluster, 0, 0)
        path = next((Path(lost) / f"{TOPIC}-0").glob("*.log"))
        report = tmp_path / "strace"
        with report.open("wb") as output:
            tracer = subprocess.Popen(
                ["strace", "-f", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", "-P", str(path),
                 "-p", str(cluster.brokers[0].process.pid)],
                stdout=output, stderr=output,
            )  # fmt: skip
        try:
            ended = eventually(
                lambda: is_lost(cluster, 0, lost) or (tracer.poll() is not None and "ended"), timeout_s=60,
                what="the log dir is offline",
            )  # fmt: skip
        finally:
            tracer.terminate()
            tracer.wait(60)
        if ended == "ended":
            pytest.skip(f"strace cannot be used here: {report.read_text()[-200:]}")
        assert report.read_text().count("(INJECTED)") == 1
        check_that_one_dir_was_lost_alone(cluster, load, 0, lost)


def test_a_dir_that_cannot_be_read_at_the_start_is_done_without_and_the_last_one_ends_the_broker(
    tmp_path: Path,
) -> None:
    """Its replicas are not silently created again elsewhere; with no dir left the
    broker logs that and ends."""
    with trio(tmp_path, each=two_dirs(tmp_path)) as cluster:
        cluster.create(TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        load.goes_on(500, "the load goes on")
        broker, lost = cluster.brokers[0], place(cluster, 0, 0)
        broker.stop()
        kept = Path(lost).rename(tmp_path / "kept")
        Path(lost).write_text("not a folder")
        broker.start()
        check_that_one_dir_was_lost_alone(cluster, load, 0, lost)
        broker.stop()
        Path(lost).unlink()
        kept.rename(lost)
        broker.start()
        cluster.wait_until_in_sync(TOPIC)
        broker.stop()
        for path in paths(tmp_path, 0):
            Path(path).rename(f"{path}-away")
            Path(path).write_text("not a folder")
        broker.start()
        assert broker.process.wait(60) == 1
        assert "No log dir can be used" in broker.log.read_text()
