"""When a broker compacts which log, and how fast.

``log.cleaner.threads`` logs are compacted at a time, the dirtiest first. A compaction advances by
steps that run beside the event loop; between them the log's state is looked at, and new segments
are swapped in, on the loop. A large log is compacted in another process, of lower priority, which
leaves the interpreter to requests. The next large log gets the same process. A small log is
compacted in a thread, which after each step rests twice as long as the event loop worked
meanwhile, but no longer than the step took. So requests get at least half of the processor, and a
compaction all of it while there are none. Both rest longer if
``log.cleaner.io.max.bytes.per.second``, over all compactions, asks for that. A look finds all logs
that are due, in slices. They are compacted in their order, each if it is still due then, and
``log.cleaner.backoff.ms`` passes before the next look.

A log whose batches cannot be read is "uncleanable", as Kafka calls it: it stays as it is, and its
records are still served. It is reported in the broker's log, and tried again every ten minutes
(Kafka: after a restart), because the bad batch may be gone by then: retention or a truncation can
remove it. So is a log whose process was lost twice: whatever it died of would reach the broker in a
thread. The other logs are compacted as ever. A disk that fails takes the log dir offline.

In Kafka: `LogCleaner` with its `CleanerThread`s, and `LogCleanerManager`, which finds the dirtiest
log. Which part of a log can be cleaned is in `barnabas.log.compaction.cleanable`.
"""

import logging
from bisect import insort
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from barnabas.base.clock import Now
from barnabas.base.errors import CorruptDataError
from barnabas.base.processes import NoWorkerError, StartProcess, WorkerLostError
from barnabas.base.tasks import Task
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.storage.effects import Effects, InSlices, Later, RunBeside
from barnabas.log.compaction.cleanable import Cleanable, cleanable
from barnabas.log.compaction.compaction import Compaction
from barnabas.log.compaction.plan import CompactionLimits, CompactionOutcome
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["LogCleaner"]

logger = logging.getLogger(__name__)

_MAX_CHUNK_BYTES = 512 * 1024
_BUFFERS_A_CHUNK = 8
"""In a process of its own. Batches are read together, the faster the more, but a thread must not
hold the interpreter long."""
_LEAST_PERIOD_MS = 100
_UNTHROTTLED = 1e12
_LEAST_WORKER_BYTES = 48 << 20
"""What a thread compacts in half a second. A process takes 0.2 s to start, and 30 MiB of memory
while it works and waits."""
_UNCLEANABLE_PAUSE_MS = 600_000


class _StepBegan(NamedTuple):
    """What is known when a step of a compaction begins."""

    ms: int
    loop_worked_ms: float
    size_bytes: int
    """Read and written so far."""


