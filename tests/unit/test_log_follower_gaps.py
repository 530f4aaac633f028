"""A follower has the gaps of its leader's log, and a log that may have gaps is never
taken for damaged."""

import logging
import random
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.holes import DENSE
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.batch_header import assign_offsets
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)


def open_log(directory: Path, config: LogConfig | None = None) -> tuple[LogDirs, PartitionLog]:
    config = config or LogConfig()
    dirs = LogDirs(OsFiles(), [str(directory)], config, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(0, {})
    return dirs, dirs.get_or_create(TP, Uuid(bytes(range(16))), config, 0)


def batch(offset: int, deltas: tuple[int, ...] = (0,)) -> bytes:
    """A leader's batch that begins at an offset."""
    data = bytearray(build_batch([Record(delta, 0, None, b"v") for delta in deltas]))
    assign_offsets(memoryview(data), 0, offset, 0)
    return bytes(data)


def append(log: PartitionLog, *batches: bytes) -> None:
    log.append_as_follower(b"".join(batches), now_ms=0, leader_epoch=0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("per_append", [1, 7, 500])
def test_gaps_of_a_leader_are_one_line_and_no_losses(
    tmp_path: Path, per_append: int, caplog: pytest.LogCaptureFixture
) -> None:
    """However many there are, in files and between them: reads go over them, after a crash
    and a clean stop as well."""
    dirs, log = open_log(tmp_path)
    offsets = range(0, 300, 2)
    for first in range(0, len(offsets), per_append):
        append(log, *(batch(offset) for offset in offsets[first : first + per_append]))
        log.roll(0)
    (line,) = warnings(caplog)
    assert "no records at offsets 1 to 1" in line
    log.update_high_watermark(log.log_end_offset)
    for clean in (False, True):
        dirs.close(clean=clean)
        dirs, log = open_log(tmp_path)
        assert log.lost_data is None
        assert log.log_end_offset == 299
        for offset in range(299):
            assert log.read(offset, 1000, upper_bound=299).size_bytes > 0
    dirs.close(clean=True)


def test_a_gap_at_the_end_of_a_log_is_not_closed_after_a_crash(tmp_path: Path) -> None:
    """The offset behind it is the leader's, and not a damaged one."""
    dirs, log = open_log(tmp_path)
    append(log, *(batch(offset) for offset in (*range(10), 17)))
    dirs.close(clean=False)
    dirs, log = open_log(tmp_path)
    assert log.log_end_offset == 18
    dirs.close(clean=True)


def test_a_log_is_dense_until_it_is_compacted_or_has_a_gap(tmp_path: Path) -> None:
    """And never again: what compaction took before the policy changed is no loss.

    One without the note may have gaps."""
    dirs, log = open_log(tmp_path)
    append(log, batch(0))
    assert not log.holes.are_legal
    log.configure(LogConfig({"cleanup.policy": "compact"}))
    log.configure(LogConfig())
    assert log.holes.are_legal
    dirs.close(clean=True)
    dirs, log = open_log(tmp_path)
    assert log.holes.are_legal
    dirs.close(clean=True)


def test_a_copy_of_a_log_with_a_loss_does_not_hide_it(tmp_path: Path) -> None:
    """What is copied from another of the broker's own dirs is not the leader's word; a log that may
    have gaps says so at once."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    paths = [str(tmp_path / "first"), str(tmp_path / "second")]
    dirs = LogDirs(OsFiles(), paths, LogConfig(), broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(0, {})
    log = dirs.get_or_create(TP, Uuid(bytes(range(16))), LogConfig(), 0)
    (other,) = (path for path in paths if not log.directory.startswith(path))
    future = dirs.moves.create(TP, other, 0)
    future.append_as_follower(b"".join([batch(0), batch(5)]), now_ms=0)
    assert not future.holes.are_legal
    dirs.moves.cancel(TP, 0)
    append(log, batch(0), batch(5))
    assert dirs.moves.create(TP, other, 0).holes.are_legal
    dirs.close(clean=True)


def test_a_log_of_another_brokers_may_have_gaps(tmp_path: Path) -> None:
    """Nothing says that it never was compacted."""
    dirs, log = open_log(tmp_path)
    append(log, batch(0))
    dirs.close(clean=True)
    (tmp_path / str(TP) / DENSE).unlink()
    dirs, log = open_log(tmp_path)
    assert log.holes.are_legal
    dirs.close(clean=True)


def test_a_loss_of_power_that_takes_a_copy_and_records_leaves_no_gap(tmp_path: Path) -> None:
    """Epochs that differ from their copy are no sign of another broker then: the log
    ends before what it lacks."""
    dirs, log = open_log(tmp_path)
    append(log, batch(0))
    dirs.close(clean=True)
    dirs, log = open_log(tmp_path)
    append(log, batch(1), batch(2))
    log.roll(0)
    dirs.close(clean=False)
    folder = tmp_path / str(TP)
    with (folder / f"{0:020}.log").open("r+b") as file:
        file.truncate(2 * len(batch(0)))
    (folder / "leader-epoch-checkpoint.barnabas").unlink()
    dirs, log = open_log(tmp_path)
    assert log.log_end_offset == 2
    assert not log.holes.are_legal
    dirs.close(clean=True)


def test_a_start_that_is_killed_keeps_what_explains_where_a_log_begins(tmp_path: Path) -> None:
    """Deleted segments go after the leader epochs say where the log begins."""
    dirs, log = open_log(tmp_path)
    for offset in range(3):
        append(log, batch(offset))
        log.roll(0)
    log.update_high_watermark(3)
    dirs.close(clean=True)
    folder = tmp_path / str(TP)
    (folder / f"{0:020}.log").rename(folder / f"{0:020}.log.deleted")
    dirs, log = open_log(tmp_path)
    assert (log.log_start_offset, log.lost_data) == (1, None)
    assert not list(folder.glob("*.deleted"))
    dirs.close(clean=False)
    dirs, log = open_log(tmp_path)
    assert (log.log_start_offset, log.lost_data) == (1, None)
    dirs.close(clean=True)
