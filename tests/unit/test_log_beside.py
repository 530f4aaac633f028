"""What a log dir writes beside the event loop: the newest contents win, and a crash
finds what it found before."""

import itertools
from pathlib import Path

import pytest

from barnabas.base.files import File, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.base.tasks import done_here
from barnabas.broker.replication.replica_manager import write_leader_epochs
from barnabas.log.checkpoints import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    RECOVERY_POINTS,
    read_epochs,
    read_offsets,
)
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.batch_header import assign_offsets
from barnabas.wire.kafka.records.records import Record, build_batch

NOW = 1_700_000_000_000
TOPIC_ID = Uuid(bytes(range(16)))
TP = TopicPartition("topic", 0)


def opened(*paths: Path) -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(path) for path in paths], LogConfig(), broker_id=0, cluster_id="c", rng=Random(1))
    dirs.load(NOW, {})
    return dirs


def made(dirs: LogDirs, partition: int = 0) -> PartitionLog:
    return dirs.get_or_create(TopicPartition("topic", partition), TOPIC_ID, LogConfig(), NOW)


def append(log: PartitionLog, epoch: int) -> None:
    log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=epoch, now_ms=NOW)


def epochs_on_disk(path: Path) -> list[tuple[int, int]]:
    return read_epochs(OsFiles(), str(path / "topic-0" / LEADER_EPOCHS))


def test_an_epoch_is_known_at_once_and_written_by_any_thread(tmp_path: Path) -> None:
    """The write says what the epochs were when it was left."""
    log = made(opened(tmp_path))
    log.leader_epochs.begin_unwritten(3, 0)
    assert log.leader_epochs.latest_epoch == 3
    assert epochs_on_disk(tmp_path) == []
    unwritten = log.leader_epochs.unwritten
    assert unwritten is not None
    unwritten.run()
    assert epochs_on_disk(tmp_path) == [(3, 0)]
    assert log.leader_epochs.unwritten is None


def test_a_write_that_comes_late_does_not_replace_newer_epochs(tmp_path: Path) -> None:
    """Neither those of the next election nor those that the event loop wrote itself."""
    log = made(opened(tmp_path))
    log.leader_epochs.begin_unwritten(3, 0)
    late = log.leader_epochs.unwritten
    assert late is not None
    append(log, 3)
    log.leader_epochs.begin_unwritten(4, 1)
    later = log.leader_epochs.unwritten
    assert later is not None
    later.run()
    late.run()
    assert epochs_on_disk(tmp_path) == [(3, 0), (4, 1)]
    log.leader_epochs.begin_unwritten(5, 1)
    last = log.leader_epochs.unwritten
    assert last is not None
    append(log, 5)
    log.leader_epochs.begin_unwritten(6, log.log_end_offset)
    log.leader_epochs.complete()
    last.run()
    assert epochs_on_disk(tmp_path) == [(3, 0), (5, 1), (6, 2)]


def test_the_epochs_of_many_logs_are_looked_for_in_steps(tmp_path: Path) -> None:
    """A step for each log, then one in a thread; a stop between two steps leaves all
    to the next flush."""
    logs = [made(opened(tmp_path / str(number))) for number in range(20)]
    for log in logs:
        log.leader_epochs.begin_unwritten(3, 0)
    stopped = write_leader_epochs(logs)
    next(stopped)
    stopped.close()
    assert all(log.leader_epochs.unwritten is not None for log in logs)
    work = write_leader_epochs(logs)
    steps = list(itertools.takewhile(lambda step: step is None, work))
    assert len(steps) == len(logs)
    done_here(write_leader_epochs(logs))
    assert all(log.leader_epochs.unwritten is None for log in logs)
    assert [epochs_on_disk(tmp_path / str(number)) for number in range(20)] == [[(3, 0)]] * 20


def test_a_flush_writes_the_epochs_first(tmp_path: Path) -> None:
    """Below the recovery point nothing looks into batches, so the file must be complete there."""
    log = made(opened(tmp_path))
    log.leader_epochs.begin_unwritten(3, 0)
    append(log, 3)
    log.flusher.flush(NOW)
    assert epochs_on_disk(tmp_path) == [(3, 0)]


def test_a_followers_first_records_of_an_epoch_leave_the_file_to_a_thread(tmp_path: Path) -> None:
    """After a failover that is a file for each partition, in the answer to one fetch."""
    log = made(opened(tmp_path))
    batch = build_batch([Record(0, NOW, None, b"v")])
    assign_offsets(batch, 0, 0, 7)
    log.append_as_follower(batch, now_ms=NOW)
    assert log.leader_epochs.epochs.entries == [(7, 0)]
    assert epochs_on_disk(tmp_path) == []
    unwritten = log.leader_epochs.unwritten
    assert unwritten is not None
    unwritten.run()
    assert epochs_on_disk(tmp_path) == [(7, 0)]


