"""``barnabas lost-records``: what it prints, what it changes, and when it refuses."""

import json
import random
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.cli.main import main
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.lost_data import LostData, write_lost_data
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)


def open_log(directory: Path) -> tuple[LogDirs, PartitionLog]:
    dirs = LogDirs(OsFiles(), [str(directory)], LogConfig(), broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(0, {})
    return dirs, dirs.get_or_create(TP, Uuid(bytes(range(16))), LogConfig(), 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of three segments with ten records each; the middle one is gone."""
    dirs, log = open_log(tmp_path)
    for number in range(30):
        if number in (10, 20):
            log.roll(0)
        log.append_as_leader(build_batch([Record(0, 0, None, b"v")]), leader_epoch=0, now_ms=0)
    log.leader_epochs.complete()
    log.update_high_watermark(30)
    dirs.close(clean=True)
    for path in (tmp_path / str(TP)).glob(f"{10:020d}.*"):
        path.unlink()
    return tmp_path / str(TP)


def test_what_is_missing_is_printed_and_the_exit_status_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In text and in JSON, and no file changes."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(["lost-records", "--partition-dir", str(folder)]) == 1
    assert "topic-0 lacks offsets 10 to 19: " in capsys.readouterr().out
    assert main(["lost-records", "--partition-dir", str(folder), "--output", "json"]) == 1
    (missing,) = json.loads(capsys.readouterr().out)["missing"]
    assert (missing["first"], missing["last"]) == (10, 19)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_reads_go_over_what_was_stepped_over_and_the_loss_is_known_no_longer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then they fail."""
    dirs, log = open_log(folder.parent)
    with pytest.raises(KafkaError) as refused:
        log.read(10, 1000, upper_bound=30)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    dirs.close(clean=True)
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over"]) == 0
    assert "go on with offset 20 behind 9" in capsys.readouterr().out
    assert main(["lost-records", "--partition-dir", str(folder)]) == 0
    dirs, log = open_log(folder.parent)
    assert log.lost_data is None
    assert log.read(10, 1000, upper_bound=30).size_bytes > 0
    dirs.close(clean=True)


def test_offsets_that_a_brokers_log_names_can_be_stepped_over(folder: Path) -> None:
    """They need not be what the segments show."""
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over", "--offsets", "3-4"]) == 0
    assert (folder / "barnabas-accepted-holes").read_text() == "3-5\n10-20\n"


def note_of(folder: Path) -> Path:
    """A broker's note of a lost end: the log had 40 records, and has 30."""
    lost = LostData("the log ends at offset 30, below its checkpointed high watermark 40", 30, 40)
    write_lost_data(OsFiles(), str(folder), lost)
    return folder / "barnabas-lost-data"


def test_a_note_of_a_lost_end_is_printed_and_kept_until_its_offsets_are_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is stepped over in the middle says nothing of the end, and nothing is
    accepted behind the end."""
    note = note_of(folder)
    for arguments in ([], ["--step-over"], ["--step-over", "--offsets", "30-38"]):
        assert main(["lost-records", "--partition-dir", str(folder), *arguments]) == 1
        printed = capsys.readouterr().out
        assert "below its checkpointed high watermark 40\n" in printed
        assert "offsets 30 to 39 are missing at the end: give them up with --step-over --offsets 30-39" in printed
        assert note.exists()
    assert main(["lost-records", "--partition-dir", str(folder), "--output", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["missing"] == []
    assert document["note"]["lost_end"] == {"first": 30, "last": 39}
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over", "--offsets", "30-39"]) == 0
    assert "the note is removed" in capsys.readouterr().out
    assert not note.exists()
    assert (folder / "barnabas-accepted-holes").read_text() == "10-20\n"


def test_a_note_that_names_only_what_is_here_is_removed_by_stepping_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then it keeps the replica from leading, and the exit status says so."""
    write_lost_data(OsFiles(), str(folder), LostData("offsets 10 to 19 are missing", 10, 30, copy_from=0))
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over"]) == 0
    write_lost_data(OsFiles(), str(folder), LostData("offsets 10 to 19 are missing", 10, 30, copy_from=0))
    capsys.readouterr()
    assert main(["lost-records", "--partition-dir", str(folder)]) == 1
    assert "remove the note with --step-over" in capsys.readouterr().out
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over"]) == 0
    assert main(["lost-records", "--partition-dir", str(folder)]) == 0


def test_a_note_that_cannot_be_read_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names no offsets, so none cover it."""
    note = note_of(folder)
    note.write_text("?")
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over", "--offsets", "0-99"]) == 1
    assert f"remove {note}" in capsys.readouterr().out
    assert note.exists()


@pytest.mark.parametrize("suffix", [".log.deleted", ".index.deleted", ".log.cleaned", ".log.swap"])
def test_a_folder_with_unfinished_work_is_refused_until_a_broker_has_finished_it(
    folder: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start removes or renames these files before it compares segments, so the command
    could report other losses."""
    left = folder / f"{5:020d}{suffix}"
    left.write_bytes(b"")
    for arguments in ([], ["--step-over"]):
        assert main(["lost-records", "--partition-dir", str(folder), *arguments]) == 1
        assert (
            f"{left} is left of a deletion or a compaction that is not finished: start the broker and stop it once"
            in (capsys.readouterr().err)
        )
    dirs, _ = open_log(folder.parent)
    dirs.close(clean=True)
    assert main(["lost-records", "--partition-dir", str(folder), "--step-over"]) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--partition-dir", "/nowhere/topic-0"], "/nowhere/topic-0: there is no such folder"),
        (["--partition-dir", "{parent}"], "is not the folder of a partition"),
        (["--partition-dir", "{folder}", "--offsets", "4-3"], "--offsets 4-3: give the first and the last offset"),
        ([], "partition-dir"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_wrong(
    folder: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    given = [each.format(folder=folder, parent=folder.parent) for each in arguments]
    assert main(["lost-records", *given]) != 0
    assert problem in capsys.readouterr().err


def test_a_folder_that_a_broker_uses_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker would not notice."""
    dirs, _ = open_log(folder.parent)
    assert main(["lost-records", "--partition-dir", str(folder)]) == 1
    assert "stop it first" in capsys.readouterr().err
    dirs.close(clean=True)
