"""When a log is synced to stable storage: one sync of a log at a time, for all that
wait for it (group commit).

A caller that needs a record on disk asks for a sync of its log. If one is under way it may have
begun before the record was appended, so another one follows it, for everything that was appended
meanwhile. With one producer that is a sync for each append, with a hundred it is a sync for the
appends of all that arrived during the last one.

A sync that the disk fails is never repeated: the kernel may report success for pages that it has
dropped. The log dir goes offline, and those that wait get an error. After any other failure, such
as a shortage of file descriptors, the log stays online: the callers keep waiting, and a sync
follows after a pause, or at the next request if that comes first.

`GroupSync` decides. Its steps return the `LogSync` to run now, beside the event loop, if any;
its outcome goes to `done`.

    IDLE --request--> RUNNING --request--> RUNNING, with another wanted --done--> RUNNING
                      RUNNING --done--> IDLE
                      RUNNING --done, failed and online--> PAUSED --retry or request--> RUNNING

Kafka has no counterpart: it syncs in `UnifiedLog.flush`, on the thread of the request.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas.log.flush_task import FlushTask
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["GroupSync", "LogSync", "WhenDurable"]

logger = logging.getLogger(__name__)


WhenDurable = Callable[[PartitionLog, int, Callable[[], None]], None]
"""Takes a log, an offset, and what to call once all below the offset is on stable storage."""


class LogSync(NamedTuple):
    """A sync to run.

    Without a task everything is on stable storage already, and only the waiting
    callbacks are called."""

    log: PartitionLog
    task: FlushTask | None
    has_begun: bool = True
    """False when the task could not be made: no file descriptor was free, or the log
    went offline."""

    def run(self) -> None:
        """Sync; takes as long as the disk. Raises `OSError`."""
        if self.task is not None:
            self.task.run()


class _State:
    """The sync of one log that runs, and the one that is wanted next."""

    __slots__ = ("is_retry_planned", "is_running", "waiters", "wanted_offset", "wants_full")

    def __init__(self) -> None:
        self.is_running = False
        self.is_retry_planned = False
        """Whether `GroupSync.retry` is going to be called. Once at a time, however many
        requests fail meanwhile."""
        self.wanted_offset = 0
        """The end of the log when a sync was last requested during one."""
        self.wants_full = False
        """Whether the next sync must include all files, not the records alone."""
        self.waiters: list[tuple[int, Callable[[], None]]] = []

    @property
    def is_idle(self) -> bool:
        return not (self.is_running or self.is_retry_planned or self.waiters or self.wants_full)


class GroupSync:
    """The syncs of one broker's logs."""

    def __init__(self, synced: Callable[[PartitionLog], None], plan_retry: Callable[[PartitionLog], None]) -> None:
        """``synced`` is called after each: the log's ``durable_offset`` has moved,
        or the log went offline.

        ``plan_retry`` must have `retry` called with the log after a pause.
        """
        self._synced = synced
        self._plan_retry = plan_retry
        self._logs: dict[PartitionLog, _State] = {}

    def _state(self, log: PartitionLog) -> _State:
        state = self._logs.get(log)
        if state is None:
            state = self._logs[log] = _State()
        return state

    def request(self, log: PartitionLog) -> LogSync | None:
        """Request a sync of everything that the log holds now."""
        state = self._state(log)
        if state.is_running:
            state.wanted_offset = log.log_end_offset
            return None
        return self._start(log, state)

    def retry(self, log: PartitionLog) -> LogSync | None:
        """The pause after a failed sync is over."""
        self._state(log).is_retry_planned = False
        return self.request(log)

    def when_durable(self, log: PartitionLog, offset: int, callback: Callable[[], None]) -> LogSync | None:
        """Call ``callback`` once all below ``offset`` is on stable storage, was
        truncated, or the log is offline.

        Syncs the rest. ``callback`` is called from `done` only.
        """
        self._state(log).waiters.append((offset, callback))
        return self.request(log)

    def flush(self, log: PartitionLog, *, include_active: bool) -> LogSync | None:
        """Sync all files of a log, or of its closed segments.

        If a sync of it is under way, the next one does it."""
        if log.offline is not None:
            return None
        state = self._state(log)
        if state.is_running:
            state.wants_full = True
            return None
        task = log.flusher.prepare_flush(include_active=include_active)
        if task is None:
            self._forget_idle(log, state)
            return None
        state.is_running = True
        return LogSync(log, task)

    def _start(self, log: PartitionLog, state: _State) -> LogSync:
        is_full, state.wants_full = state.wants_full, False
        state.is_running = True
        task, has_begun = None, True
        if log.offline is None:
            try:
                task = log.flusher.prepare_flush() if is_full else log.flusher.prepare_sync()
            except KafkaError as error:
                # The log is offline now, or no file descriptor was free: `done` sees which.
                logger.error("The sync of %s cannot begin: %s", log, error)
                has_begun = False
        return LogSync(log, task, has_begun)

    def done(self, sync: LogSync, error: BaseException | None, now_ms: int) -> LogSync | None:
        """A sync has ended. Returns the next one of the same log, if there is more to sync.

        None follows at once on one that failed: what made it fail would most likely
        make the next one fail too.
        """
        log = sync.log
        state = self._logs[log]
        state.is_running = False
        if isinstance(error, OSError):
            log.availability.fail(error, "flushing")
        elif error is not None:
            logger.error("The sync of %s failed", log, exc_info=error)
        elif sync.task is not None:
            log.flusher.done(sync.task, now_ms)
        wanted_offset, state.wanted_offset = state.wanted_offset, 0
        if log.offline is not None:
            state.wants_full = False
        self._notify(log, state)
        following = None
        # The callbacks may have started a sync already.
        if not state.is_running and log.offline is None:
            if error is not None or not sync.has_begun:
                if not state.is_retry_planned:
                    state.is_retry_planned = True
                    self._plan_retry(log)
            elif (
                state.wants_full or state.waiters or wanted_offset > log.durability.durable_offset < log.log_end_offset
            ):
                following = self._start(log, state)
        self._forget_idle(log, state)
        self._synced(log)
        return following

    def _notify(self, log: PartitionLog, state: _State) -> None:
        waiters, state.waiters = state.waiters, []
        for offset, callback in waiters:
            if log.offline is not None or log.durability.durable_offset >= min(offset, log.log_end_offset):
                callback()
            else:
                state.waiters.append((offset, callback))

    def _forget_idle(self, log: PartitionLog, state: _State) -> None:
        if state.is_idle and self._logs.get(log) is state:
            del self._logs[log]
