"""Compacting one log: of each key only the newest record stays (KIP-58, KIP-354, KIP-534). Kafka: `Cleaner`.

Two passes over closed segments, which are not written to any more. The first reads the keys of the dirty range, from where
the last compaction ended up to the first segment that must stay, into an `OffsetMap`; it ends early where the map is
full. The second rewrites all segments from the log's beginning to there, in groups that fit one segment, and drops each
record that the map knows a newer one for.

The work is cut into steps of at most about ``chunk_bytes`` and some thousand records. A step may run in another thread than the
log's: it reads closed segments through files of its own and writes ``.cleaned`` files; what it needs of the log's state
was taken when the `Compaction` was made. Only `swap`, a few renames, touches the log, and belongs to the log's thread, as
does `is_possible`, to be asked before each step. Apache's cleaner thread and its locks are this split of ownership here.

Offsets never change and no batch is merged with another, so followers and consumers may read on at any offset.

A batch that cannot be read (a wrong CRC, records that do not fill it, more bytes or records than a leader takes) is reported
and stays as it is; compaction continues after it. Only where a header does not say where the next batch begins is there no
way on, and the compaction fails.
"""

import logging
from collections import deque
from itertools import pairwise

from barnabas.base.processes import StartWorker, WorkerLostError
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

logger = logging.getLogger(__name__)

_WORKER = "barnabas.log.compaction.worker"


class Compaction:
    """One compaction of one log. `step` until `outcome` is there, with `swap` whenever `wants_swap`."""

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
        start_worker: StartWorker | None = None,
    ) -> None:
        """``upto_offset`` is the base offset of the first segment that stays. On the log's thread.

        With ``start_worker`` the work goes on in a process of its own, else in the thread of the steps.
        Raises `KafkaError` KAFKA_STORAGE_ERROR, or UNKNOWN_SERVER_ERROR for a damaged transaction index.
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
        """Whether the log is still what it was: not offline, deleted or cut, and the segments to come are its own."""
        log = self.log
        if log.offline is not None or log.durability.cuts != self._cuts:
            return False
        return not self._left or self._left[0] in log.segments  # the oldest are removed first

    def swap(self, now_ms: int) -> None:
        """Let the new segment take the place of its group. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
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
            self._work.close()

    def _begin(self) -> CleaningWork:
        if self._start_worker is not None:
            try:
                return self._start_worker(_WORKER, self.plan)
            except WorkerLostError as error:
                logger.warning("%s is compacted in a thread: %s", self.log.topic_partition, error)
                self._start_worker = None
        load_columns()
        from barnabas.log.compaction.cleaner import Cleaner  # with numpy

        return Cleaner(self.log.folder.files, self.plan)
