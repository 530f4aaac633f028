"""Syncs of logs to stable storage, beside the event loop: of each log one at a time, for all who wait (group commit).

Whoever needs a record on disk asks for a sync of its log. If one is under way it may have begun before the record came,
so another follows it, for everything that came meanwhile. With one producer that is a sync for each append, with a
hundred it is a sync for the appends of all that arrived during the last one; nobody else waits in either case.

A sync that fails is never repeated: the kernel may report success for pages that it has dropped. The log dir goes
offline, and who waited hears so.
"""

import logging
from collections.abc import Callable

from barnabas.base.clock import Clock
from barnabas.base.threads import InThread
from barnabas.log.flushing import FlushTask
from barnabas.log.partition_log import PartitionLog

__all__ = ["Syncs"]

logger = logging.getLogger(__name__)


class Syncs:
    """All syncs of one broker's logs."""

    def __init__(self, clock: Clock, in_thread: InThread, synced: Callable[[PartitionLog], None]) -> None:
        """``synced`` is called after each: the log's ``durable_offset`` has moved, or the log went offline."""
        self._clock = clock
        self._in_thread = in_thread
        self._synced = synced
        self._running: dict[PartitionLog, int] = {}
        self._wanted: dict[PartitionLog, int] = {}
        self._full: set[PartitionLog] = set()
        self._waiters: dict[PartitionLog, list[tuple[int, Callable[[], None]]]] = {}

    def request(self, log: PartitionLog) -> None:
        """Have all that the log holds now on stable storage soon."""
        if log in self._running:
            self._wanted[log] = log.log_end_offset
        else:
            self._start(log)

    def when_durable(self, log: PartitionLog, offset: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once all below ``offset`` is on stable storage, was cut off, or the log is offline.

        Syncs what is not. Never called from here.
        """
        self._waiters.setdefault(log, []).append((offset, callback))
        self.request(log)

    def flush(self, log: PartitionLog, *, include_active: bool) -> None:
        """Sync all files of a log, or of its closed segments. If a sync of it is under way, the next one does it."""
        if log.offline is not None:
            return
        if log in self._running:
            self._full.add(log)
            return
        task = log.prepare_flush(include_active=include_active)
        if task is not None:
            self._run(log, task)

    def _start(self, log: PartitionLog) -> None:
        is_full = log in self._full
        self._full.discard(log)
        task = None
        if log.offline is None:
            task = log.prepare_flush() if is_full else log.prepare_sync()
        if task is None:
            self._running[log] = -1
            self._in_thread(_nothing, lambda _: self._done(log, None, None))
        else:
            self._run(log, task)

    def _run(self, log: PartitionLog, task: FlushTask) -> None:
        self._running[log] = task.upto_offset
        self._in_thread(task.run, lambda error: self._done(log, task, error))

    def _done(self, log: PartitionLog, task: FlushTask | None, error: BaseException | None) -> None:
        del self._running[log]
        if isinstance(error, OSError):
            log.fail(error, "flushing")
        elif error is not None:
            logger.error("The sync of %s failed", log, exc_info=error)
        elif task is not None:
            log.flush_done(task, self._clock.wall_ms())
        wanted = self._wanted.pop(log, 0)
        if log.offline is not None:
            self._full.discard(log)
        self._tell(log)
        if log not in self._running and log.offline is None and wanted > log.durable_offset < log.log_end_offset:
            self._start(log)
        self._synced(log)

    def _tell(self, log: PartitionLog) -> None:
        waiters = self._waiters.pop(log, ())
        left = []
        for offset, callback in waiters:
            if log.offline is not None or log.durable_offset >= min(offset, log.log_end_offset):
                callback()
            else:
                left.append((offset, callback))
        if left:
            self._waiters[log] = left


def _nothing() -> None:
    """All was on stable storage already."""
