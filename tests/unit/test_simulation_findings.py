"""Defects that the simulation found, each with the few steps that show it."""

from random import Random

import pytest

from barnabas.base.files import make_dirs_durably
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.coordination.storage.storage import Storage
from barnabas.log.checkpoints import CLEAN_SHUTDOWN, CleanShutdown
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig
from barnabas.testing.simulation.disk import Disk, SimulatedFiles
from barnabas.testing.simulation.loop import SimulatedClock, SimulatedLoop
from barnabas.wire.kafka.records.records import Record, build_batch

NAME = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000


def new_disk(seed: int) -> Disk:
    loop = SimulatedLoop()
    loop.close()
    return Disk(Random(seed), SimulatedClock(loop))


@pytest.mark.parametrize("seed", range(10))
def test_the_coordination_service_s_directories_survive_a_power_loss(seed: int) -> None:
    """A synced log is of no use in a directory that is gone with the power."""
    disk = new_disk(seed)
    storage = Storage(SimulatedFiles(disk), "/data/zk", "/data/zk-log", preallocate_bytes=0)
    storage.open()
    storage.save_snapshot(storage.load()[0])
    disk.lose_power()
    files = SimulatedFiles(disk)
    assert files.list("/data/zk/version-2") == ["snapshot.0"]
    assert files.exists("/data/zk-log/version-2")


def test_a_transaction_log_that_has_its_size_and_none_of_its_bytes_is_no_obstacle() -> None:
    """The power went after the file's creation and before its first sync: nothing in
    it was acknowledged."""
    files = SimulatedFiles(new_disk(1))
    storage = Storage(files, "/data", "/data", preallocate_bytes=0)
    storage.open()
    storage.save_snapshot(storage.load()[0])
    files.open("/data/version-2/log.1", create=True).truncate(16_384)
    assert storage.load()[1] == 0
    assert not files.exists("/data/version-2/log.1")


@pytest.mark.parametrize("seed", range(10))
def test_the_marker_of_a_clean_stop_does_not_come_back_after_a_power_loss(seed: int) -> None:
    """A torn log would be taken for a whole one."""
    disk = new_disk(seed)
    files = SimulatedFiles(disk)
    make_dirs_durably(files, "/logs")
    CleanShutdown.write(files, f"/logs/{CLEAN_SHUTDOWN}", 5)
    assert CleanShutdown.take(files, f"/logs/{CLEAN_SHUTDOWN}") == 5
    disk.lose_power()
    assert CleanShutdown.take(SimulatedFiles(disk), f"/logs/{CLEAN_SHUTDOWN}") is None


def open_log(files: SimulatedFiles, policy: str):
    config = LogConfig({"segment.bytes": "1000", "cleanup.policy": policy})
    dirs = LogDirs(files, ["/logs"], config, broker_id=1, cluster_id="c", rng=Random(1))
    dirs.load(NOW_MS, {})
    return dirs.get_or_create(NAME, Uuid(bytes(16)), config, NOW_MS)


@pytest.mark.parametrize(("policy", "end_offset"), [("delete", 1), ("compact", 12)])
def test_a_recovered_log_ends_before_a_gap_unless_compaction_makes_gaps(policy: str, end_offset: int) -> None:
    """A segment can end early with a whole batch while the next one's file is there:
    what lies between is lost."""
    disk = new_disk(1)
    files = SimulatedFiles(disk)
    log = open_log(files, policy)
    for n in range(12):
        log.append_as_leader(build_batch([Record(0, NOW_MS, b"k%d" % n, b"v" * 100)]), leader_epoch=0, now_ms=NOW_MS)
    first = files.open("/logs/topic-0/00000000000000000000.log")
    batch_bytes = 12 + int.from_bytes(first.read_at(8, 4), "big")
    assert len([name for name in files.list("/logs/topic-0") if name.endswith(".log")]) > 1
    first.truncate(batch_bytes)
    disk.locks.clear()
    assert open_log(SimulatedFiles(disk), policy).log_end_offset == end_offset
