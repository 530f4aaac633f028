"""The small files of a log dir are believed as far as the log, and their checked
copies, confirm them."""

import logging
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.files import Buffer, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.checked_files import copy_of, read_checked, write_checked
from barnabas.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    write_offsets,
)
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.lost_data import LOST_DATA, LostData, read_lost_data, write_lost_data
from barnabas.log.partition_log import Origin, PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
NOW = 1_700_000_000_000
CONFIG = LogConfig({"segment.bytes": "1000", "index.interval.bytes": "100"})
RECORDS = 50
START = 37
EPOCHS = [(0, 0), (2, 20), (13, 40)]


def open_dirs(directory: Path) -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(directory)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    return dirs


def opened(directory: Path) -> PartitionLog:
    """The log after a restart."""
    log = open_dirs(directory).get(TP)
    assert log is not None
    return log


def epoch_at(offset: int) -> int:
    return [epoch for epoch, start in EPOCHS if start <= offset][-1]


def stopped(directory: Path, *, clean: bool, start: int = 0) -> None:
    """A log dir with a log of fifty records of three epochs, whose broker has stopped."""
    dirs = open_dirs(directory)
    log = dirs.get_or_create(TP, Uuid(bytes(15) + b"1"), CONFIG, NOW)
    for offset in range(RECORDS):
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v" * 30)]), leader_epoch=epoch_at(offset), now_ms=NOW)
        log.leader_epochs.complete()
    log.update_high_watermark(RECORDS)
    if start:
        log.delete_records_before(start)
    dirs.checkpoint_recovery_points()
    dirs.checkpoint_high_watermarks()
    for _ in range(2):
        dirs.checkpoint_log_start_offsets()
    dirs.close(clean=clean)


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- the copies


