"""Replicas that move between log dirs: nothing lost or doubled, whatever happens
meanwhile; errors as Kafka's."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.replica_manager import LeadershipOutcome
from barnabas.broker.storage.replica_alter_log_dirs import MOVE_TRANSITIONS, MoveState, ReplicaMove
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.kafka.records.batch_header import read_headers
from support.broker import DATA_PATH_APIS, DataPath, batch
from support.storage import storage_service

T0 = TopicPartition("t", 0)
Done = Callable[[BaseException | None], None]


class Threads:
    """Work beside the loop that runs when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], None], Done]] = []
        self.ended: list[tuple[Done, BaseException | None]] = []

    def __call__(self, work: Callable[[], None], done: Done) -> None:
        self.begun.append((work, done))

    def work(self) -> None:
        """The thread does its part; the loop has not seen it yet."""
        work, done = self.begun.pop(0)
        try:
            work()
        except Exception as error:
            self.ended.append((done, error))
        else:
            self.ended.append((done, None))

    def report(self) -> None:
        done, error = self.ended.pop(0)
        done(error)


class Mover:
    """A broker with two log dirs."""

    def __init__(self, directory: Path, **texts: str) -> None:
        self.dirs = [directory / "a", directory / "b"]
        self.texts = texts
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.threads = Threads()
        self.starts += 1
        self.broker = DataPath(self.dirs[0], more_dirs=self.dirs[1:], seed=self.starts)
        node = self.broker
        self.broker.configs["t"] = LogConfig(self.texts)
        for log in (node.log_dirs.get(T0), node.log_dirs.moves.future(T0)):
            if log is not None:
                log.configure(self.broker.configs["t"])
        self.storage = storage_service(self.broker, self.threads)
        self.broker.replicas.on_roles(self.storage.roles_changed)
        self.broker.serve(DATA_PATH_APIS, storage=self.storage)

    @property
    def log(self) -> Any:
        return self.broker.replicas.partition(T0).log

    @property
    def future(self) -> Any:
        return self.broker.log_dirs.moves.future(T0)

    def other_dir(self) -> str:
        return next(str(path) for path in self.dirs if str(path) != self.broker.log_dirs.dir_of(self.log))

    def move(self, path: str, *names: TopicPartition) -> list[int]:
        topics = [AlterReplicaLogDirTopic(name=name.topic, partitions=[name.partition]) for name in names or (T0,)]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        response = self.broker.connect().ask(request, 2)
        return [item.error_code for topic in response.results for item in topic.partitions]

    def append(self, *values: bytes, size: int = 0) -> None:
        self.broker.replicas.append(T0, batch(*values, bytes(size)), acks=1, now_ms=self.broker.clock.wall_ms())

    def settle(self) -> None:
        """Let everything run that is planned."""
        for _ in range(1000):
            if self.threads.begun:
                self.threads.work()
            elif self.threads.ended:
                self.threads.report()
            elif any(timer.callback for timer in self.broker.timers.pending):
                self.broker.timers.advance(1000)
            else:
                return
        raise AssertionError("the move does not end")

    def is_planned(self) -> bool:
        """Whether anything is still to run: a slice, or the next round of a move."""
        return bool(self.threads.begun or self.threads.ended) or any(
            timer.callback is not None for timer in self.broker.timers.pending
        )

    def described(self) -> dict[tuple[str, bool], int]:
        """Offset lag by (dir's name, is future)."""
        response = self.broker.connect().ask(DescribeLogDirsRequest(topics=None), 4)
        return {
            (Path(result.log_dir).name, item.is_future_key): item.offset_lag
            for result in response.results
            for topic in result.topics
            for item in topic.partitions
        }


def contents(log: Any) -> list[tuple[int, int, int]]:
    """(base offset, last offset, leader epoch) and so the order of all batches from
    the start offset on."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
        data = piece.records if isinstance(piece.records, bytes) else piece.records.read()
        if not data:
            break
        for at, header in read_headers(memoryview(data)):
            checksum = hash(bytes(data[at + 61 : at + header.size_bytes]))
            found.append((header.base_offset, header.last_offset, header.leader_epoch, checksum))
            offset = header.last_offset + 1
    return found


def test_a_replica_moves_while_records_are_appended(tmp_path: Path) -> None:
    """The copy catches up, takes over with the same records and bounds, and the old
    folder waits for its removal."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    for _ in range(6):
        mover.append(b"x", size=300_000)
    source, target = mover.broker.log_dirs.dir_of(mover.log), mover.other_dir()
    assert mover.move(target) == [ErrorCode.NONE]
    assert mover.described() == {(Path(source).name, False): 0, (Path(target).name, True): 12}
    mover.broker.timers.advance(0)
    mover.threads.work()
    mover.append(b"while", b"copying")
    mover.threads.report()
    before = contents(mover.log)
    mover.settle()
    assert mover.broker.log_dirs.dir_of(mover.log) == target
    assert contents(mover.log) == before
    assert (mover.log.high_watermark, mover.log.log_end_offset) == (15, 15)
    assert mover.described() == {(Path(target).name, False): 0}
    assert [path.name.endswith("-delete") for path in Path(source).glob("t-0*")] == [True]
    mover.append(b"after")
    assert mover.log.high_watermark == 17


