"""Which fetch copies a partition, and what follows when its source cannot be reached.

Kafka: AbstractFetcherManager.

There are two fetches for each broker that leads partitions of ours. Producers with acks -1
wait for replicas in sync, and must not wait for one that copies gigabytes. So partitions that
are behind what is committed have a fetch of their own, which asks for little at a time. A
partition that falls behind goes there at once; one that has caught up comes back before the
next request for those in sync.

`replication.service` runs the fetches.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.replication.fetcher import Fetcher
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import LeadershipOutcome

__all__ = ["FetchLanes", "FetchSources", "SourceStatus", "Wakeup"]

_FIRST_BACKOFF_MS = 20


class Wakeup(NamedTuple):
    """A fetcher has something new to ask for: with its next request, or ``at_once``,
    without waiting for an answer."""

    fetcher: Fetcher
    at_once: bool


class FetchLanes:
    """The fetcher for partitions that are in sync with one source and, once there are any, the
    fetcher for those that are behind."""

    def __init__(self, make: Callable[[bool], Fetcher]) -> None:
        """``make(for_in_sync)`` makes a fetcher."""
        self._make = make
        self.in_sync = make(True)
        self._behind: Fetcher | None = None

    @property
    def fetchers(self) -> list[Fetcher]:
        """One or both."""
        return [self.in_sync] if self._behind is None else [self.in_sync, self._behind]

    def follow(self, partition: Partition) -> Wakeup:
        """Copy a partition; the first answer shows whether it is behind."""
        self.unfollow(partition.topic_partition)
        self.in_sync.follow(partition)
        return Wakeup(self.in_sync, at_once=True)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Copy a partition no longer."""
        for fetcher in self.fetchers:
            fetcher.unfollow(topic_partition)

    def must_exchange(self, fetcher: Fetcher) -> bool:
        """Whether `exchange` has something to do."""
        return any(each.has_leaving for each in (self.fetchers if fetcher is self.in_sync else (fetcher,)))

    def exchange(self, fetcher: Fetcher) -> Task[Wakeup | None]:
        """A fetcher is between two fetches: move what belongs to the other one.

        Roles may change between two partitions."""
        in_sync, behind = self.in_sync, self._behind
        if fetcher is not in_sync:
            return Wakeup(in_sync, at_once=False) if fetcher.has_leaving else None
        fallen = in_sync.leaving()
        if fallen and behind is None:
            behind = self._behind = self._make(False)
        if behind is None:
            return None
        caught_up = behind.leaving()
        is_idle = len(caught_up) == len(behind)
        for source, target, moved in ((behind, in_sync, caught_up), (in_sync, behind, fallen)):
            for topic_partition in moved:
                yield None
                if topic_partition in source:
                    target.take_over(source, topic_partition)
        return Wakeup(behind, at_once=is_idle) if fallen else None


class FetchSources:
    """The broker from which each partition is copied."""

    def __init__(self, make: Callable[[bool], Fetcher]) -> None:
        """``make(for_in_sync)`` makes a fetcher."""
        self._make = make
        self._sources: dict[TopicPartition, int] = {}
        self.lanes: dict[int, FetchLanes] = {}
        """By source. For reading."""

    def roles_changed(self, outcome: LeadershipOutcome) -> dict[int, Wakeup]:
        """Fetch for the followers, and stop where this broker leads or has no replica.

        Returns what to wake, by source."""
        for topic_partition in outcome.stopped:
            self._leave(topic_partition)
        for partition in outcome.gained:
            self._leave(partition.topic_partition)
        wakeups: dict[int, Wakeup] = {}  # in order: a simulated run must not depend on addresses
        for partition in outcome.following:
            topic_partition, source = partition.topic_partition, partition.leader_id
            if self._sources.get(topic_partition, source) != source:
                self._leave(topic_partition)
            if source < 0:
                self._leave(topic_partition)
                continue
            self._sources[topic_partition] = source
            if source not in self.lanes:
                self.lanes[source] = FetchLanes(self._make)
            wakeups[source] = self.lanes[source].follow(partition)
        return wakeups

    def _leave(self, topic_partition: TopicPartition) -> None:
        source = self._sources.pop(topic_partition, None)
        if source is not None:
            self.lanes[source].unfollow(topic_partition)


class SourceStatus:
    """Whether a source can be reached, by one of the connections to it, and how long
    to wait after a failure."""

    def __init__(self, max_backoff_ms: int) -> None:
        self._max_backoff_ms = max(max_backoff_ms, _FIRST_BACKOFF_MS)
        self.backoff_ms = 0
        """How long to wait before the next request; 0 after an answer."""
        self.is_unreachable = False

    def succeeded(self) -> None:
        """A request was answered."""
        self.backoff_ms = 0

    def failed(self) -> None:
        """A request failed: wait twice as long as the last time."""
        self.backoff_ms = min(max(2 * self.backoff_ms, _FIRST_BACKOFF_MS), self._max_backoff_ms)

    def connection_broke(self) -> bool:
        """Returns whether metadata must show clients no leader there: at the first break
        since the source was reached."""
        is_first = not self.is_unreachable
        self.is_unreachable = True
        return is_first

    def connected(self) -> bool:
        """Returns whether the source had been unreachable."""
        was_unreachable = self.is_unreachable
        self.is_unreachable = False
        return was_unreachable
