"""When the log cleaner compacts: the dirtiest log first, at most so many at a time,
never what cannot be read."""

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.base.processes import NoWorkerError, StartProcess, WorkerLostError, WorkerProcess, WorkerProcesses
from barnabas.broker.storage import log_cleaner
from barnabas.log.checkpoints import CLEANER_OFFSETS, read_offsets
from barnabas.log.compaction.cleanable import Cleanable, cleanable
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch
from support.broker import START_MS, DataPath
from support.slicing import thread_at_once
from support.storage import StartedLogCleaner

COMPACT = LogConfig({"cleanup.policy": "compact"})


def dirty_log(broker: DataPath, topic: str, rounds: int = 20, size: int = 10) -> PartitionLog:
    """A compacted topic whose one closed segment holds one key many times."""
    broker.configs[topic] = COMPACT
    log: PartitionLog = broker.lead(topic).log
    for _ in range(rounds):
        data = build_batch([Record(0, START_MS, b"key", b"v" * size)])
        broker.replicas.append(TopicPartition(topic, 0), data, acks=1, now_ms=broker.clock.wall_ms())
    log.roll(broker.clock.wall_ms())
    return log


def run_for(broker: DataPath, duration_ms: int) -> None:
    """Time passes, then in small steps: each step of a compaction plans the next."""
    broker.timers.advance(duration_ms)
    for _ in range(50):
        broker.timers.advance(1)