@pytest.mark.parametrize("values", [(), (b"x",)])
def test_a_move_keeps_the_epochs_that_have_no_records(tmp_path: Path, values: tuple[bytes, ...]) -> None:
    """A leader that does not know the epoch in which it leads cannot say where those before it
    ended: a follower that led in one of them would be refused until somebody writes."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    for value in values:
        mover.append(value)
    mover.broker.lead("t", epoch=3)
    end = mover.log.log_end_offset
    epochs = list(mover.log.leader_epochs.epochs.entries)
    assert epochs[-1] == (3, end)
    target = mover.other_dir()
    assert mover.move(target) == [ErrorCode.NONE]
    mover.settle()
    assert mover.broker.log_dirs.dir_of(mover.log) == target
    assert mover.log.leader_epochs.epochs.entries == epochs
    assert mover.log.end_offset_for_epoch(2).end_offset == end


def test_a_move_keeps_the_start_of_an_epoch_whose_first_records_compaction_removed(tmp_path: Path) -> None:
    """A follower with other records there must still learn where the epoch before it ended."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    mover.append(b"x")
    start = mover.log.log_end_offset
    mover.broker.lead("t", epoch=3)
    mover.log.skip_to(9, 3)
    mover.log.update_high_watermark(9)
    mover.append(b"left")
    assert mover.move(mover.other_dir()) == [ErrorCode.NONE]
    mover.settle()
    assert mover.log.end_offset_for_epoch(0).end_offset == start


def test_what_cannot_be_moved_is_answered_with_kafkas_errors(tmp_path: Path) -> None:
    """A replica that does not exist yet is created in the dir that was asked for."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    assert mover.move("/nowhere") == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert mover.move(mover.other_dir() + "/") == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert mover.move(mover.other_dir(), TopicPartition("x", 0)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert mover.move(mover.other_dir(), TopicPartition("n" * 220, 0)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    source = mover.broker.log_dirs.dir_of(mover.log)
    assert mover.move(source) == [ErrorCode.NONE]
    assert mover.future is None
    mover.broker.replicas._is_known = lambda name: True
    assert mover.move(source, TopicPartition("soon", 0)) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    partition = mover.broker.lead("soon")
    assert mover.broker.log_dirs.dir_of(partition.log) == source


def test_a_long_wrong_path_for_many_replicas_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a client sends once must not be written a thousand times."""
    mover = Mover(tmp_path)
    topic = AlterReplicaLogDirTopic(name="t", partitions=list(range(1000)))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="x" * 10_000, topics=[topic])])
    response = mover.broker.connect().ask(request, 2)
    codes = [partition.error_code for partition in response.results[0].partitions]
    assert codes == [ErrorCode.LOG_DIR_NOT_FOUND] * 1000
    assert 0 < len(caplog.text) < 2000


def test_many_wrong_paths_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each replica to a dir of its own that does not exist: one line."""
    mover = Mover(tmp_path)
    dirs = [
        AlterReplicaLogDir(path=f"/x{number}", topics=[AlterReplicaLogDirTopic(name="t", partitions=[number])])
        for number in range(1000)
    ]
    mover.broker.connect().ask(AlterReplicaLogDirsRequest(dirs=dirs), 2)
    [record] = caplog.records
    assert "t-0 to /x0, " in record.message
    assert "t-4 to /x4 and 995 more" in record.message


def test_moving_back_cancels_the_move_and_deletes_the_copy(tmp_path: Path) -> None:
    """Even in the middle of a slice."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    for _ in range(3):
        mover.append(b"x", size=300_000)
    source = mover.broker.log_dirs.dir_of(mover.log)
    mover.move(mover.other_dir())
    mover.broker.timers.advance(0)
    assert mover.threads.begun
    assert mover.move(source) == [ErrorCode.NONE]
    mover.settle()
    assert mover.future is None
    assert mover.broker.log_dirs.dir_of(mover.log) == source
    assert not mover.is_planned()
    mover.append(b"goes on")


