"""Syncing one log. Kafka: UnifiedLog.flush.

A sync is prepared here, runs as a `FlushTask`, perhaps in another thread, and is given back to
`done`. `Durability` keeps how far the log is on stable storage.
"""

from barnabas.log.availability import Availability
from barnabas.log.bounds import Bounds
from barnabas.log.durability import Durability
from barnabas.log.flush_task import FlushTask
from barnabas.log.leader_epochs import LeaderEpochCache
from barnabas.log.segment.segments import Segments
from barnabas.log.settings import LogConfig

__all__ = ["Flusher"]


class Flusher:
    """The syncs of one log. One task of a log at a time, of either kind."""

    __slots__ = ("_availability", "_bounds", "_durability", "_epochs", "_segments")

    def __init__(
        self,
        segments: Segments,
        bounds: Bounds,
        durability: Durability,
        epochs: LeaderEpochCache,
        availability: Availability,
    ) -> None:
        self._segments = segments
        self._bounds = bounds
        self._durability = durability
        self._epochs = epochs
        self._availability = availability

    def is_due(self, config: LogConfig, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a sync."""
        return self._durability.is_flush_due(config, self._bounds.log_end_offset, now_ms)

    def prepare_flush(self, *, include_active: bool = True) -> FlushTask | None:
        """What must be synced so that all (or all but the active segment) is on stable storage.

        None for nothing. The task may run in another thread; give it back to `done` afterwards. A
        failed one must not run again. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        upto_offset = self._bounds.log_end_offset if include_active else self._segments.active.base_offset
        with self._availability.guard("flushing"):
            self._epochs.complete()
            return self._durability.prepare_flush(self._segments, upto_offset)

    def prepare_sync(self) -> FlushTask | None:
        """What must be synced so that no loss of power takes a record; None for nothing.

        See `prepare_flush`. Less than a flush: a producer may be waiting for it.
        """
        with self._availability.guard("flushing"):
            self._epochs.complete()
            return self._durability.prepare_sync(self._segments, self._bounds.log_end_offset)

    def done(self, task: FlushTask, now_ms: int) -> None:
        """A task has run: all below its offset is on stable storage, unless the log
        was cut since."""
        self._durability.flush_done(task, self._bounds.log_end_offset, now_ms)

    def flush(self, now_ms: int = 0, *, include_active: bool = True) -> None:
        """Sync at once, in this thread. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        task = self.prepare_flush(include_active=include_active)
        if task is not None:
            with self._availability.guard("flushing"):
                task.run()
            self.done(task, now_ms)
