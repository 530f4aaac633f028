"""What a broker does by the clock: retention, compaction, checkpoints, syncs, idle connections.

Each job has its period and runs between requests. What waits for the disk (fsync) is handed to ``in_thread``; whoever
starts a sync or writes a checkpoint has taken its facts beforehand, so the thread shares nothing with the requests that
go on meanwhile. A job that fails is logged and runs again at its next time.
"""

import logging
from collections.abc import Callable

from barnabas.base.clock import Timer
from barnabas.base.ids import TopicPartition
from barnabas.base.threads import InThread
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.request import Node
from barnabas.broker.storage.log_cleaner import Compactor
from barnabas.log.checkpoints import HIGH_WATERMARKS, write_offsets
from barnabas.log.group_sync import Syncs
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["Upkeep"]

logger = logging.getLogger(__name__)

_FLUSH_MS = 1000
_PURGE_MS = 5000
_PRODUCERS_MS = 600_000
_IDLE_MS = 10_000
_LEAST_PERIOD_MS = 100


class Upkeep:
    """The periodic work of one broker."""

    def __init__(self, node: Node, dispatcher: Dispatcher, in_thread: InThread, syncs: Syncs) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._in_thread = in_thread
        self._compactor = Compactor(node, in_thread)
        self._timers: dict[Callable[[], None], Timer] = {}
        self._syncs = syncs
        self._checkpointing: set[str] = set()
        self._high_watermarks: dict[str, dict[TopicPartition, int]] = {}

    def start(self) -> None:
        """Begin; each job runs for the first time after its period."""
        settings = self._node.settings
        jobs: tuple[tuple[Callable[[], None], int], ...] = (
            (self.apply_retention, settings["log.retention.check.interval.ms"]),
            (self.purge, _PURGE_MS),
            (self.flush, min(_FLUSH_MS, settings["log.flush.scheduler.interval.ms"])),
            (self.checkpoint_recovery_points, settings["log.flush.offset.checkpoint.interval.ms"]),
            (self.checkpoint_start_offsets, settings["log.flush.start.offset.checkpoint.interval.ms"]),
            (self.checkpoint_high_watermarks, settings["replica.high.watermark.checkpoint.interval.ms"]),
            (self.expire_producers, _PRODUCERS_MS),
            (self.close_idle, min(_IDLE_MS, settings["connections.max.idle.ms"] // 4)),
        )
        for job, period_ms in jobs:
            self._plan(job, max(period_ms, _LEAST_PERIOD_MS))
        self._compactor.start()

    def stop(self) -> None:
        """Nothing starts any more; a sync under way may still end."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._compactor.stop()

    def _plan(self, job: Callable[[], None], period_ms: int) -> None:
        def run() -> None:
            try:
                job()
            except Exception:
                logger.exception("%s failed", job.__name__)
            if job in self._timers:
                self._plan(job, period_ms)

        self._timers[job] = self._node.call_later(period_ms, run)

    def apply_retention(self) -> None:
        """Delete what retention gives up; long polls below the new start hear of it."""
        if self._node.log_dirs.apply_retention(self._node.clock.wall_ms()):
            for partition in self._node.replicas:
                self._node.purgatory.check_and_complete(partition.name)

    def purge(self) -> None:
        """Remove deleted files whose delay is over."""
        self._node.log_dirs.purge_deleted(self._node.clock.wall_ms())

    def flush(self) -> None:
        """Sync rolled segments, and what flush.messages and flush.ms ask for."""
        now_ms = self._node.clock.wall_ms()
        for log in self._node.log_dirs.flush_due(now_ms):
            try:
                self._syncs.flush(log, include_active=log.flush_due(now_ms))
            except KafkaError:
                continue  # its dir went offline, which the owner has heard

    def checkpoint_recovery_points(self) -> None:
        self._node.log_dirs.checkpoint_recovery_points()

    def checkpoint_start_offsets(self) -> None:
        self._node.log_dirs.checkpoint_log_start_offsets()

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks of each log dir where they moved."""
        log_dirs = self._node.log_dirs
        by_dir: dict[str, dict[TopicPartition, int]] = {directory: {} for directory in log_dirs.online}
        for directory, name, log in log_dirs.stored():
            by_dir[directory][name] = log.high_watermark
        for directory, offsets in by_dir.items():
            if self._high_watermarks.get(directory) != offsets and directory not in self._checkpointing:
                self._write_high_watermarks(directory, offsets)

    def _write_high_watermarks(self, directory: str, offsets: dict[TopicPartition, int]) -> None:
        def done(error: BaseException | None) -> None:
            self._checkpointing.discard(directory)
            if error is None:
                self._high_watermarks[directory] = offsets
                return
            logger.error("The high watermarks of %s were not written: %s", directory, error)
            if isinstance(error, OSError):
                self._node.log_dirs.fail(directory, f"Error while writing {HIGH_WATERMARKS} in {directory}: {error}")

        self._checkpointing.add(directory)
        path = f"{directory}/{HIGH_WATERMARKS}"
        self._in_thread(lambda: write_offsets(self._node.files, path, offsets), done)

    def expire_producers(self) -> None:
        """Forget producers that were silent for producer.id.expiration.ms."""
        now_ms = self._node.clock.wall_ms()
        expiration_ms = self._node.settings["producer.id.expiration.ms"]
        for log in tuple(self._node.log_dirs.logs().values()):
            try:
                log.remove_expired_producers(now_ms, expiration_ms)
            except KafkaError as error:
                logger.warning("%s", error)

    def close_idle(self) -> None:
        """Close connections that were silent for connections.max.idle.ms; a negative one means never."""
        max_idle_ms = self._node.settings["connections.max.idle.ms"]
        if max_idle_ms >= 0:
            self._dispatcher.close_idle(self._node.clock.monotonic_ms(), max_idle_ms)
