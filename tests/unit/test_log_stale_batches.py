"""A disk brings back batches that the log had cut off before the crash: leader
epochs show which they are."""

import random
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
NOW = 1_700_000_000_000
CONFIG = LogConfig({"index.interval.bytes": "0"})
BEFORE = [0, 0, 0, 0]
"""The leader epochs of the batches before the log was cut, one record each."""


def open_dirs(directory: Path) -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(directory)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    return dirs


def append(log: PartitionLog, epochs: list[int]) -> None:
    for epoch in epochs:
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v" * 20)]), leader_epoch=epoch, now_ms=NOW)
    log.leader_epochs.complete()  # as brokers do beside the event loop


@pytest.mark.parametrize(
    ("came_back", "kept"),
    [
        (range(1, 4), [(0, 0)]),
        (range(2, 4), [(0, 0), (3, 1)]),
        (range(3, 4), [(0, 0), (3, 1)]),
        (range(0), [(0, 0), (3, 1)]),
    ],
)
def test_recovery_cuts_the_log_before_a_batch_whose_epoch_ended_earlier(
    tmp_path: Path, came_back: range, kept: list[tuple[int, int]]
) -> None:
    """Batches 1 to 3 of epoch 0 gave way to those of epoch 3; some of them come back, and the log
    knows that it has lost records."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, Uuid(bytes(range(16))), CONFIG, NOW)
    append(log, BEFORE)
    path = tmp_path / str(TP) / f"{0:020d}.log"
    old = path.read_bytes()
    log.truncate_to(1)
    append(log, [3, 3, 3])
    dirs.close(clean=False)
    new = path.read_bytes()
    size = len(old) // len(BEFORE)
    path.write_bytes(b"".join((old if n in came_back else new)[n * size : (n + 1) * size] for n in range(len(BEFORE))))

    dirs = open_dirs(tmp_path)
    log = dirs.get(TP)
    assert log is not None
    end = came_back.start or len(BEFORE)
    assert log.log_end_offset == end
    assert path.read_bytes() == new[: end * size]
    assert log.leader_epochs.epochs.entries == kept
    assert (log.lost_data is None) == (end == len(BEFORE))
    dirs.close(clean=False)
