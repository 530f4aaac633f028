"""Tracks which part of a log is on stable storage, and what must be synced.

Kafka: UnifiedLog's recovery point and unflushed messages.

``recovery_point <= durable_offset <= log_end_offset``. Below the recovery point everything is on
stable storage, the indexes and small files too: recovery does not look there. Below the durable
offset the records are on stable storage, which is all that an acknowledgement waits for.

A sync runs as a `FlushTask`, perhaps in another thread, while the log takes appends. Whatever
changes meanwhile is not covered: each small file and each change of names is counted, and a task
covers what had been counted when it was made. A cut of the log counts too: what a task began before
a cut synced says nothing of records that were appended since.
"""

from barnabas.log.checkpoints import PARTITION_METADATA
from barnabas.log.flush_task import FlushTask, SyncCounts
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segments import Segments
from barnabas.log.settings import LogConfig

__all__ = ["Durability"]


class Durability:
    """How far one log is on stable storage."""

    __slots__ = (
        "_changes",
        "_folder",
        "_names_changed",
        "_unsynced",
        "cuts",
        "durable_offset",
        "last_flush_ms",
        "recovery_point",
    )

    def __init__(self, folder: Folder, recovery_point: int, now_ms: int) -> None:
        self._folder = folder
        self.recovery_point = recovery_point
        self.durable_offset = recovery_point
        self.last_flush_ms = now_ms
        self.cuts = 0
        """How often the log was cut at its end."""
        self._changes = 1
        self._names_changed = 1
        """When a name in the folder last changed, as counted by ``_changes``; 0 when
        all names are synced."""
        self._unsynced: dict[str, int] = {}
        """Small files by name, with the count at their last change."""

    # ---- what changed

    def file_written(self, name: str) -> None:
        """A small file of the folder was written and not synced."""
        self._changes += 1
        self._unsynced[name] = self._changes

    def names_changed(self) -> None:
        """A file in the folder was made, renamed or removed."""
        self._changes += 1
        self._names_changed = self._changes

    def cut(self, offset: int) -> None:
        """The log ends at an offset now."""
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.durable_offset = min(self.durable_offset, offset)
        self.names_changed()

    # ---- syncs

    def prepare_flush(self, segments: Segments, upto_offset: int) -> FlushTask | None:
        """The sync of everything up to an offset; None when there is nothing to sync.

        Raises `OSError`."""
        if upto_offset <= self.recovery_point:
            return None
        unflushed = segments[segments.index_of(self.recovery_point) :]
        return FlushTask.of(self._folder, unflushed, self._unsynced, upto_offset, SyncCounts(self.cuts, self._changes))

    def prepare_sync(self, segments: Segments, log_end_offset: int) -> FlushTask | None:
        """The records that must be synced, and the folder if names changed.

        None when nothing must be."""
        if log_end_offset <= self.durable_offset:
            return None
        if PARTITION_METADATA in self._unsynced:
            # The first flush: the folder itself is new.
            return self.prepare_flush(segments, log_end_offset)
        unsynced = segments[segments.index_of(self.durable_offset) :]
        return FlushTask.of_records(
            self._folder,
            unsynced,
            log_end_offset,
            SyncCounts(self.cuts, self._changes),
            names=self._names_changed > 0,
        )

    def flush_done(self, task: FlushTask, log_end_offset: int, now_ms: int) -> None:
        """A task has run: all below its offset is on stable storage, unless the log
        was cut since."""
        if task.has_names and self._names_changed <= task.counts.changes:
            self._names_changed = 0
        if task.is_full:
            self.last_flush_ms = now_ms
            self._unsynced = {name: change for name, change in self._unsynced.items() if change > task.counts.changes}
        if task.counts.cuts != self.cuts:
            return
        upto_offset = min(task.upto_offset, log_end_offset)
        self.durable_offset = max(self.durable_offset, upto_offset)
        if task.is_full:
            self.recovery_point = max(self.recovery_point, upto_offset)

    def is_flush_due(self, config: LogConfig, log_end_offset: int, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a sync."""
        unflushed = log_end_offset - self.recovery_point
        return unflushed > 0 and (unflushed >= config.flush_messages or now_ms - self.last_flush_ms >= config.flush_ms)
