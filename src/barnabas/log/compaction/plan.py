"""What a cleaner gets, and what it reports: plain values, which may also pass to another process.

In Kafka: the arguments of `Cleaner.clean`, `LogToClean`, `CleanerStats`.
"""

from typing import NamedTuple, Protocol

from barnabas.log.names import LOG, file_name
from barnabas.log.segment.transaction_index import AbortedTransaction

__all__ = [
    "CleaningPlan",
    "CleaningWork",
    "ClosedSegment",
    "CompactionLimits",
    "CompactionOutcome",
    "ReadySegment",
    "StepReport",
]


class CompactionLimits(NamedTuple):
    """The limits of one compaction."""

    map_bytes: int
    map_load_factor: float
    chunk_bytes: int
    may_join_steps: bool = False
    """A process of its own may go on for several steps until it answers."""


class ClosedSegment(NamedTuple):
    """A segment that is not written to any more, and the offset at which the next begins."""

    base_offset: int
    end_offset: int
    size_bytes: int


class CleaningPlan(NamedTuple):
    """One compaction of one log."""

    topic_partition: str
    directory: str
    closed: tuple[ClosedSegment, ...]
    first_dirty_offset: int
    first_position: int
    """Where the batch with this offset begins in its segment."""
    upto_offset: int
    aborted: tuple[AbortedTransaction, ...]
    last_producers: tuple[tuple[int, int, int], ...]
    """For each producer its id, the last offset of its last data batch (-1: none) and its epoch."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    max_index_bytes: int
    index_interval_bytes: int
    unpacked_limit_bytes: int
    limits: CompactionLimits

    def path(self, segment: ClosedSegment, suffix: str = LOG) -> str:
        return f"{self.directory}/{file_name(segment.base_offset, suffix)}"


class ReadySegment(NamedTuple):
    """A new segment that is written and synced, under ``.cleaned`` names."""

    replaces: tuple[int, ...]
    """The base offsets of the segments whose place it takes; its own is the first."""
    suffixes: tuple[str, ...]
    """The suffixes of its files, the .log last."""
    size_bytes: int


class CompactionOutcome(NamedTuple):
    """The end of a compaction."""

    end_offset: int
    """Where the next compaction begins."""
    unreadable_count: int
    unreadable: tuple[str, ...]
    """The first batches that stay as they are because they cannot be read, and why."""


class StepReport(NamedTuple):
    """What is done after a step."""

    bytes_read: int
    bytes_written: int
    ready: ReadySegment | None = None
    """It must be swapped in before the next step."""
    outcome: CompactionOutcome | None = None
    must_wait: bool = False
    """A process must be asked for the next step, and ends here if there is no broker
    left to ask."""


class CleaningWork(Protocol):
    """A cleaning under way. In any thread, one call at a time."""

    def step(self) -> StepReport:
        """Go on for a while.

        Raises `OSError`, `CorruptDataError` or `KafkaError` for batches that cannot be
        read, and `WorkerLostError`.
        """
        ...

    def finish(self) -> None:
        """After the outcome: free what it took."""
        ...

    def close(self) -> None:
        """End it, done or not. Files that were not swapped in may be left."""
        ...
