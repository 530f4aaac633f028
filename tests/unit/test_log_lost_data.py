"""Lost data: what is left after damage, what the log reports of it, and what it
knows after a second restart."""

import logging
import random
import shutil
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.lost_data import LOST_DATA, LostData
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.segment import Segment
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
TOPIC_ID = Uuid(bytes(range(16)))
NOW = 1_700_000_000_000
BATCHES = 3
CONFIG = LogConfig({"index.interval.bytes": "0"})


def open_dirs(*directories: Path) -> LogDirs:
    paths = [str(directory) for directory in directories]
    dirs = LogDirs(OsFiles(), paths, CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    return dirs


def fill(dirs: LogDirs, count: int = BATCHES, high_watermark: int = BATCHES) -> PartitionLog:
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    for _ in range(count):
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v" * 20)]), leader_epoch=0, now_ms=NOW)
    log.update_high_watermark(high_watermark)
    return log


def loaded(dirs: LogDirs) -> PartitionLog:
    log = dirs.get(TP)
    assert log is not None
    return log


def cut(log: PartitionLog, size: int) -> None:
    path = Path(log.segments.active.path)
    path.write_bytes(path.read_bytes()[:size])


def test_a_tail_cut_after_a_clean_stop_leaves_the_longest_valid_prefix_and_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three batches, cut at every byte; the line names the file, the byte, the last good offset
    and the number of bytes."""
    dirs = open_dirs(tmp_path / "whole")
    size = fill(dirs).segments.active.size
    dirs.close(clean=True)
    for length in range(size):
        directory = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", directory)
        path = directory / str(TP) / f"{0:020d}.log"
        whole = path.read_bytes()
        path.write_bytes(whole[:length])
        caplog.clear()
        dirs = open_dirs(directory)
        log = loaded(dirs)
        batches, rest = divmod(length, size // BATCHES)
        assert log.log_end_offset == batches
        assert path.read_bytes() == whole[: batches * size // BATCHES]
        assert log.lost_data is not None
        assert (log.lost_data.end_offset, log.lost_data.expected_offset) == (batches, BATCHES)
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        if rest:
            place = f"after offset {batches - 1}" if batches else "at the log's beginning"
            begin = f"{rest} bytes from byte {length - rest} of {path} on"
            assert f"{begin}, {place}, are not valid batches and are cut off" in lines
        assert any("has lost records" in line for line in lines)
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=1, now_ms=NOW)
        dirs.close(clean=True)
        dirs = open_dirs(directory)
        assert loaded(dirs).log_end_offset == batches + 1
        dirs.close(clean=False)
        shutil.rmtree(directory)


def test_a_log_that_is_whole_has_lost_nothing(tmp_path: Path) -> None:
    """Clean stops, kills, and a torn tail that no checkpoint covers leave no mark."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs)
    dirs.checkpoint_high_watermarks()
    log.flusher.flush()
    dirs.checkpoint_recovery_points()
    fill(dirs, 1)
    dirs.close(clean=False)
    cut(log, log.segments.active.size - 3)
    dirs = open_dirs(tmp_path)
    assert (loaded(dirs).log_end_offset, loaded(dirs).lost_data) == (BATCHES, None)
    dirs.close(clean=True)
    dirs = open_dirs(tmp_path)
    assert loaded(dirs).lost_data is None
    dirs.close(clean=False)


@pytest.mark.parametrize("checkpoint", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_a_log_that_ends_below_a_checkpoint_has_lost_data(tmp_path: Path, checkpoint: str) -> None:
    """Either checkpoint alone shows it after a crash, and the reason names it."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs)
    if checkpoint == RECOVERY_POINTS:
        log.flusher.flush()
        dirs.checkpoint_recovery_points()
    else:
        dirs.checkpoint_high_watermarks()
    dirs.close(clean=False)
    cut(log, log.segments.active.size - 3)
    lost = loaded(open_dirs(tmp_path)).lost_data
    assert lost is not None
    name = "recovery point" if checkpoint == RECOVERY_POINTS else "high watermark"
    assert lost.reason == f"the log ends at offset 2, below its checkpointed {name} 3"


def after_a_kill(directory: Path, *, segments: int = 1) -> Path:
    """A log of `BATCHES` batches in this many segments that no checkpoint covers, after a kill.

    Its first segment."""
    dirs = open_dirs(directory)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    for number in range(BATCHES):
        if 0 < number < segments:
            log.roll(NOW)
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v" * 20)]), leader_epoch=0, now_ms=NOW)
    dirs.close(clean=False)
    return directory / str(TP) / f"{0:020d}.log"


@pytest.mark.parametrize("damaged_batch", range(BATCHES))
@pytest.mark.parametrize("byte", [17, 20, 22, 23, 26, 30, 43, 56, 60, 61, 70, 80])
def test_a_flipped_bit_in_records_that_no_checkpoint_covers_is_a_loss(
    tmp_path: Path, damaged_batch: int, byte: int
) -> None:
    """Recovery keeps the batches before it, and knows that it had more."""
    path = after_a_kill(tmp_path)
    damaged = bytearray(path.read_bytes())
    at = damaged_batch * len(damaged) // BATCHES
    damaged[at + byte] ^= 4
    path.write_bytes(damaged)
    dirs = open_dirs(tmp_path)
    lost = loaded(dirs).lost_data
    assert loaded(dirs).log_end_offset == damaged_batch
    assert lost == LostData(f"{path} is damaged at byte {at}", damaged_batch, BATCHES)
    dirs.close(clean=False)


def test_a_last_batch_whose_length_is_damaged_is_put_right(tmp_path: Path) -> None:
    """It names more bytes than there are, as a torn batch does, but with the file's end as its
    own the checksum is right."""
    path = after_a_kill(tmp_path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[-len(damaged) // BATCHES + 10] ^= 4
    path.write_bytes(damaged)
    dirs = open_dirs(tmp_path)
    assert (loaded(dirs).log_end_offset, loaded(dirs).lost_data) == (BATCHES, None)
    dirs.close(clean=False)
    assert path.read_bytes() == whole


def test_what_a_kill_leaves_of_the_last_append_is_no_loss(tmp_path: Path) -> None:
    """A batch that is cut off at any byte was not acknowledged."""
    path = after_a_kill(tmp_path / "whole")
    whole = path.read_bytes()
    size = len(whole) // BATCHES
    for kept in range((BATCHES - 1) * size, BATCHES * size, 5):
        directory = tmp_path / "torn"
        shutil.copytree(tmp_path / "whole", directory)
        (directory / str(TP) / path.name).write_bytes(whole[:kept])
        dirs = open_dirs(directory)
        assert (loaded(dirs).log_end_offset, loaded(dirs).lost_data) == (BATCHES - 1, None), kept
        dirs.close(clean=False)
        shutil.rmtree(directory)


@pytest.mark.parametrize("kept", [512, 1024, 1536])
@pytest.mark.parametrize("size", [1537, 2048, 4096])
def test_zeros_in_the_place_of_the_last_sectors_of_the_last_append_are_no_loss(
    tmp_path: Path, kept: int, size: int
) -> None:
    """A loss of power leaves them where the size of a file was stored before its data."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    log.append_as_leader(build_batch([Record(0, NOW, None, b"v" * 1600)]), leader_epoch=0, now_ms=NOW)
    dirs.close(clean=False)
    path = Path(log.segments.active.path)
    path.write_bytes(path.read_bytes()[:kept].ljust(size, b"\0"))
    dirs = open_dirs(tmp_path)
    assert (loaded(dirs).log_end_offset, loaded(dirs).lost_data) == (0, None)
    dirs.close(clean=False)


def test_a_closed_segment_that_ends_early_costs_the_later_ones(tmp_path: Path) -> None:
    """Segments behind the first invalid batch cannot stay, so their records are lost,
    however the batch looks."""
    path = after_a_kill(tmp_path, segments=BATCHES)
    path.write_bytes(path.read_bytes()[:-3])
    dirs = open_dirs(tmp_path)
    lost = loaded(dirs).lost_data
    assert lost is not None
    assert (loaded(dirs).log_end_offset, lost.end_offset, lost.expected_offset) == (0, 0, BATCHES)
    dirs.close(clean=False)


def test_a_loss_is_known_after_a_crash_in_the_middle_of_the_recovery(tmp_path: Path) -> None:
    """What shows the loss is cut off, so the mark is written before."""
    path = after_a_kill(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // BATCHES + 70] ^= 1
    path.write_bytes(damaged)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "truncate", crash)
        with pytest.raises(KeyboardInterrupt):
            open_dirs(tmp_path)
    path.write_bytes(damaged[: len(damaged) // BATCHES])  # so the cut looks like the last event
    dirs = open_dirs(tmp_path)
    assert loaded(dirs).lost_data is not None
    dirs.close(clean=False)


@pytest.mark.parametrize("size", [0, 100, 70_000, 1_048_300])
def test_damage_that_hides_later_batches_is_damage_wherever_they_are(tmp_path: Path, size: int) -> None:
    """The first batch, damaged inside as well, claims more bytes than there are, as a torn one
    does; a valid one stands behind."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    for value in (bytes(range(256)) * (size // 256 + 1), b"v"):
        log.append_as_leader(build_batch([Record(0, NOW, None, value)]), leader_epoch=0, now_ms=NOW)
    dirs.close(clean=False)
    path = Path(log.segments.active.path)
    damaged = bytearray(path.read_bytes())
    damaged[8] ^= 0x40
    damaged[30] ^= 1
    path.write_bytes(damaged)
    dirs = open_dirs(tmp_path)
    lost = loaded(dirs).lost_data
    assert lost is not None
    assert (lost.end_offset, lost.expected_offset) == (0, 2)
    assert (path.parent / f"{path.name}.0.aside").read_bytes() == damaged
    dirs.close(clean=False)


def test_lost_data_is_known_after_more_restarts_until_it_is_forgotten(tmp_path: Path) -> None:
    """Checkpoints that were lowered since do not hide it, nor do new records; once
    forgotten it stays so."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs)
    dirs.close(clean=True)
    cut(log, log.segments.active.size - 3)
    first = open_dirs(tmp_path)
    lost = loaded(first).lost_data
    assert lost is not None
    first.checkpoint_high_watermarks()
    first.checkpoint_recovery_points()
    fill(first, 10)
    first.close(clean=True)
    second = open_dirs(tmp_path)
    assert loaded(second).lost_data == lost
    loaded(second).forget_lost_data()
    assert loaded(second).lost_data is None
    second.close(clean=False)
    third = open_dirs(tmp_path)
    assert loaded(third).lost_data is None
    third.close(clean=False)


def test_a_mark_that_cannot_be_read_counts(tmp_path: Path) -> None:
    """Damage to the mark itself does not make the log whole."""
    dirs = open_dirs(tmp_path)
    fill(dirs)
    dirs.close(clean=True)
    (tmp_path / str(TP) / LOST_DATA).write_bytes(b"\xff")
    assert loaded(open_dirs(tmp_path)).lost_data is not None


def test_a_truncation_is_no_loss_whenever_the_crash_comes(tmp_path: Path) -> None:
    """A follower truncates to its leader: the recovery point's checkpoint is lowered
    before the log is."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs, high_watermark=1)
    log.flusher.flush()
    dirs.checkpoint_recovery_points()
    dirs.checkpoint_high_watermarks()
    seen = []
    truncate_to = PartitionLog.truncate_to

    def truncate(log: PartitionLog, offset: int) -> bool:
        seen.append(read_offsets(OsFiles(), str(tmp_path / RECOVERY_POINTS)))
        return truncate_to(log, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLog, "truncate_to", truncate)
        dirs.truncate({TP: 1})
    assert seen == [{TP: 1}]
    dirs.close(clean=False)
    assert loaded(open_dirs(tmp_path)).lost_data is None


def test_a_truncation_below_the_checkpointed_high_watermark_is_no_loss(tmp_path: Path) -> None:
    """The high watermark itself may be lower by then, since a new leader began with a lower one."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs)
    dirs.checkpoint_high_watermarks()
    log.update_high_watermark(1)
    dirs.truncate({TP: 1})
    dirs.close(clean=False)
    assert loaded(open_dirs(tmp_path)).lost_data is None


@pytest.mark.parametrize("checkpoint", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_a_truncation_inside_a_batch_is_no_loss_of_the_rest_of_the_batch(tmp_path: Path, checkpoint: str) -> None:
    """A batch is cut off as a whole; the checkpoints are lowered to its first offset
    before that."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    batch = build_batch([Record(offset, NOW, None, b"v") for offset in range(4)])
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    if checkpoint == RECOVERY_POINTS:
        log.flusher.flush()
        dirs.checkpoint_recovery_points()
    else:
        log.update_high_watermark(4)
        dirs.checkpoint_high_watermarks()
    truncate_to = PartitionLog.truncate_to
    seen = []

    def truncate(log: PartitionLog, offset: int) -> bool:
        seen.append(read_offsets(OsFiles(), str(tmp_path / checkpoint)))
        return truncate_to(log, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLog, "truncate_to", truncate)
        dirs.truncate({TP: 2})
    assert seen == [{TP: 0}]
    assert log.log_end_offset == 0


def test_a_checkpoint_that_was_prepared_before_a_truncation_does_not_replace_the_lowered_one(tmp_path: Path) -> None:
    """The periodic write runs beside the logs' thread; only its rename, on that thread, counts."""
    dirs = open_dirs(tmp_path)
    fill(dirs)
    (write,) = done_here(dirs.high_watermarks.due())
    write.prepare()
    dirs.truncate({TP: 1})
    dirs.high_watermarks.commit(write)
    assert read_offsets(OsFiles(), str(tmp_path / HIGH_WATERMARKS)) == {TP: 1}
    assert not Path(write.path).exists()
    dirs.close(clean=False)
    assert loaded(open_dirs(tmp_path)).lost_data is None


def test_a_checkpoint_written_beside_another_uses_a_file_of_its_own(tmp_path: Path) -> None:
    """A log is made again while the periodic write is under way: neither takes the
    other's file away."""
    dirs = open_dirs(tmp_path)
    fill(dirs)
    (write,) = done_here(dirs.high_watermarks.due())
    dirs.delete(TP, NOW)
    dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    write.prepare()
    dirs.high_watermarks.commit(write)
    assert read_offsets(OsFiles(), str(tmp_path / HIGH_WATERMARKS)) == {}


def test_a_deleted_log_that_is_purged_before_the_next_checkpoint_is_no_lost_one(tmp_path: Path) -> None:
    """The checkpoints are written again before the folder goes: the name may be another
    topic's after the crash."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs)
    log.flusher.flush()
    dirs.checkpoint_high_watermarks()
    dirs.checkpoint_recovery_points()
    dirs.delete(TP, NOW)
    done_here(dirs.purge_deleted(NOW + log.config.file_delete_delay_ms))
    assert not list(tmp_path.glob("*-delete"))
    dirs.close(clean=False)
    dirs = open_dirs(tmp_path)
    assert dirs.lost_data() == {}
    assert dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW, is_new=False).lost_data is None
    dirs.close(clean=False)


def test_a_replica_whose_folder_is_gone_has_lost_its_data(tmp_path: Path) -> None:
    """The checkpoints still name it, and it was not deleted."""
    dirs = open_dirs(tmp_path)
    fill(dirs)
    dirs.close(clean=True)
    shutil.rmtree(tmp_path / str(TP))
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW, is_new=False)
    assert log.lost_data is not None
    assert log.lost_data.expected_offset == BATCHES
    dirs.close(clean=False)
    assert loaded(open_dirs(tmp_path)).lost_data is not None


def test_replicas_that_should_be_in_a_log_dir_that_was_empty_at_the_start_are_gone(tmp_path: Path) -> None:
    """A disk was replaced.

    The broker learns from the znodes what was there; its new logs know it, too."""
    other = TopicPartition("topic", 1)
    dirs = open_dirs(tmp_path)
    assert dirs.missing.has_new_dir
    dirs.get_or_create(other, TOPIC_ID, CONFIG, NOW)
    assert set(dirs.missing.note_gone([TP, other])) == {TP}
    assert set(dirs.lost_data()) == {TP}
    dirs.missing.note_checked()
    assert not dirs.missing.has_new_dir
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW, is_new=False)
    assert log.lost_data is not None
    assert "was empty at the start" in log.lost_data.reason
    dirs.close(clean=False)
    dirs = open_dirs(tmp_path)
    assert not dirs.missing.has_new_dir
    assert set(dirs.lost_data()) == {TP}
    dirs.close(clean=False)


def test_a_log_dir_is_new_until_it_was_compared_with_the_znodes(tmp_path: Path) -> None:
    """A crash between its making and the broker's registration does not let an empty dir
    pass for a complete one."""
    open_dirs(tmp_path).close(clean=True)
    dirs = open_dirs(tmp_path)
    assert dirs.missing.has_new_dir
    dirs.missing.note_checked()
    dirs.close(clean=True)
    dirs = open_dirs(tmp_path)
    assert not dirs.missing.has_new_dir
    dirs.close(clean=True)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_topic_made_again_under_its_name_has_lost_nothing(tmp_path: Path, is_new: bool) -> None:
    """Checkpoints of the deleted log do not count against the new one, not after a crash either."""
    dirs = open_dirs(tmp_path)
    fill(dirs)
    dirs.checkpoint_high_watermarks()
    dirs.checkpoint_recovery_points()
    dirs.delete(TP, NOW)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW, is_new=is_new)
    assert log.lost_data is None
    dirs.close(clean=False)
    assert loaded(open_dirs(tmp_path)).lost_data is None


def test_a_replica_that_moves_between_dirs_takes_its_loss_along(tmp_path: Path) -> None:
    """The copy is no more whole than what it was copied from."""
    first, second = tmp_path / "first", tmp_path / "second"
    dirs = open_dirs(first, second)
    log = fill(dirs)
    source = Path(log.directory).parent
    target = second if source == first else first
    dirs.close(clean=True)
    cut(log, log.segments.active.size - 3)
    dirs = open_dirs(first, second)
    log = loaded(dirs)
    future = dirs.moves.create(TP, str(target), NOW)
    part = log.read(0, 1 << 20, upper_bound=2)
    future.append_as_follower(part.records.read(), now_ms=NOW)  # type: ignore[union-attr]
    assert dirs.moves.promote(TP, NOW).lost_data == log.lost_data is not None
    dirs.close(clean=True)
    assert loaded(open_dirs(first, second)).lost_data == log.lost_data


@pytest.mark.parametrize("is_original_whole", [True, False])
def test_a_copy_that_lost_its_tail_on_the_way_knows_what_the_original_knows_once_it_takes_over(
    tmp_path: Path, is_original_whole: bool
) -> None:
    """A crash took what no sync had covered, and it was copied again: only a loss of the
    original is left, if any."""
    first, second = tmp_path / "first", tmp_path / "second"
    dirs = open_dirs(first, second)
    log = fill(dirs)
    target = second if Path(log.directory).parent == first else first
    future = dirs.moves.create(TP, str(target), NOW)
    future.append_as_follower(log.read(0, 1 << 20, upper_bound=3).records.read(), now_ms=NOW)  # type: ignore[union-attr]
    future.update_high_watermark(BATCHES)
    dirs.checkpoint_high_watermarks()
    dirs.close(clean=False)
    cut(future, future.segments.active.size - 3)
    if not is_original_whole:
        cut(log, log.segments.active.size - 3)
    dirs = open_dirs(first, second)
    log, copy = loaded(dirs), dirs.moves.future(TP)
    assert copy is not None
    assert copy.lost_data is not None
    assert (log.lost_data is None) is is_original_whole
    if is_original_whole:
        copy.append_as_follower(log.read(2, 1 << 20, upper_bound=3).records.read(), now_ms=NOW)  # type: ignore[union-attr]
    assert dirs.moves.promote(TP, NOW).lost_data == log.lost_data
    dirs.close(clean=True)
    assert loaded(open_dirs(first, second)).lost_data == log.lost_data


def test_log_dirs_list_the_partitions_that_lost_records_and_those_whose_folder_is_gone(tmp_path: Path) -> None:
    """A broker needs to know them before it registers, and before it makes their logs again."""
    dirs = open_dirs(tmp_path)
    log = fill(dirs)
    dirs.checkpoint_high_watermarks()
    dirs.close(clean=True)
    assert open_and_list(tmp_path) == {}
    cut(log, log.segments.active.size // 2)
    assert open_and_list(tmp_path) == {TP: (1, BATCHES)}
    shutil.rmtree(tmp_path / str(TP))
    dirs = open_dirs(tmp_path)
    assert [lost.expected_offset > 0 for lost in dirs.lost_data().values()] == [True]
    dirs.close(clean=False)


def open_and_list(directory: Path) -> dict[TopicPartition, tuple[int, int]]:
    dirs = open_dirs(directory)
    lost = {partition: (found.end_offset, found.expected_offset) for partition, found in dirs.lost_data().items()}
    dirs.close(clean=True)
    return lost