def test_dirty_logs_are_compacted_after_the_backoff(tmp_path: Path) -> None:
    """Not before; and the checkpoint says how far."""
    broker = DataPath(tmp_path, {"log.cleaner.backoff.ms": "5000"})
    logs = [dirty_log(broker, topic) for topic in ("a", "b")]
    size = logs[0].segments.size_bytes
    cleaner = StartedLogCleaner(broker)
    broker.timers.advance(4999)
    assert [log.segments.size_bytes for log in logs] == [size, size]
    run_for(broker, 1)
    assert [log.segments.size_bytes for log in logs] == [size // 20, size // 20]
    offsets = read_offsets(OsFiles(), str(tmp_path / CLEANER_OFFSETS))
    assert offsets == {TopicPartition("a", 0): 20, TopicPartition("b", 0): 20}
    cleaner.stop()


@pytest.mark.parametrize("overrides", [{"log.cleaner.enable": "false"}, {"log.cleaner.threads": "0"}], ids=str)
def test_nothing_is_compacted_where_the_cleaner_is_off(tmp_path: Path, overrides: dict[str, str]) -> None:
    """As with Apache's broker."""
    broker = DataPath(tmp_path, overrides)
    log = dirty_log(broker, "a")
    size = log.segments.size_bytes
    StartedLogCleaner(broker)
    broker.timers.advance(60_000)
    assert log.segments.size_bytes == size


def test_only_so_many_logs_are_compacted_at_a_time_the_dirtiest_first(tmp_path: Path) -> None:
    """log.cleaner.threads; the next begins when one is done."""
    broker = DataPath(tmp_path, {"log.cleaner.threads": "2"})
    logs = [dirty_log(broker, topic) for topic in ("a", "b", "c")]
    # Its ratio is 0.5: like Apache's it counts the segment as clean and as dirty.
    logs[0].bounds.set_cleaned(10)
    for log in logs[1:]:
        assert log.bounds.cleaned_offset is None
    waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    StartedLogCleaner(broker, lambda work, done: waiting.append((work, done)))
    broker.timers.advance(15_000)
    assert len(waiting) == 2
    while logs[1].bounds.cleaned_offset is None or logs[2].bounds.cleaned_offset is None:
        batch, waiting[:] = waiting[:], []
        for work, done in batch:
            thread_at_once(work, done)
        broker.timers.advance(10)
    assert logs[0].bounds.cleaned_offset == 10


def test_one_look_finds_the_work_of_many_compactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each, only the log itself is looked at again, so that the cost for a log does
    not grow with their number."""
    broker = DataPath(tmp_path)
    logs = [dirty_log(broker, f"t{number}") for number in range(20)]
    looked_at: list[PartitionLog] = []

    def noted(log: PartitionLog, now_ms: int) -> Cleanable:
        looked_at.append(log)
        return cleanable(log, now_ms)

    monkeypatch.setattr(log_cleaner, "cleanable", noted)
    cleaner = StartedLogCleaner(broker)
    broker.timers.advance(15_000)
    for _ in range(200):
        broker.timers.advance(1)
    assert [log.bounds.cleaned_offset for log in logs] == [20] * 20
    assert len(looked_at) <= 3 * len(logs)
    cleaner.stop()


def test_a_log_with_more_keys_than_the_map_goes_on_at_once(tmp_path: Path) -> None:
    """Pass after pass, without a look in between."""
    broker = DataPath(
        tmp_path, {"log.cleaner.dedupe.buffer.size": "1048576", "log.cleaner.io.buffer.load.factor": "0.01"}
    )
    broker.configs["a"] = LogConfig({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    log: PartitionLog = broker.lead("a").log
    for number in range(80):
        data = build_batch([Record(at, START_MS, b"%d-%d" % (number, at), b"v") for at in range(10)])
        broker.replicas.append(TopicPartition("a", 0), data, acks=1, now_ms=broker.clock.wall_ms())
    log.roll(broker.clock.wall_ms())
    cleaner = StartedLogCleaner(broker)
    run_for(broker, 15_000)
    assert log.bounds.cleaned_offset == 800
    cleaner.stop()


def test_the_throttle_spreads_a_compaction_over_time(tmp_path: Path) -> None:
    """log.cleaner.io.max.bytes.per.second counts what is read and written."""
    broker = DataPath(tmp_path, {"log.cleaner.io.max.bytes.per.second": "10000"})
    log = dirty_log(broker, "a", rounds=100, size=900)
    size = log.segments.size_bytes
    StartedLogCleaner(broker)
    broker.timers.advance(15_000)
    broker.timers.advance(9_000)
    assert log.bounds.cleaned_offset is None
    for _ in range(30):
        broker.timers.advance(1_000)
    assert log.bounds.cleaned_offset == 100
    assert log.segments.size_bytes == size // 100


def test_a_log_that_cannot_be_read_is_left_alone_and_the_others_are_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the log stays online; no look before its time finds it due."""
    broker = DataPath(tmp_path)
    broken, sound = dirty_log(broker, "a"), dirty_log(broker, "b")
    broken.segments[0].file.write_at(8, b"\x7f")
    cleaner = StartedLogCleaner(broker)
    run_for(broker, 15_000)
    run_for(broker, 15_000)
    assert (broken.bounds.cleaned_offset, broken.offline) == (None, None)
    assert sound.bounds.cleaned_offset == 20
    assert sum("a-0 is uncleanable" in record.message for record in caplog.records) == 1
    assert not list((tmp_path / "a-0").glob("*.cleaned"))
    cleaner.stop()


def test_an_uncleanable_log_is_tried_again_after_a_pause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every ten minutes: with the bad batch still there it is left as it is, without
    the batch it is compacted."""
    broker = DataPath(tmp_path)
    log = dirty_log(broker, "a")
    file = log.segments[0].file
    good = file.read_at(8, 1)
    file.write_at(8, b"\x7f")
    cleaner = StartedLogCleaner(broker)
    run_for(broker, 15_000)
    run_for(broker, 599_000)
    assert [record.levelname for record in caplog.records if "uncleanable" in record.message] == ["ERROR"]
    run_for(broker, 15_000)
    assert [record.levelname for record in caplog.records if "uncleanable" in record.message] == ["ERROR", "WARNING"]
    assert log.bounds.cleaned_offset is None
    file.write_at(8, good)
    run_for(broker, 570_000)
    assert log.bounds.cleaned_offset is None
    run_for(broker, 60_000)
    assert log.bounds.cleaned_offset == 20
    cleaner.stop()


def test_the_compaction_of_a_deleted_log_ends(tmp_path: Path) -> None:
    """Its folder is gone; nothing fails."""
    broker = DataPath(tmp_path)
    log = dirty_log(broker, "a")
    waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    cleaner = StartedLogCleaner(broker, lambda work, done: waiting.append((work, done)))
    broker.timers.advance(15_000)
    thread_at_once(*waiting.pop())
    broker.timers.advance(10)
    broker.log_dirs.delete(TopicPartition("a", 0), broker.clock.wall_ms())
    thread_at_once(*waiting.pop())
    broker.timers.advance(10)
    assert not waiting
    assert not broker.log_dirs.offline
    assert log.offline == "a-0 is deleted"
    cleaner.stop()


def test_a_stop_removes_what_was_not_finished(tmp_path: Path) -> None:
    """The folder is as it was."""
    broker = DataPath(tmp_path, {"log.cleaner.io.buffer.size": "0"})
    dirty_log(broker, "a", rounds=200, size=500)
    names = sorted(path.name for path in (tmp_path / "a-0").iterdir())
    cleaner = StartedLogCleaner(broker)
    broker.timers.advance(15_000)
    for _ in range(1000):
        if list((tmp_path / "a-0").glob("*.cleaned")):
            break
        broker.timers.advance(1)
    assert list((tmp_path / "a-0").glob("*.cleaned"))
    cleaner.stop()
    assert sorted(path.name for path in (tmp_path / "a-0").iterdir()) == names


def compacted_bytes(tmp_path: Path, start: StartProcess | None) -> tuple[int, bytes]:
    """What is left of a log, and how many steps that took."""
    broker = DataPath(tmp_path)
    log = dirty_log(broker, "a")
    steps = 0

    def in_thread(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        nonlocal steps
        steps += 1
        broker.clock.thread_ms += 5  # the event loop is busy
        thread_at_once(work, done)

    StartedLogCleaner(broker, in_thread, start)
    run_for(broker, 15_000)
    assert log.bounds.cleaned_offset == 20
    return steps, b"".join(path.read_bytes() for path in sorted((tmp_path / "a-0").glob("*.log")))


def test_a_large_log_is_compacted_in_a_process_of_its_own_as_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes, in no more steps, and a thread does it where there are no processes."""
    started: list[WorkerProcess] = []
    workers = WorkerProcesses()

    def noted(module: str, argument: object) -> WorkerProcess:
        started.append(workers.start(module, argument))
        return started[-1]

    def failing(module: str, argument: object) -> WorkerProcess:
        raise NoWorkerError("too many processes")

    in_thread = compacted_bytes(tmp_path / "small", noted)
    assert not started
    monkeypatch.setattr(log_cleaner, "_LEAST_WORKER_BYTES", 0)
    in_process = compacted_bytes(tmp_path / "large", noted)
    assert in_process[1] == in_thread[1]
    assert in_process[0] <= in_thread[0]
    assert len(started) == 1
    assert compacted_bytes(tmp_path / "failing", failing) == (in_thread[0] + 1, in_thread[1])
    assert len(started) == 1
    workers.close()


class Dying:
    """Starts processes; some are killed before one of their steps, as anyone may kill them."""

    def __init__(self, lost_at: int, times: int) -> None:
        self._workers = WorkerProcesses()
        self._lost_at = lost_at
        self._left = times
        self.count = 0

    def __call__(self, module: str, argument: object) -> WorkerProcess:
        self.count += 1
        self._left -= 1
        return DyingTask(self._workers.start(module, argument), self._lost_at if self._left >= 0 else -1)

    def close(self) -> None:
        self._workers.close()


class DyingTask:
    def __init__(self, task: WorkerProcess, lost_at: int) -> None:
        self._task = task
        self._lost_at = lost_at
        self._steps = 0

    def step(self) -> Any:
        self._steps += 1
        if self._steps == self._lost_at:
            os.kill(self._task.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        return self._task.step()

    def finish(self) -> None:
        self._task.finish()

    def close(self) -> None:
        self._task.close()


def test_a_log_whose_process_is_lost_is_compacted_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, with one warning, and the same bytes; no file is left of the first attempt."""
    monkeypatch.setattr(log_cleaner, "_LEAST_WORKER_BYTES", 0)
    caplog.set_level(logging.WARNING)
    start = Dying(lost_at=2, times=1)
    for name in ("small", "lost"):
        (tmp_path / name).mkdir()
    expected = compacted_bytes(tmp_path / "small", None)[1]
    assert compacted_bytes(tmp_path / "lost", start)[1] == expected
    start.close()
    assert start.count == 2
    assert not list((tmp_path / "lost" / "a-0").glob("*.cleaned"))
    (record,) = caplog.records
    assert "begins again in another process" in record.message


def test_a_log_whose_process_is_lost_twice_is_left_alone_and_the_others_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It never reaches the broker's own process.

    It is tried again after the pause of uncleanable logs, and compacted then."""
    monkeypatch.setattr(log_cleaner, "_LEAST_WORKER_BYTES", 0)
    broker = DataPath(tmp_path)
    other, lost = dirty_log(broker, "a"), dirty_log(broker, "b", rounds=30)
    start = Dying(lost_at=2, times=2)
    cleaner = StartedLogCleaner(broker, start_worker=start)
    run_for(broker, 15_000)
    run_for(broker, 15_000)
    assert (lost.bounds.cleaned_offset, lost.offline) == (None, None)
    assert other.bounds.cleaned_offset == 20
    assert start.count == 3
    assert not list((tmp_path / "b-0").glob("*.cleaned"))
    assert sum("b-0 is uncleanable" in record.message for record in caplog.records) == 1
    run_for(broker, 600_000)
    assert lost.bounds.cleaned_offset == 30
    cleaner.stop()
    start.close()


def test_logs_are_compacted_in_threads_where_a_process_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning, and no other process is started. A stop says nothing."""
    monkeypatch.setattr(log_cleaner, "_LEAST_WORKER_BYTES", 0)
    caplog.set_level(logging.WARNING)
    start = Dying(lost_at=1, times=9)
    for name in ("small", "lost"):
        (tmp_path / name).mkdir()
    expected = compacted_bytes(tmp_path / "small", None)[1]
    assert compacted_bytes(tmp_path / "lost", start)[1] == expected
    assert start.count == 1
    (record,) = caplog.records
    assert "Logs are compacted in threads" in record.message
    caplog.clear()
    broker = DataPath(tmp_path / "stopped")
    dirty_log(broker, "a")
    waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    cleaner = StartedLogCleaner(broker, lambda work, done: waiting.append((work, done)), start)
    broker.timers.advance(15_000)
    ((_, done),) = waiting
    cleaner.stop()
    done(WorkerLostError("killed"))
    assert caplog.records == []
    start.close()


@pytest.mark.parametrize(("worked_ms", "rest_ms"), [(0.0, 0), (0.1, 0), (3.0, 6), (9.0, 10)])
def test_a_compaction_rests_in_proportion_to_the_work_of_the_event_loop(
    tmp_path: Path, worked_ms: float, rest_ms: int
) -> None:
    """Twice as long as the loop worked during the step, and no longer than the step
    took, here 10 ms."""
    broker = DataPath(tmp_path)
    dirty_log(broker, "a")
    steps: list[int] = []

    def in_thread(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        steps.append(broker.clock.now_ms)
        broker.clock.now_ms += 10
        broker.clock.thread_ms += worked_ms
        thread_at_once(work, done)

    StartedLogCleaner(broker, in_thread)
    broker.timers.advance(15_000)
    assert len(steps) == 1
    assert min(timer.due_ms for timer in broker.timers.pending) - broker.clock.now_ms == rest_ms
