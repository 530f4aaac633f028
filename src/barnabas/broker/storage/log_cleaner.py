"""When a broker compacts which log, and how fast: what Apache's cleaner threads do, without blocking anything.

``log.cleaner.threads`` logs are compacted at a time, the dirtiest first. A compaction advances by steps that run beside
the event loop; between them the logs' state is looked at, and new segments are swapped in, on the loop. After each step
it rests: as long as the step took, so that requests get at least half of the processor, and as
``log.cleaner.io.max.bytes.per.second``, over all compactions, asks. When no log is due, ``log.cleaner.backoff.ms``
passes before the next look.

A log whose batches cannot be read is not compacted again before the next start (Apache's "uncleanable" partitions); its
records are served as ever. A disk that fails takes the log dir offline.
"""

import logging

from barnabas.base.clock import Timer
from barnabas.base.errors import CorruptDataError
from barnabas.base.threads import InThread
from barnabas.broker.requests.request import Node
from barnabas.log.compaction.cleanable import Cleanable, cleanable
from barnabas.log.compaction.compaction import Compaction, CompactionLimits
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["Compactor"]

logger = logging.getLogger(__name__)

_MAX_CHUNK_BYTES = 256 * 1024
_LEAST_PERIOD_MS = 100


class Compactor:
    """The compactions of one broker."""

    def __init__(self, node: Node, in_thread: InThread) -> None:
        self._node = node
        self._in_thread = in_thread
        self._running: dict[Compaction, Timer | None] = {}
        self._unreadable: set[PartitionLog] = set()
        self._look: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Look for the first time after log.cleaner.backoff.ms; never where log.cleaner.enable is false."""
        if self._node.settings["log.cleaner.enable"]:
            self._plan_look()

    def stop(self) -> None:
        """Nothing starts any more; a step under way may still end, and its compaction with it."""
        self._is_stopped = True
        if self._look is not None:
            self._look.cancel()
        for compaction, timer in tuple(self._running.items()):
            if timer is not None:
                timer.cancel()
                self._abandon(compaction)

    def _limits(self) -> CompactionLimits:
        """The share of one compaction."""
        settings = self._node.settings
        shares: int = max(settings["log.cleaner.threads"], 1)
        return CompactionLimits(
            map_bytes=settings["log.cleaner.dedupe.buffer.size"] // shares,
            map_load_factor=settings["log.cleaner.io.buffer.load.factor"],
            # One buffer to read and one to write for each.
            chunk_bytes=min(settings["log.cleaner.io.buffer.size"] // shares // 2, _MAX_CHUNK_BYTES),
        )

    def _plan_look(self) -> None:
        backoff_ms = max(self._node.settings["log.cleaner.backoff.ms"], _LEAST_PERIOD_MS)
        self._look = self._node.call_later(backoff_ms, self._look_again)

    def _look_again(self) -> None:
        try:
            self.run_due()
        except Exception:
            logger.exception("Looking for logs to compact failed")
        if not self._is_stopped:
            self._plan_look()

    def run_due(self) -> None:
        """Begin with the dirtiest logs that are due, as many as may be compacted at a time."""
        threads = self._node.settings["log.cleaner.threads"]
        if len(self._running) >= threads or self._is_stopped:
            return
        now_ms = self._node.clock.wall_ms()
        due = sorted(self._due(now_ms), key=lambda found: found.ratio)
        while due and len(self._running) < threads:
            self._begin(due.pop(), now_ms)

    def _due(self, now_ms: int) -> list[Cleanable]:
        busy = {compaction.log for compaction in self._running}
        found = []
        for log in tuple(self._node.log_dirs.logs().values()):
            if not log.config.cleanup_compact or log in busy or log in self._unreadable or self._moves(log):
                continue
            try:
                candidate = cleanable(log, now_ms)
            except OSError as error:
                log.fail(error, "looking for what to compact of")
                continue
            if candidate.is_due:
                found.append(candidate)
        return found

    def _moves(self, log: PartitionLog) -> bool:
        """Whether a log is on its way to another log dir: what was copied must stay what it is."""
        return self._node.log_dirs.future(log.topic_partition) is not None

    def _begin(self, found: Cleanable, now_ms: int) -> None:
        log = found.log
        try:
            compaction = Compaction(log, found.first_dirty_offset, found.upto_offset, self._limits(), now_ms)
        except KafkaError as error:
            self._give_up(log, error)
            return
        self._step(compaction)

    def _step(self, compaction: Compaction) -> None:
        if not compaction.is_possible() or self._moves(compaction.log):
            self._abandon(compaction)
            return
        self._running[compaction] = None  # a thread is at it
        started_ms = self._node.clock.monotonic_ms()
        bytes_before = compaction.bytes_read + compaction.bytes_written

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._failed(compaction, error)
                return
            try:
                self._after_step(compaction)
            except KafkaError as failure:
                logger.error("%s", failure)
                self._running.pop(compaction, None)
                return
            if compaction in self._running:
                took_ms = self._node.clock.monotonic_ms() - started_ms
                size = compaction.bytes_read + compaction.bytes_written - bytes_before
                rest_ms = max(took_ms, self._throttled_ms(size) - took_ms, 1)
                self._running[compaction] = self._node.call_later(rest_ms, lambda: self._step(compaction))

        self._in_thread(compaction.step, done)

    def _throttled_ms(self, size_bytes: int) -> int:
        """How long so many bytes must take, so that all compactions keep to log.cleaner.io.max.bytes.per.second."""
        bytes_per_s: float = self._node.settings["log.cleaner.io.max.bytes.per.second"]
        return int(1000 * size_bytes * len(self._running) / bytes_per_s)

    def _after_step(self, compaction: Compaction) -> None:
        if self._is_stopped or not compaction.is_possible() or self._moves(compaction.log):
            self._abandon(compaction)
        elif compaction.wants_swap:
            compaction.swap(self._node.clock.wall_ms())
        elif compaction.is_done:
            del self._running[compaction]
            log = compaction.log
            self._node.log_dirs.compacted(log, compaction.end_offset)
            logger.info(
                "Compacted %s up to offset %d: %d bytes read, %d written",
                log.topic_partition,
                compaction.end_offset,
                compaction.bytes_read,
                compaction.bytes_written,
            )
            self.run_due()

    def _failed(self, compaction: Compaction, error: BaseException) -> None:
        """A step failed: on a log that was cut or deleted meanwhile that is no wonder."""
        log = compaction.log
        is_its_own_fault = compaction.is_possible()
        self._abandon(compaction)
        if not is_its_own_fault:
            return
        if isinstance(error, OSError):
            log.fail(error, "compacting")
        else:
            self._give_up(log, error)

    def _abandon(self, compaction: Compaction) -> None:
        self._running.pop(compaction, None)
        try:
            compaction.abandon()
        except OSError as error:
            if compaction.log.offline is None:
                compaction.log.fail(error, "removing files of a compaction of")

    def _give_up(self, log: PartitionLog, error: BaseException) -> None:
        self._unreadable.add(log)
        is_known = isinstance(error, (CorruptDataError, KafkaError))
        logger.error(
            "%s is not compacted any more before the next start: %s",
            log.topic_partition,
            error,
            exc_info=None if is_known else error,
        )
