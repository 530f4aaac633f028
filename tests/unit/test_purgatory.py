"""Delayed operations: attempts after changes, timeouts, and order."""

import gc
import weakref
from collections.abc import Callable, Hashable

import pytest

from barnabas.broker.requests.purgatory import Purgatory


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
    """An operation that notes its attempts and completes at the given one."""

    def __init__(self, satisfied_at: int = 1) -> None:
        self.keys: list[Hashable] = []
        self.expired = 0
        self.satisfied_at = satisfied_at

    def attempt(self, key: Hashable) -> bool:
        self.keys.append(key)
        return len(self.keys) >= self.satisfied_at

    def expire(self) -> None:
        self.expired += 1


def test_a_change_gives_the_operations_of_its_key_one_attempt() -> None:
    """Changes while held are noted; then each operation of each changed key is tried once."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    first, other = Waits(satisfied_at=2), Waits()
    purgatory.watch(["a"], first.attempt, first.expire, 1000)
    purgatory.watch(["b"], other.attempt, other.expire, 1000)
    purgatory.hold()
    purgatory.check_and_complete("a")
    purgatory.check_and_complete("a")
    assert first.keys == []
    purgatory.try_complete_actions()
    assert (first.keys, other.keys) == (["a"], [])
    assert len(purgatory) == 2


def test_a_completed_operation_is_removed_with_its_timer() -> None:
    """After a true attempt neither changes nor time reach the operation."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    waits = Waits()
    purgatory.watch(["a", "b"], waits.attempt, waits.expire, 1000)
    purgatory.hold()
    purgatory.check_and_complete("a")
    purgatory.check_and_complete("b")
    purgatory.try_complete_actions()
    timers.fire()
    assert (waits.keys, waits.expired, len(purgatory)) == (["a"], 0, 0)


def test_an_operation_that_never_completes_expires_once() -> None:
    """The timeout ends the wait."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    waits = Waits(satisfied_at=99)
    purgatory.watch(["a"], waits.attempt, waits.expire, 30)
    assert timers.pending[0][0] == 30
    timers.fire()
    purgatory.check_and_complete("a")
    timers.fire()
    assert (waits.keys, waits.expired) == ([], 1)


def test_a_change_outside_of_a_request_is_handled_in_the_next_turn_of_the_loop() -> None:
    """Changes made by timers need no call of try_complete_actions."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    waits = Waits()
    purgatory.watch(["a"], waits.attempt, waits.expire, 1000)
    purgatory.check_and_complete("a")
    assert [delay for delay, _ in timers.pending] == [1000, 0]
    timers.pending.pop()[1]()
    assert waits.keys == ["a"]


def test_an_operation_completed_by_force_is_not_tried_and_does_not_expire() -> None:
    """A client that went away leaves nothing behind."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    waits = Waits()
    purgatory.watch(["a"], waits.attempt, waits.expire, 1000).force_complete()
    purgatory.hold()
    purgatory.check_and_complete("a")
    purgatory.try_complete_actions()
    timers.fire()
    assert (waits.keys, waits.expired, len(purgatory)) == ([], 0, 0)


def test_an_attempt_that_changes_a_key_has_the_operations_of_that_key_tried() -> None:
    """One completed operation may complete another one."""
    purgatory = Purgatory(ManualTimers())
    second = Waits()

    def first(_: Hashable) -> bool:
        purgatory.check_and_complete("b")
        return True

    purgatory.watch(["a"], first, lambda: None, 1000)
    purgatory.watch(["b"], second.attempt, second.expire, 1000)
    purgatory.hold()
    purgatory.check_and_complete("a")
    purgatory.try_complete_actions()
    assert second.keys == ["b"]


def test_an_attempt_that_raises_ends_like_a_time_out_and_leaves_the_others_alone() -> None:
    """One broken operation does not end the others."""
    purgatory = Purgatory(ManualTimers())
    healthy, expired = Waits(), []

    def broken(_: Hashable) -> bool:
        raise RuntimeError

    purgatory.watch(["a"], broken, lambda: expired.append(1), 1000)
    purgatory.watch(["a"], healthy.attempt, healthy.expire, 1000)
    purgatory.hold()
    purgatory.check_and_complete("a")
    purgatory.try_complete_actions()
    assert (healthy.keys, expired) == (["a"], [1])


@pytest.mark.parametrize("ending", ["changed", "expired", "abandoned"])
def test_a_completed_operation_lets_go_of_what_waited(ending: str) -> None:
    """A request and its operation know each other: they must not be left to the
    collector of garbage."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    waits = Waits()
    waits.operation = purgatory.watch(["a"], waits.attempt, waits.expire, 100)  # type: ignore[attr-defined]  # as a request has it
    reference = weakref.ref(waits)
    if ending == "changed":
        purgatory.check_and_complete("a")
        purgatory.try_complete_actions()
    elif ending == "expired":
        timers.fire()
    else:
        waits.operation.force_complete()  # type: ignore[attr-defined]  # see above
    gc.disable()
    try:
        timers.pending.clear()
        del waits
        assert reference() is None
    finally:
        gc.enable()


def test_operations_that_are_too_many_for_a_turn_are_tried_in_the_next_ones_in_order() -> None:
    """A thousand fetches wait for one partition: each is tried once, and other
    callbacks run in between."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    tried: list[int] = []

    def note(number: int) -> bool:
        tried.append(number)
        return True

    for number in range(1000):
        purgatory.watch(["a"], lambda _, number=number: note(number), lambda: None, 1000)
    purgatory.hold()
    purgatory.check_and_complete("a")
    purgatory.try_complete_actions()
    turns = 1
    while len(tried) < 1000:
        due = [callback for delay_ms, callback in timers.pending if not delay_ms]
        timers.pending = [timer for timer in timers.pending if timer[0]]
        assert len(due) == 1
        before = len(tried)
        due[0]()
        assert 0 < len(tried) - before <= 100
        turns += 1
    assert tried == list(range(1000))
    assert turns >= 10
    assert (len(purgatory), timers.pending) == (0, [])


def test_an_operation_that_ends_before_its_turn_is_not_tried() -> None:
    """Its client went away while others were tried."""
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    waiting = [Waits() for _ in range(100)]
    operations = [purgatory.watch(["a"], each.attempt, each.expire, 1000) for each in waiting]
    purgatory.check_and_complete("a")
    timers.pending = [timer for timer in timers.pending if timer[0]]
    purgatory.try_complete_actions()
    operations[-1].force_complete()
    purgatory.try_complete_actions()
    assert [len(each.keys) for each in waiting] == [1] * 99 + [0]
