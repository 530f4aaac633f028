"""Events that clients cause are summed up: no flood of them fills a disk or the memory."""

from random import Random

from barnabas.base.repeated_events import EventCount, EventCounts, EventLimits, RepeatedEvents
from support.broker import ManualClock, ManualTimers

INTERVAL_MS = 1000


class Written:
    """What was written, with the time."""

    def __init__(self, limits: EventLimits | None = None) -> None:
        self.timers = ManualTimers(ManualClock())
        self.started_ms = self.timers.clock.now_ms
        self.lines: list[tuple[int, EventCount[str, str]]] = []
        self.events = RepeatedEvents[str, str](
            lambda event: self.lines.append((self.timers.clock.now_ms - self.started_ms, event)),
            self.timers,
            interval_ms=INTERVAL_MS,
            limits=limits,
        )

    def take(self) -> list[tuple[int, EventCount[str, str]]]:
        lines, self.lines = self.lines, []
        return lines


def test_the_first_of_equal_events_is_written_at_once_and_the_number_of_the_others_later() -> None:
    """At the end of the interval that the first one began."""
    written = Written()
    for _ in range(100_000):
        written.events.add("ann", "read")
    assert written.take() == [(0, EventCount("ann", "read", 0))]
    written.timers.advance(INTERVAL_MS - 1)
    assert written.take() == []
    written.timers.advance(1)
    assert written.take() == [(INTERVAL_MS, EventCount("ann", "read", 99_999))]


def test_events_that_go_on_cost_one_line_for_each_interval() -> None:
    """After an interval without them they are new, and written at once."""
    written = Written()
    for _ in range(3):
        written.events.add("ann", "read")
        written.events.add("ann", "read")
        written.timers.advance(INTERVAL_MS)
    assert [event.times for _, event in written.take()] == [0, 1, 2, 2]
    written.timers.advance(INTERVAL_MS)
    assert written.take() == []
    assert written.events._timer is None
    written.events.add("ann", "read")
    assert [event.times for _, event in written.take()] == [0]


def test_an_event_that_came_once_is_forgotten_with_its_interval() -> None:
    """Nothing is written of it again, and nothing is waited for."""
    written = Written()
    written.events.add("ann", "read")
    written.timers.advance(INTERVAL_MS)
    assert [event.times for _, event in written.take()] == [0]
    assert written.events._timer is None


def test_further_events_of_a_source_are_counted_together() -> None:
    """A client that asks for another topic each time does not write a line for each; others
    still have their lines."""
    written = Written(EventLimits(of_a_source=3, of_all=10, sources=2))
    for number in range(1000):
        written.events.add("ann", f"read {number}")
    written.events.add("bob", "read 7")
    assert len(written.take()) == 4
    written.timers.advance(INTERVAL_MS)
    assert [event for _, event in written.take()] == [EventCount("ann", None, 997)]


def test_events_of_too_many_sources_are_counted_in_one_line() -> None:
    """Nothing that happened is left out of the numbers."""
    written = Written(EventLimits(of_a_source=1, of_all=2, sources=2))
    for number in range(1000):
        written.events.add(f"user {number}", "read")
    assert len(written.take()) == 2
    written.timers.advance(INTERVAL_MS)
    sums = [event for _, event in written.take()]
    assert sums == [EventCount("user 2", None, 1), EventCount("user 3", None, 1), EventCount(None, None, 996)]


def test_what_is_remembered_and_written_is_bounded_and_every_event_is_counted_once() -> None:
    """Whatever comes, from whomever."""
    limits = EventLimits(of_a_source=5, of_all=20, sources=4)
    for seed in range(20):
        rng, sums = Random(seed), EventCounts[int, int](limits)
        for _ in range(10):
            happened, at_once = 300, 0
            for _ in range(happened):
                at_once += sums.add(rng.randrange(30), rng.randrange(rng.choice((2, 50))))
            assert len(sums._counts) <= limits.of_all
            ended = sums.end_interval()
            assert len(ended) <= limits.of_all + limits.sources + 1
            assert at_once + sum(event.times for event in ended) == happened
            assert max(sums._different.values()) <= limits.of_a_source


def test_what_was_counted_is_written_at_the_end() -> None:
    """When the server stops; nothing comes later."""
    written = Written()
    written.events.close()
    written.events.add("ann", "read")
    written.events.add("ann", "read")
    written.events.close()
    assert [event.times for _, event in written.take()] == [0, 1]
    written.timers.advance(10 * INTERVAL_MS)
    assert written.take() == []
