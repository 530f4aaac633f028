"""Logs of events that clients cause, so that no flood of them fills a disk or the memory.

The first of equal events is written at once. Those that follow are counted, and their number is
written at the end of the interval. While they go on, they cost one line for each interval. Events
come from sources (a client's user and address): a source that causes very many different events
has its further ones counted together, and so have the events of very many sources.

Kafka writes a line for each.
"""

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from barnabas.base.clock import CallLater, Timer

__all__ = ["SUM_INTERVAL_MS", "WITHIN_INTERVAL", "EventCount", "EventCounts", "EventLimits", "RepeatedEvents"]

SUM_INTERVAL_MS = 60_000
"""How often the lines of servers' logs say what was counted."""
WITHIN_INTERVAL = f"within {SUM_INTERVAL_MS // 1000} s"
"""How these lines say it."""

Source = TypeVar("Source", bound=Hashable)
Event = TypeVar("Event", bound=Hashable)


class EventLimits(NamedTuple):
    """What is remembered of one interval, and so what is written of it at most."""

    of_a_source: int = 100
    """Different events."""
    of_all: int = 1000
    """Different events of all sources."""
    sources: int = 200
    """Sources whose further events are counted for each of them."""


class EventCount(NamedTuple, Generic[Source, Event]):
    """How often an event came again in an interval, or how many further events came."""

    source: Source | None
    """None for all sources that are too many to be counted alone."""
    event: Event | None
    """None for events that are too many to be counted alone."""
    times: int


class EventCounts(Generic[Source, Event]):
    """Which events are written at once, and the numbers of the others."""

    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._counts: dict[tuple[Source, Event], list[int]] = {}
        """Each count in a list of its own: what is counted is looked up once."""
        self._different: dict[Source, int] = {}
        self._further: dict[Source, int] = {}
        self._rest = 0

    @property
    def is_empty(self) -> bool:
        """Whether no event is remembered, so that no interval needs an end."""
        return not self._counts and not self._further and not self._rest

    def add(self, source: Source, event: Event) -> bool:
        """Whether the event is to be written now; else it is counted."""
        key = (source, event)
        counted = self._counts.get(key)
        if counted is not None:
            counted[0] += 1
            return False
        limits, different = self._limits, self._different.get(source, 0)
        if different < limits.of_a_source and len(self._counts) < limits.of_all:
            self._counts[key] = [0]
            self._different[source] = different + 1
            return True
        if source in self._further or len(self._further) < limits.sources:
            self._further[source] = self._further.get(source, 0) + 1
        else:
            self._rest += 1
        return False

    def end_interval(self) -> list[EventCount[Source, Event]]:
        """What was counted since the last one. Events that came once are forgotten."""
        sums = [EventCount[Source, Event](*key, count) for key, (count,) in self._counts.items() if count]
        sums += [EventCount[Source, Event](source, None, count) for source, count in self._further.items()]
        if self._rest:
            sums.append(EventCount[Source, Event](None, None, self._rest))
        self._counts = {key: [0] for key, (count,) in self._counts.items() if count}
        self._different = {}
        for source, _ in self._counts:
            self._different[source] = self._different.get(source, 0) + 1
        self._further = {}
        self._rest = 0
        return sums


class RepeatedEvents(Generic[Source, Event]):
    """Sums up events in intervals that begin with the first of them."""

    def __init__(
        self,
        write: Callable[[EventCount[Source, Event]], None],
        call_later: CallLater,
        *,
        interval_ms: int = SUM_INTERVAL_MS,
        limits: EventLimits | None = None,
    ) -> None:
        """``write`` gets the events that are to be written, with how often they came again in the
        interval that has ended; 0 for one that is written at once."""
        self._write = write
        self._call_later = call_later
        self._interval_ms = interval_ms
        self._sums = EventCounts[Source, Event](limits or EventLimits())
        self._timer: Timer | None = None

    def add(self, source: Source, event: Event) -> None:
        """An event has happened."""
        if self._sums.add(source, event):
            self._write(EventCount(source, event, 0))
        if self._timer is None:
            self._timer = self._call_later(self._interval_ms, self._end_interval)

    def _end_interval(self) -> None:
        self._timer = None
        for each in self._sums.end_interval():
            self._write(each)
        if not self._sums.is_empty:
            self._timer = self._call_later(self._interval_ms, self._end_interval)

    def close(self) -> None:
        """Write what was counted so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for each in self._sums.end_interval():
                self._write(each)
