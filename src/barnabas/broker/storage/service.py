"""The edge of the broker's storage: threads and timers for what `schedule`,
`log_cleaner` and the moves decide.

`Background` performs effects. `LogSyncs` runs the syncs that `barnabas.log.group_sync` decides.
`StorageService` is all background work on a broker's logs.

In Kafka: the scheduler of `LogManager`, the threads of `LogCleaner` and of
`ReplicaAlterLogDirsManager`.
"""

import logging
from collections.abc import Callable
from functools import partial

from barnabas.base.clock import CallLater, Clock, Now, Timer
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.base.threads import InThread
from barnabas.broker.replication.replica_manager import LeadershipOutcome
from barnabas.broker.storage.effects import Effects, InSlices, Later
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.broker.storage.replica_alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.broker.storage.schedule import StorageSchedule
from barnabas.log.group_sync import GroupSync, LogSync
from barnabas.log.partition_log import PartitionLog

__all__ = ["Background", "LogSyncs", "StorageService"]

logger = logging.getLogger(__name__)
_RETRY_MS = 500
"""How long a sync that failed in a log that is still online waits for the next."""


class Background:
    """Performs `Effects`: work in threads and in slices, and steps at a later time."""

    def __init__(self, clock: Clock, call_later: CallLater, in_thread: InThread, runner: Runner) -> None:
        self._clock = clock
        self._call_later = call_later
        self._in_thread = in_thread
        self._runner = runner
        self._timers: dict[int, Timer] = {}
        self._planned = 0
        self._is_stopped = False
        self.work = ""
        """The task that began last, for reports about the event loop."""

    def now(self) -> Now:
        """The time to give to a step."""
        return Now.of(self._clock)

    def stop(self) -> None:
        """Cancel all steps that wait for their time.

        Work in a thread still ends, and its outcome is reported."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def perform(self, effects: Effects) -> None:
        """In order."""
        for effect in effects:
            match effect:
                case Later():
                    self._plan(effect)
                case InSlices(name, work, then):
                    self.work = name
                    self._runner.start(self._followed(name, work, then))
                case _:
                    self._in_thread(effect.work, self._reporting(effect.done))

    def _followed(self, name: str, work: Task[None], then: Callable[[Now], Effects]) -> Task[None]:
        try:
            yield from work
        except Exception:
            logger.exception("Scheduled task %s failed", name)
        self.perform(then(self.now()))

    def _reporting(
        self, done: Callable[[BaseException | None, Now], Effects]
    ) -> Callable[[BaseException | None], None]:
        return lambda error: self.perform(done(error, self.now()))

    def _plan(self, effect: Later) -> None:
        if self._is_stopped:
            return

        self._planned += 1
        number = self._planned
        self._timers[number] = self._call_later(effect.delay_ms, partial(self._fire, number, effect))

    def _fire(self, number: int, effect: Later) -> None:
        del self._timers[number]
        self.work = ""
        self.perform(effect.then(self.now()))


class LogSyncs:
    """Runs the syncs of a broker's logs beside the event loop."""

    def __init__(
        self, clock: Clock, call_later: CallLater, in_thread: InThread, synced: Callable[[PartitionLog], None]
    ) -> None:
        """``synced`` is called after each: the log's ``durable_offset`` has moved,
        or the log went offline."""
        self._clock = clock
        self._call_later = call_later
        self._in_thread = in_thread
        self._group_sync = GroupSync(synced, self._plan_retry)

    def request(self, log: PartitionLog) -> None:
        """See `GroupSync.request`."""
        self._run(self._group_sync.request(log))

    def when_durable(self, log: PartitionLog, offset: int, callback: Callable[[], None]) -> None:
        """See `GroupSync.when_durable`."""
        self._run(self._group_sync.when_durable(log, offset, callback))

    def flush(self, log: PartitionLog, include_active: bool) -> None:
        """See `GroupSync.flush`."""
        self._run(self._group_sync.flush(log, include_active=include_active))

    def _plan_retry(self, log: PartitionLog) -> None:
        self._call_later(_RETRY_MS, lambda: self._run(self._group_sync.retry(log)))

    def _run(self, sync: LogSync | None) -> None:
        if sync is not None:
            self._in_thread(
                sync.run, lambda error: self._run(self._group_sync.done(sync, error, self._clock.wall_ms()))
            )


class StorageService:
    """The background work on one broker's logs."""

    def __init__(
        self,
        background: Background,
        schedule: StorageSchedule,
        log_cleaner: LogCleaner,
        moves: ReplicaAlterLogDirsManager,
    ) -> None:
        self._background = background
        self._schedule = schedule
        self._log_cleaner = log_cleaner
        self._moves = moves

    def start(self) -> None:
        """Begin; each job runs for the first time after its period."""
        self._background.perform(self._schedule.start())
        self._background.perform(self._log_cleaner.start())

    def stop(self) -> None:
        """Start nothing more; work in a thread may still end."""
        self._background.stop()
        self._log_cleaner.stop()
        self._moves.stop()

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Move a replica to a log dir: see `ReplicaAlterLogDirsManager.move`.

        Raises `KafkaError`."""
        self._background.perform(self._moves.move(topic_partition, path, self._background.now()))

    def roles_changed(self, outcome: LeadershipOutcome) -> None:
        """The controller has made this broker leader, follower, or neither, of partitions."""
        self._background.perform(self._moves.roles_changed(outcome))
