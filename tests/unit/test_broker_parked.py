"""Waiting requests: attempts after changes, time-outs, and order."""

from collections.abc import Callable, Hashable

from barnabas.broker.requests.purgatory import Parked


class ManualTimers:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self.pending: list[tuple[int, Callable[[], object]]] = []

    def __call__(self, delay_ms: int, callback: Callable[[], object]) -> "ManualTimer":
        entry = (delay_ms, callback)
        self.pending.append(entry)
        return ManualTimer(self, entry)

    def fire(self) -> None:
        due, self.pending = self.pending, []
        for _, callback in due:
            callback()


class ManualTimer:
    def __init__(self, timers: ManualTimers, entry: tuple[int, Callable[[], object]]) -> None:
        self.timers = timers
        self.entry = entry

    def cancel(self) -> None:
        if self.entry in self.timers.pending:
            self.timers.pending.remove(self.entry)


class Waits:
    """A waiter that notes its attempts and is satisfied from the given one on."""

    def __init__(self, satisfied_at: int = 1) -> None:
        self.keys: list[Hashable] = []
        self.expired = 0
        self.satisfied_at = satisfied_at

    def attempt(self, key: Hashable) -> bool:
        self.keys.append(key)
        return len(self.keys) >= self.satisfied_at

    def expire(self) -> None:
        self.expired += 1


def test_a_change_gives_its_waiters_one_attempt_when_settled() -> None:
    """Changes while held are noted; settling tries each waiter of each changed key once."""
    timers = ManualTimers()
    parked = Parked(timers)
    first, other = Waits(satisfied_at=2), Waits()
    parked.park(["a"], first.attempt, first.expire, 1000)
    parked.park(["b"], other.attempt, other.expire, 1000)
    parked.hold()
    parked.changed("a")
    parked.changed("a")
    assert first.keys == []
    parked.settle()
    assert (first.keys, other.keys) == (["a"], [])
    assert len(parked) == 2


def test_a_satisfied_waiter_is_forgotten_with_its_timer() -> None:
    """After a true attempt neither changes nor time reach the waiter."""
    timers = ManualTimers()
    parked = Parked(timers)
    waits = Waits()
    parked.park(["a", "b"], waits.attempt, waits.expire, 1000)
    parked.hold()
    parked.changed("a")
    parked.changed("b")
    parked.settle()
    timers.fire()
    assert (waits.keys, waits.expired, len(parked)) == (["a"], 0, 0)


def test_a_waiter_that_is_never_satisfied_expires_once() -> None:
    """The time-out ends the wait."""
    timers = ManualTimers()
    parked = Parked(timers)
    waits = Waits(satisfied_at=99)
    parked.park(["a"], waits.attempt, waits.expire, 30)
    assert timers.pending[0][0] == 30
    timers.fire()
    parked.changed("a")
    timers.fire()
    assert (waits.keys, waits.expired) == ([], 1)


def test_a_change_outside_of_a_request_is_settled_in_the_loops_next_turn() -> None:
    """Nobody has to call settle for changes made by timers."""
    timers = ManualTimers()
    parked = Parked(timers)
    waits = Waits()
    parked.park(["a"], waits.attempt, waits.expire, 1000)
    parked.changed("a")
    assert [delay for delay, _ in timers.pending] == [1000, 0]
    timers.pending.pop()[1]()
    assert waits.keys == ["a"]


def test_a_cancelled_waiter_hears_nothing() -> None:
    """A client that went away leaves nothing behind."""
    timers = ManualTimers()
    parked = Parked(timers)
    waits = Waits()
    parked.park(["a"], waits.attempt, waits.expire, 1000).cancel()
    parked.hold()
    parked.changed("a")
    parked.settle()
    timers.fire()
    assert (waits.keys, waits.expired, len(parked)) == ([], 0, 0)


def test_what_an_attempt_changes_is_settled_too() -> None:
    """A served waiter may unblock another one."""
    parked = Parked(ManualTimers())
    second = Waits()

    def first(_: Hashable) -> bool:
        parked.changed("b")
        return True

    parked.park(["a"], first, lambda: None, 1000)
    parked.park(["b"], second.attempt, second.expire, 1000)
    parked.hold()
    parked.changed("a")
    parked.settle()
    assert second.keys == ["b"]


def test_an_attempt_that_raises_ends_like_a_time_out_and_harms_nobody_else() -> None:
    """One broken request does not take the others with it."""
    parked = Parked(ManualTimers())
    healthy, expired = Waits(), []

    def broken(_: Hashable) -> bool:
        raise RuntimeError

    parked.park(["a"], broken, lambda: expired.append(1), 1000)
    parked.park(["a"], healthy.attempt, healthy.expire, 1000)
    parked.hold()
    parked.changed("a")
    parked.settle()
    assert (healthy.keys, expired) == (["a"], [1])