def test_a_process_that_dies_before_the_write_finds_the_epoch_in_its_batches(tmp_path: Path) -> None:
    """Records of the epoch are past the recovery point; an epoch without records is no loss."""
    dirs = opened(tmp_path)
    log = made(dirs)
    log.leader_epochs.begin_unwritten(3, 0)
    append(log, 3)
    log.leader_epochs.begin_unwritten(4, 1)
    dirs.close(clean=False)
    again = opened(tmp_path)
    loaded = again.get(TP)
    assert loaded is not None
    assert loaded.leader_epochs.epochs.entries == [(3, 0)]


def test_folders_are_made_ahead_in_the_emptiest_dirs_and_used(tmp_path: Path) -> None:
    """The logs are made in them, with their topic's id, and nothing is left to make."""
    first, second = tmp_path / "a", tmp_path / "b"
    dirs = opened(first, second)
    partitions = [TopicPartition("topic", index) for index in range(6)]
    task = dirs.new_folders.prepare([(partition, TOPIC_ID) for partition in partitions], is_new=True)
    assert task is not None
    task.run()
    assert [len(list(path.glob("topic-*"))) for path in (first, second)] == [3, 3]
    dirs.new_folders.take(task)
    logs = [made(dirs, index) for index in range(6)]
    assert [len(list(path.glob("topic-*"))) for path in (first, second)] == [3, 3]
    append(logs[0], 0)
    dirs.close(clean=True)
    again = opened(first, second)
    assert {log.topic_id for log in again.logs().values()} == {TOPIC_ID}
    assert again.new_folders.prepare([(partitions[0], TOPIC_ID)], is_new=True) is None


def test_a_dir_that_fails_while_folders_are_made_is_offline_and_another_takes_the_log(tmp_path: Path) -> None:
    """As when `get_or_create` makes the folder itself."""
    first, second = tmp_path / "a", tmp_path / "b"
    dirs = opened(first, second)
    task = dirs.new_folders.prepare([(TP, TOPIC_ID)], is_new=True)
    assert task is not None
    (first / "topic-0").write_text("in the way")
    task.run()
    dirs.new_folders.take(task)
    assert list(dirs.offline) == [str(first)]
    assert made(dirs).directory == str(second / "topic-0")


def test_a_checkpoint_that_is_written_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    """A recovery point above the end of a truncated log would pass for lost records."""
    dirs = opened(tmp_path)
    log = made(dirs)
    for _ in range(5):
        append(log, 0)
    log.flusher.flush(NOW)
    work = dirs.checkpoint(RECOVERY_POINTS)
    step = next(step for step in work if step is not None)
    dirs.truncate({TP: 2})
    step.work()
    assert list(work) == []
    assert read_offsets(OsFiles(), str(tmp_path / RECOVERY_POINTS)) == {TP: 2}
    append(log, 0)
    log.flusher.flush(NOW)
    done_here(dirs.checkpoint(RECOVERY_POINTS))
    assert read_offsets(OsFiles(), str(tmp_path / RECOVERY_POINTS)) == {TP: 3}


def test_a_log_that_is_cut_while_high_watermarks_are_gathered_supersedes_their_checkpoint(tmp_path: Path) -> None:
    """The file never names more than the log holds."""
    dirs = opened(tmp_path)
    log, other = made(dirs), made(dirs, 1)
    for _ in range(5):
        append(log, 0)
        append(other, 0)
    log.update_high_watermark(5)
    other.update_high_watermark(5)
    work = dirs.high_watermarks.due()
    next(work)
    dirs.truncate({TP: 2})
    (write,) = done_here(work)
    write.prepare()
    dirs.high_watermarks.commit(write)
    assert read_offsets(OsFiles(), str(tmp_path / HIGH_WATERMARKS))[TP] == 2


def test_a_checkpoint_without_news_is_not_written(tmp_path: Path) -> None:
    """An idle broker leaves its disk alone."""
    dirs = opened(tmp_path)
    made(dirs)
    done_here(dirs.checkpoint(RECOVERY_POINTS))
    path = tmp_path / RECOVERY_POINTS
    assert read_offsets(OsFiles(), str(path)) == {TP: 0}
    path.unlink()
    done_here(dirs.checkpoint(RECOVERY_POINTS))
    assert not path.exists()


