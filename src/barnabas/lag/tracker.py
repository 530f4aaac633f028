"""What is known of groups and partitions from one sample to the next, and the report of it.

The tracker decides what to ask for next, within bounds; an edge asks, and has the tracker learn
the answers.

In Kafka: no counterpart; Burrow's storage module (`InMemoryStorage`) keeps the same window.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from barnabas.base.ids import TopicPartition
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.lag.judge import NOT_KNOWN, STATES, MemberPresence, SampleWindow, judge, movement
from barnabas.lag.offset_times import OffsetTimes, TimeEstimate, TimePoint
from barnabas.lag.samples import ClusterSample, FoundBounds, GroupSample, WindowRecord
from barnabas.lag.values import GroupLag, LagReport, LagState, PartitionLag, TimeSource, worst

__all__ = ["LagTracker"]

_MOST_MARKERS = 16
"""So near to the end it is worth to look whether only transactions' markers follow."""
_CANDIDATES = 64
"""For each record that is fetched, so many offsets are looked at."""
_NO_TIME = TimeEstimate(None, None, TimeSource.UNKNOWN)
_NOT_WITHOUT_OFFSET = (None, None, None)


@dataclass(slots=True)
class _Group:
    """The samples of a group, and where each partition stands in them."""

    window: SampleWindow
    partitions: list[TopicPartition] = field(default_factory=list)
    newest: GroupSample | None = None