def test_a_replica_stopped_and_led_again_in_the_middle_of_a_slice_is_copied_by_one_thread(tmp_path: Path) -> None:
    """The move begins again after the slice of the one before, not beside it."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    for _ in range(6):
        mover.append(b"x", size=300_000)
    target = mover.other_dir()
    mover.move(target)
    mover.broker.timers.advance(0)
    assert len(mover.threads.begun) == 1
    replicas = mover.broker.replicas
    replicas.stop_replicas([(T0, -1, False)], 0)
    replicas._announce(LeadershipOutcome(gained=[replicas.partition(T0)]))
    mover.broker.timers.advance(1000)
    assert len(mover.threads.begun) == 1, "the future log has one writer"
    before = contents(mover.log)
    mover.settle()
    assert mover.broker.log_dirs.dir_of(mover.log) == target
    assert contents(mover.log) == before


def test_a_copy_follows_the_log_start_offset_and_the_truncations_of_its_log(tmp_path: Path) -> None:
    """DeleteRecords and truncations in the middle of a slice; what was read of
    truncated records is discarded."""
    mover = Mover(tmp_path)
    partition = mover.broker.lead("t")
    for _ in range(4):
        mover.append(b"x", size=200_000)
    mover.move(mover.other_dir())
    mover.broker.timers.advance(0)
    mover.threads.work()
    partition.log.update_high_watermark(2)
    mover.broker.log_dirs.truncate({T0: 2})
    mover.broker.lead("t", epoch=1)
    mover.append(b"other", b"records", size=200_000)
    mover.broker.replicas.delete_records(T0, 1)
    mover.threads.report()
    expected = contents(mover.log)
    mover.settle()
    assert contents(mover.log) == expected
    assert mover.log.log_start_offset == 1
    assert mover.log.leader_epochs.latest_epoch == 1


def test_records_that_compaction_removed_at_the_end_do_not_delay_a_move(tmp_path: Path) -> None:
    """The log goes on at its end, with a segment that begins there."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    mover.append(b"x")
    mover.log.skip_to(9, 0)
    mover.log.update_high_watermark(9)
    mover.move(mover.other_dir())
    mover.settle()
    assert mover.log.directory.endswith(mover.other_dir()) is False
    assert mover.log.log_end_offset == 9
    mover.append(b"next")
    assert contents(mover.log)[-1][0] == 9


def test_a_move_keeps_to_its_limit_of_bytes_per_second(tmp_path: Path) -> None:
    """1 MB at 100 kB/s is ten seconds."""
    mover = Mover(tmp_path)
    mover.broker.config.replace(
        mover.broker.config.values.replace({"replica.alter.log.dirs.io.max.bytes.per.second": "100000"})
    )
    mover.broker.lead("t")
    for _ in range(10):
        mover.append(b"x", size=100_000)
    mover.move(mover.other_dir())
    start = mover.broker.clock.monotonic_ms()
    mover.settle()
    assert 9_000 <= mover.broker.clock.monotonic_ms() - start <= 30_000


def test_a_limit_that_is_lifted_lets_a_move_go_on_at_once(tmp_path: Path) -> None:
    """Though a slice would have had to take an hour."""
    mover = Mover(tmp_path)
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    mover.broker.config.replace(mover.broker.config.values.replace({name: "100"}))
    mover.broker.lead("t")
    for _ in range(4):
        mover.append(b"x", size=100_000)
    mover.move(mover.other_dir())
    mover.broker.timers.advance(0)
    mover.threads.work()
    mover.threads.report()
    for _ in range(60):
        mover.broker.timers.advance(1000)
    assert mover.future is not None
    mover.broker.config.replace(mover.broker.config.values.replace({name: str(1 << 40)}))
    start = mover.broker.clock.monotonic_ms()
    mover.settle()
    assert mover.future is None
    assert mover.broker.clock.monotonic_ms() - start <= 10_000


def test_a_copy_whose_disk_fails_takes_only_its_log_dir_offline(tmp_path: Path) -> None:
    """The replica stays where it was, and serves on."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    mover.append(b"x", size=300_000)
    target = mover.other_dir()
    mover.move(target)
    active = mover.future.segments.active
    os.dup2(os.open(active.path, os.O_RDONLY), active.file.fileno())  # every write fails
    mover.broker.timers.advance(0)
    mover.settle()
    assert list(mover.broker.log_dirs.offline) == [target]
    mover.append(b"serves on")
    assert mover.move(target) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_start_completes_what_a_crash_interrupted_between_the_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old folder is renamed first: the copy is the replica then."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    mover.append(b"x")
    target = mover.other_dir()
    mover.move(target)
    rename = OsFiles.rename

    def crash_before_the_second(files: OsFiles, old: str, new: str) -> None:
        if old.endswith("-future"):
            raise KeyboardInterrupt
        rename(files, old, new)

    monkeypatch.setattr(OsFiles, "rename", crash_before_the_second)
    with pytest.raises(KeyboardInterrupt):
        mover.settle()
    monkeypatch.undo()
    assert not list(tmp_path.rglob("t-0"))
    mover.broker.log_dirs.close(clean=False)
    mover.start()
    mover.broker.lead("t", epoch=1)
    assert mover.broker.log_dirs.dir_of(mover.log) == target
    assert mover.log.log_end_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_goes_on_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """From where it was, as soon as the controller names the partition's leader."""
    mover = Mover(tmp_path)
    mover.broker.lead("t")
    for _ in range(4):
        mover.append(b"x", size=200_000)
    target, before = mover.other_dir(), contents(mover.log)
    mover.move(target)
    mover.broker.timers.advance(0)
    mover.threads.work()
    copied = mover.future.log_end_offset
    assert 0 < copied < 8
    mover.storage.stop()
    mover.broker.log_dirs.close(clean=clean)
    mover.start()
    assert mover.future.log_end_offset == copied
    mover.broker.lead("t", epoch=1)
    mover.settle()
    assert mover.broker.log_dirs.dir_of(mover.log) == target
    assert contents(mover.log) == before


