"""What follows when the disk of a log dir fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.broker.cluster.steps import Pause, Steps, WriteResult, WriteUnfenced, Written
from barnabas.broker.cluster.znodes import LOG_DIR_EVENTS
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, count_stored_partitions
from barnabas.broker.replication.log_dir_failures import LogDirFailures
from barnabas.broker.replication.replica_manager import LeadershipOutcome
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from support.broker import START_MS, DataPath
from support.znode_steps import Znodes

T0 = TopicPartition("t", 0)


class Failures:
    """The handler of a broker with two log dirs."""

    def __init__(self, broker: DataPath, log_dirs: LogDirs, *, is_registered: bool = True) -> None:
        self.stopped = False
        self.later: list[Callable[[], object]] = []
        self.started: list[Steps[None]] = []
        handler = LogDirFailures(
            0,
            log_dirs,
            broker.replicas,
            is_registered=lambda: is_registered,
            call_later=lambda _, callback: self.later.append(callback),  # type: ignore[arg-type,return-value]
            start=self.started.append,
            shut_down=self._shut_down,
        )
        log_dirs.on_offline(handler.dir_failed)

    def _shut_down(self) -> None:
        self.stopped = True

    def work(self) -> None:
        while self.later:
            self.later.pop(0)()


def two_dirs(directory: Path) -> LogDirs:
    paths = [str(directory / "first"), str(directory / "second")]
    log_dirs = LogDirs(OsFiles(), paths, LogConfig(), broker_id=0, cluster_id="c", rng=Random(1))
    log_dirs.load(START_MS, {})
    return log_dirs


def test_replicas_of_a_failed_dir_lose_their_roles_in_the_next_turn(tmp_path: Path) -> None:
    """Not in the call that noticed the failure: it may be in the middle of the partition."""
    broker = DataPath(tmp_path / "data")
    heard: list[LeadershipOutcome] = []
    broker.replicas.on_roles(heard.append)
    partition = broker.lead("t")
    partition.log.availability.take_offline("its disk failed")
    heard.clear()
    log_dirs = two_dirs(tmp_path / "other")
    failures = Failures(broker, log_dirs)
    log_dirs.fail(str(tmp_path / "other" / "first"), "Input/output error")
    assert partition.role is not None
    failures.work()
    assert partition.role is None
    assert [outcome.stopped for outcome in heard] == [[T0]]
    assert not failures.stopped


def test_the_controller_is_informed_again_and_again_until_it_works(tmp_path: Path) -> None:
    """The note is a sequential znode: a second one does no harm."""
    log_dirs = two_dirs(tmp_path / "logs")
    failures = Failures(DataPath(tmp_path / "data"), log_dirs)
    log_dirs.fail(str(tmp_path / "logs" / "first"), "Input/output error")
    failures.work()
    (steps,) = failures.started
    step: Any = next(steps)
    assert isinstance(step, WriteUnfenced)
    assert step.ops[0].path.startswith(LOG_DIR_EVENTS)
    lost = Written(WriteResult.FAILED, error=KeeperError(Keeper.CONNECTION_LOSS, ""))
    assert isinstance(steps.send([lost]), Pause)
    assert isinstance(steps.send(None), WriteUnfenced)
    with pytest.raises(StopIteration):
        steps.send([Written(WriteResult.DONE)])


def test_a_broker_that_is_not_registered_yet_informs_no_controller(tmp_path: Path) -> None:
    """The controller learns it from the response to its first LeaderAndIsr."""
    log_dirs = two_dirs(tmp_path / "logs")
    failures = Failures(DataPath(tmp_path / "data"), log_dirs, is_registered=False)
    log_dirs.fail(str(tmp_path / "logs" / "first"), "Input/output error")
    failures.work()
    assert failures.started == []


def test_the_broker_stops_when_its_last_log_dir_fails(tmp_path: Path) -> None:
    """There is nothing left that it could serve."""
    log_dirs = two_dirs(tmp_path / "logs")
    failures = Failures(DataPath(tmp_path / "data"), log_dirs)
    log_dirs.fail(str(tmp_path / "logs" / "first"), "Input/output error")
    assert not failures.stopped
    log_dirs.fail(str(tmp_path / "logs" / "second"), "Input/output error")
    assert failures.stopped


def test_the_partitions_of_an_internal_topic_are_counted_from_its_znode() -> None:
    """There are none before the topic is created."""
    znodes = Znodes()
    assert znodes.perform(count_stored_partitions(OFFSETS_TOPIC)) == 0
    znodes.put("/brokers/topics/__consumer_offsets", b'{"version":1,"partitions":{"0":[1],"1":[2],"2":[1]}}')
    assert znodes.perform(count_stored_partitions(OFFSETS_TOPIC)) == 3
