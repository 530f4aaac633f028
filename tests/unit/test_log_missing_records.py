"""Records that are missing at the beginning or in the middle of a log, and segments that are
out of place, on a disk."""

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.boot import note_boot
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.holes import OffsetSpan, write_accepted
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
NOW = 1_700_000_000_000
SEGMENTS, BATCHES = 4, 5
SIZE = SEGMENTS * BATCHES * 2
"""Offsets in the log: each batch has two records."""
STEP = BATCHES * 2
CONFIG = LogConfig({"index.interval.bytes": "0"})
COMPACTED = LogConfig({"index.interval.bytes": "0", "cleanup.policy": "compact"})
Change = Callable[[Path], None]


def open_dirs(directory: Path, config: LogConfig = CONFIG) -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(directory)], config, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    return dirs


def write_log(directory: Path, *, clean: bool = True, config: LogConfig = CONFIG, roll: bool = True) -> Path:
    """A log of four segments, and its folder."""
    dirs = open_dirs(directory)
    # As a broker does: what a kill leaves in the page cache counts as written.
    note_boot(OsFiles(), [str(directory)])
    log = dirs.get_or_create(TP, Uuid(bytes(range(16))), config, NOW)
    for number in range(SEGMENTS * BATCHES):
        if roll and number and number % BATCHES == 0:
            log.roll(NOW)
        records = [Record(0, NOW, str(number).encode(), b"v" * 20), Record(1, NOW, b"k", b"v")]
        log.append_as_leader(build_batch(records), leader_epoch=number // 8, now_ms=NOW)
    log.leader_epochs.complete()
    log.update_high_watermark(SIZE)
    dirs.close(clean=clean)
    return directory / str(TP)


def loaded(directory: Path, config: LogConfig = CONFIG) -> tuple[LogDirs, PartitionLog]:
    dirs = open_dirs(directory, config)
    log = dirs.get(TP)
    assert log is not None
    return dirs, log


def segment(folder: Path, number: int) -> Path:
    return folder / f"{number * STEP:020d}.log"


def readable(log: PartitionLog) -> list[int]:
    """The offsets at which a read finds its batch; every other one must be KAFKA_STORAGE_ERROR."""
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        answer = read(log, offset)
        if answer != ErrorCode.KAFKA_STORAGE_ERROR:
            assert answer == offset - offset % 2
            found.append(offset)
    return found


def read(log: PartitionLog, offset: int) -> int:
    """The base offset of the batch that is read for an offset, or the code of the error."""
    try:
        part = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
    except KafkaError as error:
        return error.code
    assert isinstance(part.records, FileSlice)
    return int(HEADER.unpack_from(part.records.read())[0])


def gone(number: int) -> Change:
    def change(folder: Path) -> None:
        for path in folder.glob(f"{number * STEP:020d}.*"):
            path.unlink()

    return change


def resized(number: int, size: int) -> Change:
    def change(folder: Path) -> None:
        data = segment(folder, number).read_bytes()
        segment(folder, number).write_bytes(data[: size * len(data) // 10])

    return change


def replaced(number: int, other: int) -> Change:
    def change(folder: Path) -> None:
        shutil.copy(segment(folder, other), segment(folder, number))

    return change


def swapped(folder: Path) -> None:
    first, second = segment(folder, 1).read_bytes(), segment(folder, 2).read_bytes()
    segment(folder, 1).write_bytes(second)
    segment(folder, 2).write_bytes(first)


DAMAGES: dict[str, tuple[Change, range]] = {
    "first missing": (gone(0), range(STEP)),
    "middle missing": (gone(1), range(STEP, 2 * STEP)),
    "first cut": (resized(0, 5), range(4, STEP)),
    "middle cut": (resized(1, 5), range(STEP + 4, 2 * STEP)),
    "middle cut between batches": (resized(1, 6), range(STEP + 6, 2 * STEP)),
    "first empty": (resized(0, 0), range(STEP)),
    "middle empty": (resized(2, 0), range(2 * STEP, 3 * STEP)),
    "foreign": (replaced(1, 3), range(STEP, 2 * STEP)),
    "swapped": (swapped, range(STEP, 3 * STEP)),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("change", "missing"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_missing_is_reported_and_never_read_over(
    tmp_path: Path, change: Change, missing: range, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An error line names file and offsets; reads there fail, and all that is there is read."""
    folder = write_log(tmp_path, clean=clean)
    change(folder)
    dirs, log = loaded(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (0, SIZE)
    assert log.lost_data is not None
    assert log.lost_data.copy_from is not None
    assert log.lost_data.copy_from <= missing.start
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert any(str(folder) in line and ".log" in line and str(missing.start) in line for line in errors)
    assert readable(log) == [offset for offset in range(SIZE) if offset not in missing]
    errors = [record.getMessage() for record in caplog.records if "lost-records" in record.getMessage()]
    assert errors
    dirs.close(clean=True)
    assert loaded(tmp_path)[1].lost_data == log.lost_data


@pytest.mark.parametrize(("change", "missing"), DAMAGES.values(), ids=DAMAGES)
def test_a_follower_copies_a_log_again_from_before_what_is_missing(
    tmp_path: Path, change: Change, missing: range
) -> None:
    """Its files are set aside, none of their bytes go, and a crash on the way is no second loss."""
    change(write_log(tmp_path))
    before = sum(path.stat().st_size for path in (tmp_path / str(TP)).glob("*.log"))
    dirs, log = loaded(tmp_path)
    assert log.lost_data is not None
    copy_from = log.lost_data.copy_from
    dirs.copy_again(TP)
    assert log.log_end_offset == copy_from
    assert log.high_watermark <= log.log_end_offset
    assert log.lost_data is not None
    assert (log.lost_data.copy_from, log.lost_data.expected_offset) == (None, SIZE)
    assert readable(log) == list(range(log.log_start_offset, log.log_end_offset))
    kept = [path for path in (tmp_path / str(TP)).iterdir() if path.name.endswith((".log", ".aside"))]
    assert sum(path.stat().st_size for path in kept) == before
    dirs.close(clean=False)
    dirs, log = loaded(tmp_path)
    assert (log.log_end_offset, log.lost_data and log.lost_data.copy_from) == (copy_from, None)
    dirs.close(clean=False)


def test_a_stray_segment_does_not_move_the_end_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of an older segment under a name inside the last one is set aside; nothing is lost."""
    folder = write_log(tmp_path, clean=False)
    stray = folder / f"{SIZE - 3:020d}.log"
    shutil.copy(segment(folder, 0), stray)
    dirs, log = loaded(tmp_path)
    assert (log.log_end_offset, log.lost_data, readable(log)) == (SIZE, None, list(range(SIZE)))
    assert Path(f"{stray}.aside").read_bytes() == segment(folder, 0).read_bytes()
    assert any(str(stray) in record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    dirs.close(clean=False)


def compact(directory: Path) -> Path:
    """A log of which compaction took every third batch of the closed segments, at their ends too.

    Nothing else says so."""
    folder = write_log(directory, config=COMPACTED)
    for number in range(SEGMENTS - 1):
        data = segment(folder, number).read_bytes()
        size = len(data) // BATCHES
        kept = [data[n * size : (n + 1) * size] for n in range(BATCHES) if (n + number) % 3 != 2]
        segment(folder, number).write_bytes(b"".join(kept))
        for suffix in (".index", ".timeindex"):
            segment(folder, number).with_suffix(suffix).unlink()
    return folder


@pytest.mark.parametrize("config", [CONFIG, COMPACTED], ids=["delete now", "compact"])
@pytest.mark.parametrize("clean", [True, False])
def test_the_holes_of_compaction_are_no_loss(
    tmp_path: Path, config: LogConfig, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the topic's policy is to delete by now, and no checkpoint of the
    cleaner names the partition."""
    compact(tmp_path)
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    dirs, log = loaded(tmp_path, config)
    assert (log.log_start_offset, log.log_end_offset, log.lost_data) == (0, SIZE, None)
    for offset in range(SIZE):
        assert read(log, offset) >= offset - 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    dirs.close(clean=False)


def test_a_batch_that_lost_records_to_compaction_is_a_sign(tmp_path: Path) -> None:
    """A batch with fewer records than offsets is never produced, so the log was
    compacted, and may have holes."""
    folder = write_log(tmp_path)
    data = bytearray(segment(folder, 0).read_bytes())
    fields = list(HEADER.unpack_from(data))
    fields[-1] = 1
    HEADER.pack_into(data, 0, *fields)
    segment(folder, 0).write_bytes(data)
    gone(1)(folder)
    dirs, log = loaded(tmp_path)
    assert log.lost_data is None
    assert log.read(STEP, 1 << 20, upper_bound=SIZE).size_bytes > 0
    dirs.close(clean=False)


def test_retention_and_deleted_records_are_no_loss(tmp_path: Path) -> None:
    """The start of the leader epochs moves with the log's start, before the files go."""
    write_log(tmp_path)
    dirs, log = loaded(tmp_path)
    log.delete_records_before(STEP + 3)
    assert log.apply_retention(NOW, 1) == 1
    dirs.close(clean=False)
    dirs, log = loaded(tmp_path)
    assert (log.log_start_offset, log.lost_data) == (STEP, None)
    dirs.close(clean=False)


def test_segments_that_apaches_broker_was_deleting_are_no_loss(tmp_path: Path) -> None:
    """It renames them a moment before it writes the leader epochs."""
    folder = write_log(tmp_path, clean=False)
    segment(folder, 0).rename(f"{segment(folder, 0)}.deleted")
    dirs, log = loaded(tmp_path)
    assert (log.log_start_offset, log.lost_data) == (STEP, None)
    dirs.close(clean=False)


def test_a_loss_that_was_stepped_over_is_none_any_more(tmp_path: Path) -> None:
    """Reads go on with the next batch, over restarts."""
    folder = write_log(tmp_path)
    gone(1)(folder)
    write_accepted(OsFiles(), str(folder), [OffsetSpan(STEP, 2 * STEP)])
    dirs, log = loaded(tmp_path)
    assert log.lost_data is None
    assert read(log, STEP) == 2 * STEP
    dirs.close(clean=False)
