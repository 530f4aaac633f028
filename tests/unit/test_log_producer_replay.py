"""Whether a log knows its producers' last batches again after a restart."""

import random
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("t", 0)
NOW = 1_700_000_000_000
CONFIG = LogConfig({"file.delete.delay.ms": "0"})
BATCH = 4
"""Records in a batch: producer n writes the offsets 4n to 4n + 3."""


def loaded(directory: Path) -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(directory)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    return dirs


def send(log: PartitionLog, producer_id: int) -> tuple[int, bool]:
    """A producer's first batch, or a retry: its first offset, and whether it was a duplicate."""
    records = [Record(number, NOW, None, b"value") for number in range(BATCH)]
    data = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    info = log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    return info.first_offset, info.duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("start", range(3 * BATCH + 1))
def test_a_retry_after_delete_records_and_a_restart_is_a_duplicate(
    tmp_path: Path, start: int, rolled: bool, clean: bool
) -> None:
    """Wherever the log starts now: inside a batch, between two, or at its end."""
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    for producer_id in range(3):
        if rolled:
            log.roll(NOW)
        send(log, producer_id)
    log.update_high_watermark(log.log_end_offset)
    log.delete_records_before(start)
    log.apply_retention(NOW)
    done_here(log.purge_deleted(NOW))
    dirs.checkpoint_log_start_offsets()
    dirs.close(clean)
    dirs = loaded(tmp_path)
    log = dirs.get(TP)
    assert log is not None
    assert log.log_start_offset == start
    assert [send(log, producer_id) for producer_id in range(3)] == [(0, True), (BATCH, True), (2 * BATCH, True)]
    dirs.close(clean=False)