def test_the_removal_of_folders_can_be_interrupted_by_a_stop(tmp_path: Path) -> None:
    """What is left is removed by the next start."""
    dirs = opened(tmp_path)
    for index in range(200):
        made(dirs, index)
        dirs.delete(TopicPartition("topic", index), NOW)
    work = dirs.purge_deleted(NOW + 60_000)
    step = next(step for step in work if step is not None)
    step.work()
    work.close()
    left = len(list(tmp_path.glob("topic-*")))
    assert 0 < left < 200
    dirs.close(clean=True)
    done_here(opened(tmp_path).purge_deleted(NOW + 60_000))
    assert list(tmp_path.glob("topic-*")) == []


def test_segments_go_some_at_a_time_and_their_files_beside_the_event_loop(tmp_path: Path) -> None:
    """A log of thousands would hold everything else; also where its folder is renamed
    while files are removed."""
    dirs = opened(tmp_path)
    log = made(dirs)
    for _ in range(100):
        append(log, 0)
        log.roll(NOW)
    log.update_high_watermark(log.log_end_offset)
    log.delete_records_before(log.log_end_offset)
    counts = []
    for step in dirs.apply_retention(NOW):
        assert step is None
        counts.append(len(log.segments))
    assert counts[:3] == [93, 85, 77]
    assert counts[-1] == 1
    waiting = len(list(Path(log.directory).glob("*.deleted")))
    assert waiting > 256
    work = log.purge_deleted(NOW + 60_000)
    step = next(work)
    assert step is not None
    directory = Path(log.directory).with_name("renamed")
    Path(log.directory).rename(directory)
    log.move_to(str(directory))
    step.work()
    done_here(work)
    assert list(directory.glob("*.deleted")) == []
    assert len(log.deletions) == 0


def test_a_stop_can_come_while_logs_are_loaded(tmp_path: Path) -> None:
    """A start that is given up leaves the dir to the next one."""
    dirs = opened(tmp_path)
    for number in range(20):
        append(made(dirs, number), 0)
    dirs.close(clean=False)
    stopped = LogDirs(OsFiles(), [str(tmp_path)], LogConfig(), broker_id=0, cluster_id="c", rng=Random(1))
    loading = stopped.load_in_slices(NOW, {})
    while len(stopped.logs()) < 3:
        step = next(loading)
        if step is not None:
            step.work()
    loading.close()
    assert len(stopped.logs()) < 20
    stopped.close(clean=False)
    loaded = opened(tmp_path).logs()
    assert [log.log_end_offset for log in loaded.values()] == [1] * 20


def test_a_log_takes_the_configuration_that_changed_after_its_load(tmp_path: Path) -> None:
    """Its topic was configured while the broker started, when nothing was known to
    follow the change."""
    dirs = opened(tmp_path)
    made(dirs)
    dirs.close(clean=True)
    changed = LogConfig({"segment.bytes": "2000000"})
    assert opened(tmp_path).get_or_create(TP, TOPIC_ID, changed, NOW).config is changed


class _ReadsCounted(OsFiles):
    """Counts what is opened, listed and measured."""

    def __init__(self) -> None:
        self.count = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        self.count += 1
        return super().open(path, create=create, read_only=read_only, keep=keep)

    def list(self, path: str) -> list[str]:
        self.count += 1
        return super().list(path)

    def size(self, path: str) -> int:
        self.count += 1
        return super().size(path)


@pytest.mark.parametrize("was_clean", [False, True])
def test_logs_are_loaded_beside_the_event_loop_one_at_a_time_after_a_crash(tmp_path: Path, *, was_clean: bool) -> None:
    """On the loop nothing is read of them.

    A stop waits for what is under way, so that is little where it takes long."""
    dirs = opened(tmp_path)
    for number in range(40):
        append(made(dirs, number), 0)
    dirs.close(was_clean, 1)
    files = _ReadsCounted()
    dirs = LogDirs(files, [str(tmp_path)], LogConfig(), broker_id=0, cluster_id="c", rng=Random(1))
    on_loop, loaded = 0, []
    work = dirs.load_in_slices(NOW, {})
    dir_read = next(work)
    assert dir_read is not None
    dir_read.work()
    files.count = 0
    for step in work:
        on_loop += files.count
        if step is not None:
            before = len(dirs.logs())
            step.work()
            loaded.append(before)
        files.count = 0
    assert on_loop == 0
    assert len(dirs.logs()) == 40
    assert all(log.log_end_offset == 1 for log in dirs.logs().values())
    assert loaded == ([0, 32] if was_clean else list(range(40)))
    dirs.close(False, 1)