class LagTracker:
    """Samples of a cluster; not for several threads.

    ``interval_ms`` is the time between two samples, which decides how long the window is.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._groups: dict[str, _Group] = {}
        self._times: dict[TopicPartition, OffsetTimes] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._only_markers: dict[TopicPartition, dict[int, int]] = {}
        self._sample: ClusterSample | None = None

    # Samples

    def add(self, sample: ClusterSample) -> None:
        """The next look at the cluster; groups that are gone are forgotten."""
        self._sample = sample
        made_again = self._note_ends(sample.bounds)
        for group in sample.groups:
            if not group.problem:
                self._add_group(group, sample, made_again)
        present = {group.group for group in sample.groups}
        if not sample.missing:
            for gone in self._groups.keys() - present:
                del self._groups[gone]

    def _note_ends(self, bounds: Mapping[TopicPartition, FoundBounds]) -> set[TopicPartition]:
        """The partitions whose end went back: their topic was made again, or truncated."""
        made_again = set()
        for partition, found in bounds.items():
            if isinstance(found, ClientError):
                if isinstance(found, UnknownTopicError):
                    self._times.pop(partition, None)
                    self._ends.pop(partition, None)
                continue
            if found[1] < self._ends.get(partition, 0):
                made_again.add(partition)
                self._times.pop(partition, None)
            if found[1] != self._ends.get(partition):
                self._only_markers.pop(partition, None)
            self._ends[partition] = found[1]
        return made_again

    def _add_group(self, group: GroupSample, sample: ClusterSample, made_again: set[TopicPartition]) -> None:
        known = self._groups.get(group.group)
        if known is None:
            known = self._groups[group.group] = _Group(SampleWindow.for_interval(self._interval_ms))
        known.newest = group
        partitions = list(group.committed)
        if len(group.owners) > 0:
            partitions = list(dict.fromkeys([*partitions, *group.owners]))
        if partitions != known.partitions:
            partitions.sort()
            if partitions != known.partitions:
                places = {partition: place for place, partition in enumerate(known.partitions)}
                known.window.arrange([places.get(partition, -1) for partition in partitions])
                known.partitions = partitions
        count = len(partitions)
        offsets, bounds = group.committed, sample.bounds
        committed = np.fromiter((offsets.get(each, NOT_KNOWN) for each in partitions), np.int64, count)
        ends = np.fromiter((_end(bounds.get(each)) for each in partitions), np.int64, count)
        known.window.add(sample.at_ms, committed, ends)
        if made_again:
            known.window.forget(np.fromiter((each in made_again for each in partitions), np.bool_, count))

    # Questions

    def behind(self) -> dict[TopicPartition, list[int]]:
        """The partitions at which some group is behind, with the offsets of these groups."""
        found: dict[TopicPartition, set[int]] = {}
        for group in self._groups.values():
            if not group.window.times_ms:
                continue
            committed, ends = group.window.committed[-1], group.window.ends[-1]
            for place in np.flatnonzero((committed >= 0) & (committed < ends)).tolist():
                found.setdefault(group.partitions[place], set()).add(int(committed[place]))
        return {partition: sorted(offsets) for partition, offsets in found.items()}

    def questions(self, behind: Mapping[TopicPartition, list[int]], most: int) -> dict[TopicPartition, list[int]]:
        """Times for ListOffsets, up to ``most`` for each partition."""
        found = {}
        for partition, offsets in behind.items():
            times = self.times_of(partition)
            asked = times.questions(offsets, self._begin(partition), most)
            if asked:
                found[partition] = asked
        return found

    def records_wanted(self, most: int) -> list[tuple[TopicPartition, int]]:
        """Up to ``most`` offsets whose records' own timestamps are not known yet, those first
        so near to the end that only markers may follow, then those with the greatest error."""
        wanted: list[tuple[int, TopicPartition, int]] = []
        left = _CANDIDATES * most
        for partition, offsets in self.behind().items():
            times, begin, end = self.times_of(partition), self._begin(partition), self._ends[partition]
            for offset in offsets:
                if offset < begin or times.has_record(offset) or self._is_only_markers(partition, offset):
                    continue
                left -= 1
                if end - offset <= _MOST_MARKERS:
                    wanted.append((-(1 << 62), partition, offset))
                elif left > 0:
                    estimate = times.estimate(offset, begin)
                    if estimate.source is not TimeSource.RECORD:
                        error_ms = 1 << 61 if estimate.error_ms is None else estimate.error_ms
                        wanted.append((-error_ms, partition, offset))
        wanted.sort()
        return [(partition, offset) for _, partition, offset in wanted[:most]]

    def times_of(self, partition: TopicPartition) -> OffsetTimes:
        """What is known of a partition's records; what is learned is added there."""
        found = self._times.get(partition)
        if found is None:
            found = self._times[partition] = OffsetTimes()
        return found

    def learn_only_markers(self, partition: TopicPartition, offset: int, end: int) -> None:
        """From this offset to this end there are only transactions' markers."""
        self._only_markers.setdefault(partition, {})[offset] = end

    def _is_only_markers(self, partition: TopicPartition, offset: int) -> bool:
        return self._only_markers.get(partition, {}).get(offset, NOT_KNOWN) == self._ends[partition]

    # What a history keeps

    def points(self) -> dict[TopicPartition, list[TimePoint]]:
        """The points of partitions, from which times are interpolated when the records are gone."""
        return {partition: times.points for partition, times in self._times.items() if times.points}

    def restore_points(self, points: Mapping[TopicPartition, Iterable[TimePoint]]) -> None:
        """Points that an earlier process has found."""
        for partition, found in points.items():
            times = self.times_of(partition)
            for point in found:
                times.add_point(point)

    def windows(self) -> dict[str, WindowRecord]:
        """The samples of each group."""
        return {
            name: WindowRecord(
                list(group.window.times_ms),
                [(topic, number) for topic, number in group.partitions],
                [column.tolist() for column in group.window.committed],
                [column.tolist() for column in group.window.ends],
            )
            for name, group in self._groups.items()
        }

    def restore_windows(self, windows: Mapping[str, WindowRecord]) -> None:
        """Samples that an earlier process has taken."""
        for name, record in windows.items():
            group = _Group(SampleWindow.for_interval(self._interval_ms))
            group.partitions = [TopicPartition(*partition) for partition in record.partitions]
            for at_ms, committed, ends in zip(record.times_ms, record.committed, record.ends, strict=True):
                group.window.add(at_ms, np.array(committed, np.int64), np.array(ends, np.int64))
            if group.window.times_ms:
                self._groups[name] = group

    def _begin(self, partition: TopicPartition) -> int:
        found = None if self._sample is None else self._sample.bounds.get(partition)
        return found[0] if isinstance(found, tuple) else 0

    # The report

    def report(self) -> LagReport:
        """All groups of the last sample."""
        sample = self._sample
        if sample is None:
            return LagReport(0, None, ())
        groups = [self._group_lag(group, sample) for group in sample.groups]
        return LagReport(sample.at_ms, sample.cluster_id, groups, sample.missing, sample.notes)

    def _group_lag(self, group: GroupSample, sample: ClusterSample) -> GroupLag:
        known = self._groups.get(group.group)
        if group.problem or known is None:
            return GroupLag(
                group.group, group.kind, group.state, group.members, (), LagState.UNKNOWN, problem=group.problem
            )
        owned = np.fromiter((each in group.owners for each in known.partitions), np.bool_, len(known.partitions))
        if not known.partitions:
            return GroupLag(group.group, group.kind, group.state, group.members, (), LagState.UNKNOWN)
        states = judge(known.window, owned, _membership(group)).tolist()
        consumed, produced, catch_up = (_known(column.tolist()) for column in movement(known.window))
        parts = []
        for place, partition in enumerate(known.partitions):
            rates = consumed[place], produced[place], catch_up[place]
            parts.append(self._partition_lag(partition, group, sample, STATES[states[place]], rates))
        state = worst({part.state for part in parts})
        return GroupLag(group.group, group.kind, group.state, group.members, parts, state)

    def _partition_lag(
        self,
        partition: TopicPartition,
        group: GroupSample,
        sample: ClusterSample,
        state: LagState,
        rates: tuple[float | None, float | None, float | None],
    ) -> PartitionLag:
        committed = group.committed.get(partition)
        owner = group.owners.get(partition)
        found = sample.bounds.get(partition)
        topic, number = partition
        if not isinstance(found, tuple):
            problem = "its end is not known" if found is None else _words(found)
            return PartitionLag(
                topic, number, committed, None, None, None, None, None, TimeSource.UNKNOWN, None,
                *_NOT_WITHOUT_OFFSET, LagState.WELL if _is_deleted(found) else LagState.UNKNOWN, owner, problem,
            )  # fmt: skip
        begin, end = found
        if committed is None or committed > end:
            problem = (
                "" if committed is None else f"offset {committed} is beyond the end {end}: was the topic made again?"
            )
            return PartitionLag(
                topic, number, committed, begin, end, None, None, None, TimeSource.UNKNOWN, None,
                *_NOT_WITHOUT_OFFSET, LagState.UNKNOWN, owner, problem,
            )  # fmt: skip
        lag = group.lags.get(partition, end - committed)
        problem = "" if committed >= begin else f"records {committed} to {begin - 1} are gone unread"
        only_markers = lag > 0 and self._is_only_markers(partition, committed)
        if lag == 0 or only_markers:
            return PartitionLag(
                topic, number, committed, begin, end, lag, 0, None, TimeSource.RECORD, 0,
                rates[0], rates[1], 0.0, LagState.WELL, owner, problem, only_markers,
            )  # fmt: skip
        times = self._times.get(partition)
        newest = None if times is None else times.newest_ms
        estimate = _NO_TIME if times is None or newest is None else times.estimate(committed, begin)
        oldest = estimate.timestamp_ms
        lag_ms = None if oldest is None or newest is None else max(0, newest - oldest)
        return PartitionLag(
            topic, number, committed, begin, end, lag, lag_ms, oldest, estimate.source, estimate.error_ms,
            *rates, state, owner, problem,
        )  # fmt: skip


def _end(found: FoundBounds | None) -> int:
    return found[1] if isinstance(found, tuple) else NOT_KNOWN


def _known(column: Iterable[float]) -> list[float | None]:
    """None for NaN, and for infinity."""
    return [value if value - value == 0 else None for value in column]


def _membership(group: GroupSample) -> MemberPresence:
    if group.members is None:
        return MemberPresence.UNKNOWN
    if group.members:
        return MemberPresence.PRESENT
    return MemberPresence.LEFT if group.protocol_type else MemberPresence.NEVER


def _is_deleted(found: FoundBounds | None) -> bool:
    return isinstance(found, UnknownTopicError)


def _words(error: ClientError) -> str:
    return "the topic does not exist" if isinstance(error, UnknownTopicError) else str(error)
