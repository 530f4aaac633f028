"""A follower accepts the gaps of its leader's log: at most one line and one file for each append, and a bounded number."""

import logging
import random
from pathlib import Path

import pytest

from barnabas.base.files import Buffer, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.holes import ACCEPTED_HOLES, MANY_HOLES
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import assign_offsets
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)


class CountingFiles(OsFiles):
    """Counts how often the accepted holes are written."""

    writes = 0

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self.writes += path.endswith(ACCEPTED_HOLES)
        super().write_atomically(path, data, sync=sync)


def open_log(directory: Path) -> tuple[LogDirs, PartitionLog, CountingFiles]:
    files = CountingFiles()
    dirs = LogDirs(files, [str(directory)], LogConfig(), broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(0, {})
    return dirs, dirs.get_or_create(TP, Uuid(bytes(range(16))), LogConfig(), 0), files


def batch(offset: int, deltas: tuple[int, ...] = (0,)) -> bytes:
    """A leader's batch that begins at an offset."""
    data = bytearray(build_batch([Record(delta, 0, None, b"v") for delta in deltas]))
    assign_offsets(memoryview(data), 0, offset, 0)
    return bytes(data)


def append(log: PartitionLog, *batches: bytes) -> None:
    log.append_as_follower(b"".join(batches), now_ms=0, leader_epoch=0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_the_gaps_of_one_append_are_one_line_and_one_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many there are, and reads go over all of them."""
    dirs, log, files = open_log(tmp_path)
    append(log, *(batch(offset) for offset in range(0, 20, 2)))
    (line,) = warnings(caplog)
    assert "from 1 to 17, and this replica has none then (offsets: 9, ranges: 9)" in line
    assert files.writes == 1
    assert (tmp_path / str(TP) / ACCEPTED_HOLES).read_text().splitlines()[:2] == ["1-2", "3-4"]
    assert not log.holes.are_legal
    assert log.read(1, 1000, upper_bound=log.log_end_offset).size_bytes > 0
    dirs.close(clean=True)


@pytest.mark.parametrize("per_append", [1, 7, 500])
def test_the_holes_of_a_log_with_many_gaps_are_written_a_bounded_number_of_times(
    tmp_path: Path, per_append: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Then any hole is legal, after a restart as well, where gaps lie between segments."""
    dirs, log, files = open_log(tmp_path)
    offsets = range(0, 2 * MANY_HOLES + 20, 2)
    for first in range(0, len(offsets), per_append):
        append(log, *(batch(offset) for offset in offsets[first : first + per_append]))
        log.roll(0)
    assert files.writes == len(warnings(caplog)) == -(-MANY_HOLES // per_append)
    assert "further ranges are not reported" in warnings(caplog)[-1]
    assert len((tmp_path / str(TP) / ACCEPTED_HOLES).read_text().splitlines()) == MANY_HOLES
    log.update_high_watermark(log.log_end_offset)
    dirs.close(clean=True)
    dirs, log, files = open_log(tmp_path)
    assert log.lost_data is None
    append(log, batch(700))
    assert files.writes == 0
    for offset in range(log.log_end_offset):
        assert log.read(offset, 1000, upper_bound=log.log_end_offset).size_bytes > 0
    dirs.close(clean=True)


def test_gaps_behind_a_batch_that_compaction_left_are_legal_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch with fewer records than offsets shows it: one line, and no more files."""
    dirs, log, files = open_log(tmp_path)
    append(log, batch(0), batch(5), batch(10, (0, 3)))
    for offset in range(20, 60, 5):
        append(log, batch(offset))
    assert (files.writes, len(warnings(caplog))) == (1, 1)
    assert log.holes.are_legal
    dirs.close(clean=True)


def test_a_gap_before_a_batch_that_is_corrupt_is_not_accepted(tmp_path: Path) -> None:
    """What a broken batch says of its offset proves nothing."""
    dirs, log, _ = open_log(tmp_path)
    broken = bytearray(batch(50))
    broken[-1] ^= 1
    with pytest.raises(KafkaError):
        append(log, batch(0), batch(5), bytes(broken))
    assert [tuple(each) for each in log.holes.accepted] == [(1, 5)]
    dirs.close(clean=True)