class LogCleaner:
    """The compactions of one broker. Each step returns `Effects`."""

    def __init__(
        self,
        log_dirs: LogDirs,
        config: BrokerConfig,
        loop_worked_ms: Callable[[], float],
        start_worker: StartProcess | None,
    ) -> None:
        """``loop_worked_ms`` is the processor time that the event loop's thread has used.

        Without ``start_worker`` all compactions run in threads.
        """
        self._start_worker = start_worker
        self._log_dirs = log_dirs
        self._config = config
        self._loop_worked_ms = loop_worked_ms
        self._running: dict[Compaction, bool] = {}
        """The compactions under way, and whether a thread works on each now. If not, it
        rests between two steps."""
        self._due: list[Cleanable] = []
        """What the last look found and was not begun yet, the dirtiest last."""
        self._uncleanable: dict[PartitionLog, int] = {}
        """Logs that could not be read, and when each is tried again."""
        self._lost: set[PartitionLog] = set()
        """Logs whose last attempt ended with the loss of its process."""
        self._is_stopped = False

    def start(self) -> Effects:
        """Look for the first time after log.cleaner.backoff.ms.

        Never if log.cleaner.enable is false."""
        return [self._later_look()] if self._config["log.cleaner.enable"] else ()

    def stop(self) -> None:
        """Start no further step. A step under way may still end, and its compaction with it."""
        self._is_stopped = True
        for compaction, is_in_thread in tuple(self._running.items()):
            if not is_in_thread:
                self._abandon(compaction)

    def _limits(self, *, is_apart: bool) -> CompactionLimits:
        """The share of one compaction, in a process of its own or in a thread."""
        config = self._config
        shares: int = max(config["log.cleaner.threads"], 1)
        return CompactionLimits(
            map_bytes=config["log.cleaner.dedupe.buffer.size"] // shares,
            map_load_factor=config["log.cleaner.io.buffer.load.factor"],
            chunk_bytes=min(config["log.cleaner.io.buffer.size"] // shares, _MAX_CHUNK_BYTES)
            * (_BUFFERS_A_CHUNK if is_apart else 1),
            may_join_steps=config["log.cleaner.io.max.bytes.per.second"] >= _UNTHROTTLED,
        )

    @property
    def uncleanable(self) -> Collection[PartitionLog]:
        """Logs that the last attempt could not compact."""
        return self._uncleanable

    # Which log is next

    def _later_look(self) -> Later:
        return Later(max(self._config["log.cleaner.backoff.ms"], _LEAST_PERIOD_MS), self._look)

    def _look(self, now: Now) -> Effects:
        if self._is_stopped:
            return ()
        return [InSlices("kafka-log-cleaner", self._find_due(now), self._looked)]

    def _looked(self, now: Now) -> Effects:
        effects: Effects = ()
        try:
            effects = self._begin_due(now)
        except Exception:
            logger.exception("Beginning to compact failed")
        return [*effects, self._later_look()]

    def _find_due(self, now: Now) -> Task[None]:
        logs = tuple(self._log_dirs.logs().values())
        if self._uncleanable:
            self._uncleanable = {log: self._uncleanable[log] for log in logs if log in self._uncleanable}
        if self._lost:
            self._lost.intersection_update(logs)
        found = []
        for log in logs:
            candidate = self._candidate(log, now)
            if candidate is not None:
                found.append(candidate)
            yield None
        self._due = sorted(found, key=lambda candidate: candidate.ratio)

    def _candidate(self, log: PartitionLog, now: Now) -> Cleanable | None:
        """What there is to compact of a log, if it is due and may be compacted now."""
        if not log.config.cleanup_compact or log.offline is not None or self._is_moving(log):
            return None
        if self._uncleanable.get(log, now.ms) > now.ms or any(compaction.log is log for compaction in self._running):
            return None
        try:
            candidate = cleanable(log, now.wall_ms)
        except OSError as error:
            log.availability.fail(error, "looking for what to compact of")
            return None
        return candidate if candidate.is_due else None

    def _begin_due(self, now: Now) -> Effects:
        """Begin with the dirtiest logs of the last look, as many as may be compacted at a time."""
        effects: list[InSlices | Later | RunBeside] = []
        while self._due and len(self._running) < self._config["log.cleaner.threads"] and not self._is_stopped:
            candidate = self._candidate(self._due.pop().log, now)
            if candidate is not None:
                effects += self._begin(candidate, now)
        return effects

    def _is_moving(self, log: PartitionLog) -> bool:
        """Whether a log is on its way to another log dir: what was copied must not change."""
        return self._log_dirs.moves.future(log.topic_partition) is not None

    # One compaction

    def _begin(self, found: Cleanable, now: Now) -> Effects:
        log = found.log
        is_large = found.clean_bytes + found.dirty_bytes >= _LEAST_WORKER_BYTES
        start_worker = self._start_worker if is_large else None
        try:
            compaction = Compaction(
                log,
                found.first_dirty_offset,
                found.upto_offset,
                self._limits(is_apart=start_worker is not None),
                now.wall_ms,
                start_worker,
            )
        except KafkaError as error:
            self._mark_uncleanable(log, error, now)
            return ()
        self._running[compaction] = False
        return self._step(compaction, now)

    def _may_go_on(self, compaction: Compaction) -> bool:
        return not self._is_stopped and compaction.is_possible() and not self._is_moving(compaction.log)

    def _step(self, compaction: Compaction, now: Now) -> Effects:
        if compaction not in self._running:
            return ()
        if not self._may_go_on(compaction):
            self._abandon(compaction)
            return ()
        self._running[compaction] = True
        began = _StepBegan(now.ms, self._loop_worked_ms(), compaction.bytes_read + compaction.bytes_written)
        return [RunBeside(compaction.step, partial(self._stepped, compaction, began))]

    def _stepped(self, compaction: Compaction, began: "_StepBegan", error: BaseException | None, now: Now) -> Effects:
        """A step has ended: swap segments, finish, or rest until the next step."""
        self._running[compaction] = False
        if isinstance(error, WorkerLostError):
            return self._begin_again(compaction, error, now)
        if error is not None:
            self._failed(compaction, error, now)
            return ()
        if not self._may_go_on(compaction):
            self._abandon(compaction)
            return ()
        try:
            if compaction.wants_swap:
                compaction.swap(now.wall_ms)
            elif compaction.outcome is not None:
                return self._finish(compaction, compaction.outcome, now)
        except KafkaError as failure:  # its log dir is offline
            logger.error("%s", failure)
            self._running.pop(compaction, None)
            return ()
        return [Later(self._rest_ms(compaction, began, now), partial(self._step, compaction))]

    def _rest_ms(self, compaction: Compaction, began: "_StepBegan", now: Now) -> int:
        """How long a compaction rests after a step.

        With 0 the event loop still does all that waits for it first."""
        took_ms = now.ms - began.ms
        size_bytes = compaction.bytes_read + compaction.bytes_written - began.size_bytes
        others_ms = 0 if compaction.is_apart else round(2 * (self._loop_worked_ms() - began.loop_worked_ms))
        return max(min(took_ms, others_ms), self._throttled_ms(size_bytes) - took_ms, 0)

    def _throttled_ms(self, size_bytes: int) -> int:
        """How long this many bytes must take for all compactions to keep to
        log.cleaner.io.max.bytes.per.second."""
        bytes_per_s: float = self._config["log.cleaner.io.max.bytes.per.second"]
        return int(1000 * size_bytes * len(self._running) / bytes_per_s)

    def _finish(self, compaction: Compaction, outcome: CompactionOutcome, now: Now) -> Effects:
        del self._running[compaction]
        log = compaction.log
        self._lost.discard(log)
        self._log_dirs.compacted(log, outcome.end_offset)
        if self._uncleanable.pop(log, None) is not None:
            logger.info("%s can be compacted again", log.topic_partition)
        logger.info(
            "Compacted %s up to offset %d: %d bytes read, %d written",
            log.topic_partition,
            outcome.end_offset,
            compaction.bytes_read,
            compaction.bytes_written,
        )
        if outcome.unreadable_count:
            logger.warning(
                "%s: %d batches that cannot be read stay as they are, among them: %s",
                log.topic_partition,
                outcome.unreadable_count,
                "; ".join(outcome.unreadable),
            )
        return self._begin_next(log, now)

    def _begin_next(self, log: PartitionLog, now: Now) -> Effects:
        """A log was left. It may be due again, in place of the next one if it is dirtier."""
        candidate = None if self._is_stopped else self._candidate(log, now)
        if candidate is not None:
            insort(self._due, candidate, key=lambda found: found.ratio)
        return self._begin_due(now)

    def _failed(self, compaction: Compaction, error: BaseException, now: Now) -> None:
        """A step failed. That is no error if the log was truncated or deleted meanwhile."""
        log = compaction.log
        is_error = compaction.is_possible()
        self._abandon(compaction)
        if not is_error:
            return
        if isinstance(error, OSError):
            log.availability.fail(error, "compacting")
        else:
            self._mark_uncleanable(log, error, now)

    def _begin_again(self, compaction: Compaction, error: WorkerLostError, now: Now) -> Effects:
        """A process could not be started: go on without, and start no others.

        Or one was lost: try it with another, once."""
        log = compaction.log
        self._abandon(compaction)
        if self._is_stopped:
            return ()
        if isinstance(error, NoWorkerError):
            if self._start_worker is not None:
                self._start_worker = None
                logger.warning("Logs are compacted in threads until this broker is started again: %s", error)
        elif log in self._lost:
            self._mark_uncleanable(log, error, now)
        else:
            self._lost.add(log)
            logger.warning("The compaction of %s begins again in another process: %s", log.topic_partition, error)
        return self._begin_next(log, now)

    def _abandon(self, compaction: Compaction) -> None:
        self._running.pop(compaction, None)
        try:
            compaction.abandon()
        except OSError as error:
            if compaction.log.offline is None:
                compaction.log.availability.fail(error, "removing files of a compaction of")

    def _mark_uncleanable(self, log: PartitionLog, error: BaseException, now: Now) -> None:
        is_known = isinstance(error, (CorruptDataError, KafkaError, WorkerLostError))
        logger.log(
            logging.WARNING if log in self._uncleanable else logging.ERROR,
            "%s is uncleanable, and is left as it is. The next attempt to compact it is in %d minutes: %s",
            log.topic_partition,
            _UNCLEANABLE_PAUSE_MS // 60_000,
            error,
            exc_info=None if is_known or log in self._uncleanable else error,
        )
        self._uncleanable[log] = now.ms + _UNCLEANABLE_PAUSE_MS