@pytest.mark.parametrize("state", MoveState)
@pytest.mark.parametrize("following", MoveState)
def test_a_move_takes_the_transitions_of_its_table_only(tmp_path: Path, state: MoveState, following: MoveState) -> None:
    """Staying in a state is no transition; a move that is over stays so."""
    mover = Mover(tmp_path)
    log = mover.broker.lead("t").log
    move = ReplicaMove(T0, log, log)
    move.state = state
    if following is state or following in MOVE_TRANSITIONS[state]:
        move.enter(following)
        assert move.state is following
    else:
        with pytest.raises(RuntimeError, match="cannot go from"):
            move.enter(following)


class Moving(RuleBasedStateMachine):
    """Anything may happen to the current log between a slice's beginning and its
    end, and between slices."""

    @initialize(sync=st.booleans(), segment_bytes=st.sampled_from([3000, 100_000]))
    def begin(self, sync: bool, segment_bytes: int) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        texts = {"segment.bytes": str(segment_bytes), "flush.before.ack": str(sync).lower()}
        self.mover = Mover(Path(self.folder.name), **texts)
        self.epoch = 0
        self.mover.broker.lead("t")
        self.expected: list[Any] = []
        self.number = 0

    @rule(count=st.integers(1, 5), size=st.integers(0, 1000))
    def append(self, count: int, size: int) -> None:
        for _ in range(count):
            self.number += 1
            self.mover.append(b"%d" % self.number, size=size)
        self.expected = contents(self.mover.log)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        log = self.mover.log
        offset = log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * share)
        log.update_high_watermark(min(log.high_watermark, offset))
        self.mover.broker.log_dirs.truncate({T0: offset})
        self.epoch += 1
        self.mover.broker.lead("t", epoch=self.epoch)
        self.expected = contents(self.mover.log)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.mover.log
        offset = log.log_start_offset + int((log.high_watermark - log.log_start_offset) * share)
        self.mover.broker.replicas.delete_records(T0, offset)
        log.apply_retention(self.mover.broker.clock.wall_ms())
        self.expected = contents(self.mover.log)

    @rule()
    def move_or_cancel(self) -> None:
        for path in self.mover.dirs:
            assert self.mover.move(str(path)) == [ErrorCode.NONE]

    @rule()
    def move(self) -> None:
        assert self.mover.move(self.mover.other_dir()) == [ErrorCode.NONE]

    @rule(by_ms=st.sampled_from([0, 10, 2000]))
    def time_passes(self, by_ms: int) -> None:
        self.mover.broker.timers.advance(by_ms)

    @precondition(lambda self: self.mover.threads.begun)
    @rule()
    def a_thread_works(self) -> None:
        self.mover.threads.work()

    @precondition(lambda self: self.mover.threads.ended)
    @rule()
    def the_loop_gets_the_outcome(self) -> None:
        self.mover.threads.report()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.mover.storage.stop()
        while self.mover.threads.begun:
            self.mover.threads.work()
        while self.mover.threads.ended:
            self.mover.threads.report()
        self.mover.broker.log_dirs.close(clean=clean)
        self.mover.start()
        self.epoch += 1
        self.mover.broker.lead("t", epoch=self.epoch)
        self.mover.log.update_high_watermark(self.mover.log.log_end_offset)
        self.expected = contents(self.mover.log)

    @invariant()
    def the_log_is_what_it_was(self) -> None:
        if hasattr(self, "mover"):
            assert contents(self.mover.log) == self.expected
            assert not self.mover.broker.log_dirs.offline

    def teardown(self) -> None:
        if hasattr(self, "mover"):
            self.mover.settle()
            assert contents(self.mover.log) == self.expected
            assert self.mover.future is None
            self.mover.broker.log_dirs.close(clean=False)
            self.folder.cleanup()


TestMoving = Moving.TestCase
TestMoving.settings = hypothesis_settings(max_examples=15, stateful_step_count=25, deadline=None)
