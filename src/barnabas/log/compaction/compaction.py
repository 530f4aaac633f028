"""One compaction of one log: how the log and the cleaning of its segments meet.

Kafka: LogCleaner.cleanLog, LogCleanerManager.

What `Cleaner` needs of the log's state is taken when the `Compaction` is made: a `CleaningPlan` of
plain values. The cleaning advances by steps, in whatever thread calls `step`, or in a process of
its own. It reads closed segments, which do not change, through files of its own, and writes
``.cleaned`` files. Only `swap`, a few renames, touches the log, and belongs to the log's thread, as
does `is_possible`, to be asked before each step. Apache's cleaner thread and its locks are this
split of ownership here.
"""

from collections import deque
from itertools import pairwise

from barnabas.base.processes import StartProcess
from barnabas.log.append_checks import unpacked_limit_bytes
from barnabas.log.compaction.cleaned_segment import CleanedFiles, remove_cleaned
from barnabas.log.compaction.plan import (
    CleaningPlan,
    CleaningWork,
    ClosedSegment,
    CompactionLimits,
    CompactionOutcome,
    ReadySegment,
)
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.segment import Segment
from barnabas.wire.kafka.records.contents import load_columns

__all__ = ["Compaction"]

_WORKER = "barnabas.log.compaction.worker"


class Compaction:
    """One compaction of one log.

    `step` until `outcome` is there, with `swap` whenever `wants_swap`."""

    __slots__ = (
        "_cuts",
        "_left",
        "_ready",
        "_start_worker",
        "_work",
        "bytes_read",
        "bytes_written",
        "log",
        "outcome",
        "plan",
    )

    def __init__(
        self,
        log: PartitionLog,
        first_dirty_offset: int,
        upto_offset: int,
        limits: CompactionLimits,
        now_ms: int,
        start_worker: StartProcess | None = None,
    ) -> None:
        """``upto_offset`` is the base offset of the first segment that stays. On the log's thread.

        With ``start_worker`` the work goes on in a process of its own, else in the thread of
        the steps. Raises `KafkaError` KAFKA_STORAGE_ERROR, or UNKNOWN_SERVER_ERROR for a
        damaged transaction index.
        """
        self.log = log
        self._cuts = log.durability.cuts
        closed = [
            (segment, following.base_offset)
            for segment, following in pairwise(log.segments)
            if segment.base_offset < upto_offset
        ]
        self._left: deque[Segment] = deque(segment for segment, _ in closed)
        with log.availability.guard("reading the index of"):
            located = log.segments[log.segments.index_of(first_dirty_offset)].locate(first_dirty_offset)
        self.plan = CleaningPlan(
            topic_partition=str(log.topic_partition),
            directory=log.directory,
            closed=tuple(
                ClosedSegment(segment.base_offset, end_offset, segment.size) for segment, end_offset in closed
            ),
            first_dirty_offset=first_dirty_offset,
            first_position=located.position if located else 0,
            upto_offset=upto_offset,
            aborted=tuple(log.aborted_transactions(closed[0][0].base_offset, upto_offset)),
            last_producers=tuple(
                (entry.producer_id, entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
                for entry in log.producers.entries.values()
            ),
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            segment_bytes=log.config.segment_bytes,
            max_index_bytes=log.config.max_index_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            unpacked_limit_bytes=unpacked_limit_bytes(log.config),
            limits=limits,
        )
        self._start_worker = start_worker
        self._work: CleaningWork | None = None
        self._ready: ReadySegment | None = None
        self.outcome: CompactionOutcome | None = None
        self.bytes_read = 0
        self.bytes_written = 0

    # ---- on the log's thread

    @property
    def is_apart(self) -> bool:
        """Whether it leaves the interpreter to the event loop."""
        return self._start_worker is not None

    @property
    def wants_swap(self) -> bool:
        return self._ready is not None

    def is_possible(self) -> bool:
        """Whether the log is still what it was: not offline, deleted or cut, and the
        segments to come are its own."""
        log = self.log
        if log.offline is not None or log.durability.cuts != self._cuts:
            return False
        return not self._left or self._left[0] in log.segments  # the oldest are removed first

    def swap(self, now_ms: int) -> None:
        """Let the new segment take the place of its group.

        Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        ready = self._ready
        assert ready is not None
        group = [self._left.popleft() for _ in ready.replaces]
        files = CleanedFiles(
            self.log.folder.files, self.plan.directory, ready.replaces[0], ready.suffixes, ready.size_bytes
        )
        self.log.replace_segments(group, files, now_ms)
        self._ready = None

    def abandon(self) -> None:
        """Remove what was written and not swapped; the log is as it was. Raises `OSError`."""
        if self._work is not None:
            self._work.close()
        remove_cleaned(self.log.folder.files, self.plan.directory)

    # ---- in any thread, one at a time

    def step(self) -> None:
        """Go on for a while: see `CleaningWork.step`."""
        if self._work is None:
            self._work = self._begin()
        report = self._work.step()
        self.bytes_read, self.bytes_written = report.bytes_read, report.bytes_written
        self._ready, self.outcome = report.ready, report.outcome
        if report.outcome is not None:
            self._work.finish()

    def _begin(self) -> CleaningWork:
        if self._start_worker is not None:
            return self._start_worker(_WORKER, self.plan)
        load_columns()
        from barnabas.log.compaction.cleaner import Cleaner  # with numpy

        return Cleaner(self.log.folder.files, self.plan)
