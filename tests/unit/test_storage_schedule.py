"""Periodic work: what is due happens at its time, and only then."""

from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.storage.service import StorageService
from barnabas.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from barnabas.log.settings import LogConfig
from support.broker import DataPath, batch
from support.storage import storage_service

T0 = TopicPartition("t", 0)


def started(broker: DataPath) -> StorageService:
    service = storage_service(broker)
    service.start()
    return service


def append(broker: DataPath) -> None:
    broker.replicas.append(T0, batch(b"a"), acks=1, now_ms=broker.clock.wall_ms())


def test_high_watermarks_are_written_when_they_moved(tmp_path: Path) -> None:
    """Every five seconds by default; an idle broker writes nothing."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    append(broker)
    storage = started(broker)
    broker.timers.advance(5000)
    path = tmp_path / HIGH_WATERMARKS
    assert read_offsets(OsFiles(), str(path)) == {T0: 1}
    path.unlink()
    broker.timers.advance(5000)
    assert not path.exists()
    append(broker)
    broker.timers.advance(5000)
    assert read_offsets(OsFiles(), str(path)) == {T0: 2}
    storage.stop()


def test_rolled_segments_and_due_logs_are_synced(tmp_path: Path) -> None:
    """flush.ms brings the recovery point to the end of the log."""
    broker = DataPath(tmp_path)
    broker.configs["t"] = LogConfig({"flush.ms": "1500"})
    partition = broker.lead("t")
    append(broker)
    storage = started(broker)
    broker.timers.advance(1000)
    assert partition.log.durability.recovery_point == 0
    broker.timers.advance(1000)
    assert partition.log.durability.recovery_point == 1
    storage.stop()


def test_each_append_is_synced_where_every_message_must_be(tmp_path: Path) -> None:
    """flush.messages=1: on disk before the answer."""
    broker = DataPath(tmp_path)
    broker.configs["t"] = LogConfig({"flush.messages": "1"})
    partition = broker.lead("t")
    append(broker)
    assert partition.log.durability.recovery_point == 1


def test_silent_connections_are_closed_and_waiting_ones_are_not(tmp_path: Path) -> None:
    """A parked long poll is not silence."""
    broker = DataPath(tmp_path, {"connections.max.idle.ms": "4000"})
    storage = started(broker)
    silent = broker.connect()
    broker.timers.advance(3000)
    active = broker.connect()
    for _ in range(2):
        broker.timers.advance(1000)
    assert (silent.is_closed, active.is_closed) == (True, False)
    storage.stop()


def test_nothing_runs_after_the_stop(tmp_path: Path) -> None:
    """Timers are cancelled, those of running jobs included."""
    broker = DataPath(tmp_path)
    storage = started(broker)
    storage.stop()
    assert all(timer.callback is None for timer in broker.timers.pending)


def test_a_job_that_fails_runs_again_at_its_next_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged under Kafka's name for it; the other jobs go on."""
    broker = DataPath(tmp_path)
    runs: list[int] = []

    def fail(name: str) -> Task[None]:
        yield None
        if name == RECOVERY_POINTS:
            runs.append(broker.clock.monotonic_ms())
            raise RuntimeError("no luck")

    broker.log_dirs.checkpoint = fail
    storage = started(broker)
    broker.timers.advance(60_000)
    broker.timers.advance(60_000)
    assert len(runs) == 2
    assert "Scheduled task kafka-recovery-point-checkpoint failed" in caplog.text
    storage.stop()
