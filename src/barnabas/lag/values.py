"""Lag as values: of a partition, of a group, of all groups at one time.

In Kafka: the rows of `ConsumerGroupCommand`. The states are those of Burrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from barnabas.base.ids import TopicPartition

__all__ = ["GroupKind", "GroupLag", "LagReport", "LagState", "PartitionLag", "TimeSource", "worst"]


class LagState(StrEnum):
    """The state of a group at a partition, from good to bad, by Burrow's rules.

    The names in brackets are Burrow's.
    """

    WELL = "well"
    """It was at the end, or catches up (OK)."""
    UNKNOWN = "unknown"
    """Too few samples, or no committed offset (OK, as Burrow has it)."""
    LAGGING = "lagging"
    """It moves, and the lag has not become smaller over the whole window (WARN)."""
    REWINDING = "rewinding"
    """Its offset went back within the window, and has not reached the former one (REWIND)."""
    STALLED = "stalled"
    """A member has the partition, and its offset has not moved over the whole window (STALL)."""
    STOPPED = "stopped"
    """No member has the partition, and its offset does not move (STOP)."""


_SEVERITY = {state: number for number, state in enumerate(LagState)}


def worst(states: Iterable[LagState]) -> LagState:
    """The worst of these; WELL for none."""
    return max(states, key=_SEVERITY.__getitem__, default=LagState.WELL)


class TimeSource(StrEnum):
    """How the time of a lag was found, from exact to unknown."""

    RECORD = "record"
    """The timestamps of the record that is read next, and of the last one."""
    INTERPOLATED = "interpolated"
    """Between the timestamps of two records around the offset, or between two samples of the
    end where the record is gone."""
    AT_LEAST = "at least"
    """The record is gone, and so are those around it: the first one that is still there."""
    UNKNOWN = "unknown"


class GroupKind(StrEnum):
    """The protocol of a group, as ListGroups has it (KIP-848, KIP-932, KIP-1071)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class PartitionLag(NamedTuple):
    """How far a group is behind at one partition. What is not known is None."""

    topic: str
    partition: int
    committed: int | None
    """The offset that is read next; of a share group its start offset."""
    begin: int | None
    """The first offset that is there."""
    end: int | None
    """The offset after the last record that is committed (high watermark)."""
    lag: int | None
    """In records; transactions' markers, and records that are gone, are among them."""
    lag_ms: int | None
    """The timestamp of the last record less that of the record that is read next; 0 at the end."""
    oldest_ms: int | None
    """The timestamp of the record that is read next, in ms since the epoch."""
    source: TimeSource
    error_ms: int | None
    """The most by which ``lag_ms`` may be wrong, if timestamps rise with offsets."""
    consumed_per_s: float | None
    """Records for each second of the window by which the committed offset moved."""
    produced_per_s: float | None
    catch_up_s: float | None
    """When the lag is zero at these rates; None where that is never or not known."""
    state: LagState
    owner: str | None
    """The client id of the member that has the partition."""
    problem: str
    """Why there is no lag, or what is strange about it; "" mostly."""
    is_only_markers: bool = False
    """Whether nothing but transactions' markers is left to read: no record, and no consumer may
    ever commit beyond them."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind."""

    group: str
    kind: GroupKind
    group_state: str
    """As its coordinator says it: Stable, Empty, ...; "" where that is not known."""
    members: int | None
    partitions: Sequence[PartitionLag]
    state: LagState
    since_ms: int | None = None
    """When the state began, as far as the history knows it."""
    last_zero_ms: int | None = None
    """When the lag last was zero, as far as the history knows it."""
    problem: str = ""
    """Why it could not be read, "" mostly."""

    @property
    def lag(self) -> int | None:
        """The sum over the partitions whose lag is known: too small unless `is_complete`. None if
        none is known, as where nothing is committed."""
        known = [part.lag for part in self.partitions if part.lag is not None]
        return sum(known) if known else None

    @property
    def is_complete(self) -> bool:
        """Whether the lag of each partition with a committed offset is known."""
        return not self.problem and all(
            part.lag is not None or (part.committed is None and not part.problem) for part in self.partitions
        )

    @property
    def furthest(self) -> PartitionLag | None:
        """The partition whose lag in time is the greatest; None where no time is known.

        Where the time of another one is not known, this is the least that it can be, and nothing
        if it is zero.
        """
        known = [part for part in self.partitions if part.lag_ms is not None]
        found = max(known, key=lambda part: part.lag_ms or 0, default=None)
        if found is None or all(part.lag_ms is not None or part.committed is None for part in self.partitions):
            return found
        return found._replace(source=TimeSource.AT_LEAST, error_ms=None) if found.lag_ms else None

    @property
    def consumed_per_s(self) -> float | None:
        """None where a partition could not be read."""
        return _sum(part.consumed_per_s for part in self.partitions) if self.is_complete else None

    @property
    def produced_per_s(self) -> float | None:
        """None where a partition could not be read."""
        return _sum(part.produced_per_s for part in self.partitions) if self.is_complete else None

    @property
    def never_catches_up(self) -> bool:
        """Whether the lag of a partition does not become smaller at the rates of its window."""
        return any(
            part.lag and part.catch_up_s is None and None not in (part.consumed_per_s, part.produced_per_s)
            for part in self.partitions
        )

    @property
    def catch_up_s(self) -> float | None:
        """When the last of its partitions has caught up; None where one never does, or where that
        is not known."""
        if self.lag is None or not self.is_complete:
            return None
        behind = [part.catch_up_s for part in self.partitions if part.lag]
        known = [seconds for seconds in behind if seconds is not None]
        return max(known, default=0.0) if len(known) == len(behind) else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class LagReport:
    """All groups at one time."""

    at_ms: int
    """When the cluster was asked, in ms since the epoch."""
    cluster_id: str | None
    groups: Sequence[GroupLag]
    missing: Sequence[str] = field(default=())
    """What could not be read, and why: one line each."""
    notes: Sequence[str] = field(default=())
    """What would make figures more exact, such as a right: one line each."""

    def __iter__(self) -> Iterator[GroupLag]:
        return iter(self.groups)