class StoppingFiles(OsFiles):
    """The process is killed before the n-th replacement of a file."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        super().write_atomically(path, data, sync=sync)


@pytest.mark.parametrize("replaced", [0, 1, 2])
def test_a_kill_at_any_moment_leaves_a_file_that_is_as_written(tmp_path: Path, replaced: int) -> None:
    """The copy comes first, and names the contents before."""
    path = str(tmp_path / "file")
    write_checked(OsFiles(), path, b"one\n", sync=False)
    try:
        write_checked(StoppingFiles(replaced), path, b"two\n", sync=False)
    except KeyboardInterrupt:
        assert replaced < 2
    found = read_checked(OsFiles(), path)
    assert found.is_as_written
    assert found.data == (b"two\n" if replaced == 2 else b"one\n")


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=6), st.binary(max_size=30), st.data())
def test_a_changed_file_is_noticed_and_a_changed_copy_says_nothing(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], other: bytes, data: st.DataObject
) -> None:
    """Whatever was written before."""
    directory = tmp_path_factory.mktemp("checked")
    path = directory / "file"
    for content in contents:
        write_checked(OsFiles(), str(path), content, sync=False)
    assert read_checked(OsFiles(), str(path))[1:4] == (contents[-1], contents[-1], True)
    path.write_bytes(other)
    if other not in contents:
        assert read_checked(OsFiles(), str(path)).is_changed
    copy = Path(copy_of(str(path)))
    whole = copy.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :])
    found = read_checked(OsFiles(), str(path))
    assert found.copy in (None, contents[-1])


# ---- log start offsets


def replace_start(text: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_text()
        assert f" {START}\n" in content
        path.write_text(content.replace(f" {START}\n", f" {text}\n"))

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "behind the end": replace_start("737"),
    "inside": replace_start("47"),
    "too low": replace_start("3"),
    "negative": replace_start("-7"),
    "no number": replace_start("3_7"),
    "another topic": lambda path: path.write_text(path.read_text().replace("topic", "tupic")) and None,
    "another partition": lambda path: path.write_text(path.read_text().replace(" 0 ", " 1 ")) and None,
    "no entries": lambda path: path.write_text("0\n0\n") and None,
    "empty": lambda path: os.truncate(path, 0),
    "missing": lambda path: path.unlink(),
    "binary": lambda path: path.write_bytes(b"\xff" * 20) and None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_start_offset_neither_removes_records_nor_brings_deleted_ones_back(
    tmp_path: Path, clean: bool, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The copy is used, and a line names both files."""
    stopped(tmp_path, clean=clean, start=START)
    path = tmp_path / LOG_START_OFFSETS
    damage(path)
    log = opened(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (START, RECORDS)
    (line,) = alarms(caplog)
    assert str(path) in line
    assert copy_of(str(path)) in line


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_behind_the_end_of_the_log_costs_no_record(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In a dir of Apache's or of an earlier version, which has no copies."""
    stopped(tmp_path, clean=clean, start=START)
    for copy in tmp_path.rglob("*.barnabas"):
        copy.unlink()
    replace_start("737")(tmp_path / LOG_START_OFFSETS)
    log = opened(tmp_path)
    base = int(min((tmp_path / str(TP)).glob("*.log")).stem)
    assert (log.log_start_offset, log.log_end_offset) == (base, RECORDS)
    line = alarms(caplog)[0]
    assert line.startswith(f"{tmp_path / LOG_START_OFFSETS} says that topic-0 begins at offset 737")


@pytest.mark.parametrize("rewritten", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_a_start_offset_of_another_broker_is_believed(
    tmp_path: Path, rewritten: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's broker ran in between: it wrote the other checkpoints, too, perhaps
    with the same contents."""
    stopped(tmp_path, clean=True, start=START)
    replace_start("44")(tmp_path / LOG_START_OFFSETS)
    later = (tmp_path / copy_of(rewritten)).stat().st_mtime + 5
    os.utime(tmp_path / rewritten, (later, later))
    assert opened(tmp_path).log_start_offset == 44
    assert alarms(caplog) == []


def test_a_damaged_recovery_point_is_no_loss_of_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log ends below it, but the copy shows that it never was so high."""
    stopped(tmp_path, clean=True)
    path = tmp_path / RECOVERY_POINTS
    path.write_text(path.read_text().replace(" 50\n", " 90\n"))
    log = opened(tmp_path)
    assert log.lost_data is None
    assert log.log_end_offset == RECORDS
    (line,) = alarms(caplog)
    assert str(path) in line


@pytest.mark.parametrize("clean", [True, False])
def test_a_healthy_or_copied_dir_raises_no_alarm(tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Copied with and without the times of the files, and without the copies as an
    earlier version has it."""
    stopped(tmp_path / "dir", clean=clean, start=START)
    shutil.copytree(tmp_path / "dir", tmp_path / "kept")
    shutil.copytree(tmp_path / "dir", tmp_path / "plain", copy_function=shutil.copyfile)
    shutil.copytree(
        tmp_path / "dir", tmp_path / "apache", ignore=lambda _, names: [n for n in names if "barnabas" in n]
    )
    for name in ("dir", "kept", "plain", "apache"):
        log = opened(tmp_path / name)
        assert (log.log_start_offset, log.log_end_offset) == (START, RECORDS)
    assert alarms(caplog) == []


def test_a_damaged_cleaner_offset_is_taken_from_the_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Or a log would be compacted from its start, or not at all."""
    stopped(tmp_path, clean=True)
    path = tmp_path / CLEANER_OFFSETS
    write_offsets(OsFiles(), str(path), {TP: 20})
    for damage in (b"0\n1\ntopic 0 29\n", b"0\n1\ntopic", b""):
        path.write_bytes(damage)
        dirs = open_dirs(tmp_path)
        log = dirs.get(TP)
        assert log is not None
        assert log.bounds.cleaned_offset == 20
        dirs.close(clean=True)
    assert len(alarms(caplog)) == 3


def test_each_changed_byte_of_a_note_of_lost_data_leaves_a_replica_that_has_lost_records(tmp_path: Path) -> None:
    """Empty and cut notes, too: only the broker removes it."""
    stopped(tmp_path, clean=True)
    write_lost_data(OsFiles(), str(tmp_path / str(TP)), LostData("a test", 3, 5))
    path = tmp_path / str(TP) / LOST_DATA
    whole = path.read_bytes()
    for at in range(len(whole)):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(data)
            assert read_lost_data(OsFiles(), str(path.parent)) is not None
    path.write_bytes(b"")
    assert opened(tmp_path).lost_data is not None


# ---- leader epochs


def changed_digits(text: str) -> list[str]:
    """All texts that differ in one digit."""
    return [
        text[: at.start()] + digit + text[at.end() :]
        for at in re.finditer("[0-9]", text)
        for digit in "0123456789"
        if digit != at[0]
    ]


@pytest.mark.parametrize("clean", [True, False])
def test_a_changed_digit_of_the_leader_epochs_costs_no_record(tmp_path: Path, clean: bool) -> None:
    """Each digit, each value: the epochs are those of the batches, and all records are kept."""
    stopped(tmp_path / "whole", clean=clean)
    text = (tmp_path / "whole" / str(TP) / LEADER_EPOCHS).read_text()
    assert text == "0\n3\n0 0\n2 20\n13 40\n"
    for number, damaged in enumerate(changed_digits(text)):
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", directory)
        (directory / str(TP) / LEADER_EPOCHS).write_text(damaged)
        log = opened(directory)
        assert (log.log_start_offset, log.log_end_offset, log.lost_data) == (0, RECORDS, None), damaged
        assert log.leader_epochs.epochs.entries == EPOCHS, damaged


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "text", ["0\n3\n0 0\n2 20\n93 40\n", "0\n3\n0 0\n2 20\n13 41\n", "0\n1\n7 0\n", "0\n3\n0 0\n", "x", ""]
)
def test_newest_epochs_that_contradict_the_log_are_read_from_it_where_there_is_no_copy(
    tmp_path: Path, clean: bool, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In a dir of Apache's or of an earlier version."""
    stopped(tmp_path, clean=clean)
    path = tmp_path / str(TP) / LEADER_EPOCHS
    path.write_text(text)
    Path(copy_of(str(path))).unlink()
    log = opened(tmp_path)
    assert (log.log_end_offset, log.lost_data) == (RECORDS, None)
    assert log.leader_epochs.epochs.entries == EPOCHS
    assert len(alarms(caplog)) == (text != "")
    assert path.read_text() == "0\n3\n0 0\n2 20\n13 40\n"


def test_epochs_of_another_broker_are_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Apache's broker appended records of a new epoch, and knows nothing of the copy."""
    stopped(tmp_path, clean=True)
    path = tmp_path / str(TP) / LEADER_EPOCHS
    dirs = open_dirs(tmp_path)
    log = dirs.get(TP)
    assert log is not None
    copy = Path(copy_of(str(path)))
    before = copy.read_bytes()
    log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=20, now_ms=NOW)
    log.leader_epochs.complete()
    dirs.close(clean=True)
    copy.write_bytes(before)
    assert opened(tmp_path).leader_epochs.epochs.entries == [*EPOCHS, (20, RECORDS)]
    assert alarms(caplog) == []


@pytest.mark.parametrize("missing", ["", ".barnabas"])
def test_missing_epochs_are_read_from_the_copy_or_the_log(
    tmp_path: Path, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A kill during the first write leaves only the copy: no alarm."""
    stopped(tmp_path, clean=False)
    (tmp_path / str(TP) / f"{LEADER_EPOCHS}{missing}").unlink()
    assert opened(tmp_path).leader_epochs.epochs.entries == EPOCHS
    assert alarms(caplog) == []


# ---- time indexes


@pytest.mark.parametrize("clean", [True, False])
def test_a_changed_bit_of_a_time_index_lets_retention_delete_nothing_too_early(tmp_path: Path, clean: bool) -> None:
    """An entry that looks forty years old is no reason to delete a segment: its
    batch says how old it is."""
    stopped(tmp_path / "whole", clean=clean)
    config = LogConfig({"retention.ms": "3600000", "segment.bytes": "1000"})
    path = min((tmp_path / "whole" / str(TP)).glob("*.timeindex"))
    data = path.read_bytes()
    for bit in range(0, 8 * len(data), 3):
        directory = tmp_path / str(bit)
        shutil.copytree(tmp_path / "whole", directory)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (directory / str(TP) / path.name).write_bytes(damaged)
        log = opened(directory)
        log.configure(config)
        assert log.apply_retention(NOW + 1_800_000) == 0
        assert log.segments[0].last_write_ms() == NOW
        shutil.rmtree(directory)


# ---- transaction indexes


def filled_with_transactions(directory: Path) -> list[tuple[int, int, int]]:
    """A log dir after a clean stop, with aborted and committed transactions in segments that are
    closed; the aborted ones."""
    dirs = open_dirs(directory)
    log = dirs.get_or_create(TP, Uuid(bytes(15) + b"1"), CONFIG, NOW)
    for number in range(12):
        records = build_batch(
            [Record(0, NOW, None, b"v" * 30)], producer_id=7 + number % 2, producer_epoch=0,
            base_sequence=number // 2, is_transactional=True,
        )  # fmt: skip
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW, guard=WITHOUT_VERIFICATION)
        marker = build_end_marker(
            EndMarker(number % 3 == 0, 1), offset=0, timestamp_ms=NOW, producer_id=7 + number % 2, producer_epoch=0,
            leader_epoch=0,
        )  # fmt: skip
        log.append_as_leader(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    aborted = [each[:3] for each in log.aborted_transactions(0, log.log_end_offset)]
    dirs.close(clean=True)
    return aborted


def test_a_changed_bit_of_a_transaction_index_hides_no_committed_record_and_shows_no_aborted_one(
    tmp_path: Path,
) -> None:
    """In each byte of the entries, and each bit of a low byte: the transactions are
    those that the batches show."""
    expected = filled_with_transactions(tmp_path / "whole")
    assert len(expected) == 4
    path = min((tmp_path / "whole" / str(TP)).glob("*.txnindex"))
    data = path.read_bytes()
    for bit in [*(8 * at + at % 8 for at in range(len(data))), *range(8 * 17, 8 * 18)]:
        directory = tmp_path / str(bit)
        shutil.copytree(tmp_path / "whole", directory)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (directory / str(TP) / path.name).write_bytes(damaged)
        log = opened(directory)
        found = [each[:3] for each in log.aborted_transactions(0, log.log_end_offset)]
        assert found == expected, (bit // 8, bit % 8)
        shutil.rmtree(directory)
