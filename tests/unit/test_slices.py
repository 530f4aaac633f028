"""Work in slices: short work is a plain call, long work shares the event loop, and the order stays."""

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from barnabas.base.sliced_futures import future_of
from barnabas.base.slices import Beside, FewAtOnce, InOrder, Sliced, Slices, at_once, one_by_one


class Loop:
    """Timers and threads that run when the test says so, and slices of ``steps`` steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.delays_ms: list[int] = []
        self.timers: list[Callable[[], object]] = []
        self.threads: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.slices = Slices(self, self.call_later, lambda work, done: self.threads.append((work, done)))

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def time_slice(self) -> Callable[[], bool]:
        left = self.steps

        def is_over() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        return is_over

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> "Loop":
        self.delays_ms.append(delay_ms)
        self.timers.append(callback)
        return self

    def cancel(self) -> None:
        raise AssertionError("a turn is never cancelled")

    def turn(self) -> None:
        timers, self.timers = self.timers, []
        for callback in timers:
            callback()

    def end_thread(self) -> None:
        work, done = self.threads.pop(0)
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)


def test_work_that_needs_a_thread_cannot_be_done_at_once() -> None:
    """Its part in the thread would be left out."""

    def work() -> Sliced[int]:
        yield None
        yield Beside(lambda: None)
        return 1

    with pytest.raises(AssertionError):
        at_once(work())


def counting(log: list[str], name: str, steps: int) -> Sliced[None]:
    for step in range(steps):
        log.append(f"{name}{step}")
        yield None
    log.append(f"{name}.")


def test_short_work_is_done_when_start_returns() -> None:
    """As if it were a plain call: no timer, no turn of the loop."""
    loop, log = Loop(steps=10), []
    loop.slices.start(counting(log, "a", 3))
    assert (log, loop.timers) == (["a0", "a1", "a2", "a."], [])


def test_long_works_take_turns_and_each_turn_of_the_loop_has_one_slice() -> None:
    """However much waits, what else the loop serves waits for one slice only."""
    loop, log = Loop(steps=2), []
    loop.slices.start(counting(log, "a", 8))
    loop.slices.start(counting(log, "b", 8))
    assert log == ["a0", "a1", "a2"]
    before = len(log)
    while loop.timers:
        assert len(loop.timers) == 1
        loop.turn()
        assert len(log) - before <= 4
        before = len(log)
    assert [entry for entry in log if entry[0] == "a"] == [*(f"a{n}" for n in range(8)), "a."]
    assert [entry for entry in log if entry[0] == "b"] == [*(f"b{n}" for n in range(8)), "b."]
    assert log.index("b0") < log.index("a.")


def test_work_beside_the_loop_goes_on_with_what_the_thread_raised() -> None:
    """The generator gets the error at its yield, and may go on."""
    loop, log = Loop(steps=10), []

    def fail() -> None:
        raise OSError("no disk")

    def work() -> Sliced[None]:
        yield Beside(lambda: log.append("made"))
        try:
            yield Beside(fail)
        except OSError as error:
            log.append(str(error))

    loop.slices.start(work())
    assert log == []
    loop.end_thread()
    assert log == ["made"]
    loop.end_thread()
    assert log == ["made", "no disk"]


def test_a_failure_is_logged_and_ends_only_its_own_work(caplog: pytest.LogCaptureFixture) -> None:
    """Others go on."""
    loop, log = Loop(steps=0), []

    def broken() -> Sliced[None]:
        yield None
        raise ValueError("broken")

    loop.slices.start(broken())
    loop.slices.start(counting(log, "a", 2))
    while loop.timers:
        loop.turn()
    assert log == ["a0", "a1", "a."]
    assert "broken" in caplog.text


def test_a_stop_ends_what_waits_and_starts_nothing_more() -> None:
    """At a yield, so data is whole; a thread that runs is left to end, and its work ends with it."""
    loop, log = Loop(steps=0), []

    def closing(name: str, *steps: Beside | None) -> Sliced[None]:
        try:
            yield from steps
        finally:
            log.append(f"{name} ends")

    loop.slices.start(closing("beside", Beside(lambda: log.append("made"))))
    loop.slices.start(closing("waiting", None, None))
    loop.slices.stop()
    assert log == ["waiting ends"]
    loop.end_thread()
    assert log == ["waiting ends", "made", "beside ends"]
    loop.slices.start(counting(log, "a", 1))
    loop.turn()
    assert "a0" not in log


def test_works_in_order_do_not_overlap() -> None:
    """The next begins when the one before is done, its work beside the loop included; a failure does not stop them."""
    loop, log = Loop(steps=0), []
    in_order = InOrder(loop.slices)

    def broken() -> Sliced[None]:
        yield None
        raise ValueError("broken")

    def beside() -> Sliced[None]:
        log.append("asks")
        yield Beside(lambda: log.append("made"))
        log.append("goes on")

    for work in (counting(log, "a", 2), beside(), broken(), counting(log, "b", 2)):
        in_order.start(work)
    while loop.timers or loop.threads:
        if loop.threads:
            loop.end_thread()
        loop.turn()
    assert log == ["a0", "a1", "a.", "asks", "made", "goes on", "b0", "b1", "b."]
    in_order.start(counting(log, "c", 0))
    assert log[-1] == "c."


def test_work_that_other_work_starts_shares_its_slice() -> None:
    """A response that is encoded at the end of a search does not double the time for which the loop is held."""
    loop, log = Loop(steps=4), []

    def outer() -> Sliced[None]:
        for step in range(3):
            log.append(f"outer{step}")
            yield None
        loop.slices.start(counting(log, "inner", 4))

    loop.slices.start(outer())
    assert log == ["outer0", "outer1", "outer2", "inner0", "inner1"]
    loop.turn()
    assert log[5:] == ["inner2", "inner3", "inner."]
    loop.slices.start(counting(log, "next", 4))
    assert log[-1] == "next.", "the slice of work that ended was shared with what came later"


class Freed:
    """Something whose end is seen."""


def test_what_is_removed_meanwhile_is_freed_when_its_turn_comes() -> None:
    """Work over thousands of logs does not hold those that are deleted until it ends, to free all of them at once."""
    things = {number: Freed() for number in range(4)}
    ends = [weakref.ref(thing) for thing in things.values()]
    seen = []
    for thing in one_by_one(things.values()):
        seen.append([end() is None for end in ends])
        things.clear()
        del thing
    assert seen == [[False] * 4, [True, False, False, False], [True, True, False, False], [True, True, True, False]]
    assert all(end() is None for end in ends)


@pytest.mark.parametrize("end", ["result", "error", "stop", "cancelled"])
def test_a_future_of_work_in_slices_ends_as_the_work_does(end: str) -> None:
    """With its result or error; it is cancelled at a stop, and the work goes on when the future is cancelled."""
    loop, log = Loop(steps=0), []

    def work() -> Sliced[int]:
        yield Beside(lambda: log.append("thread"))
        yield None
        if end == "error":
            raise OSError("the disk")
        log.append("end")
        return 1

    async def wait() -> int:
        future = future_of(loop.slices, work())
        assert not future.done()
        if end == "cancelled":
            future.cancel()
        loop.end_thread()
        if end == "stop":
            loop.slices.stop()
        loop.turn()
        assert future.done()
        return await future

    if end == "result":
        assert asyncio.run(wait()) == 1
    else:
        with pytest.raises(OSError if end == "error" else asyncio.CancelledError):
            asyncio.run(wait())
    assert log == ["thread", *(["end"] if end in ("result", "cancelled") else [])]


@pytest.mark.parametrize("is_stopped_before", [True, False])
def test_a_future_of_work_that_a_stop_keeps_from_beginning_is_cancelled(is_stopped_before: bool) -> None:
    """It comes after the stop, or waits behind other work; who awaits it would wait for ever."""
    loop, log = Loop(steps=0), []

    async def wait() -> None:
        loop.slices.start(counting(log, "other", 2))
        if is_stopped_before:
            loop.slices.stop()
        future = future_of(loop.slices, counting(log, "late", 2))
        loop.slices.stop()
        assert future.cancelled()

    asyncio.run(wait())
    assert not any(each.startswith("late") for each in log)


def test_work_that_a_killed_loop_left_ends_in_silence() -> None:
    """Simulated servers die without a stop: what is collected later must not call a loop that has ended."""
    unraisable: list[object] = []

    async def begin() -> Loop:
        loop = Loop(steps=0)
        loop.slices.start(counting([], "other", 2))
        future_of(loop.slices, counting([], "late", 2)).add_done_callback(lambda _: None)
        return loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", unraisable.append)
        left = asyncio.run(begin())
        del left
        gc.collect()
    assert unraisable == []


def test_of_works_that_take_much_memory_few_are_under_way_and_the_others_follow_in_order() -> None:
    """The next one begins when one of them ends, also by an exception."""
    loop = Loop(1)
    few = FewAtOnce(loop.slices, loop.call_later, 2, lambda: True)
    begun: list[int] = []
    ended: list[int] = []

    def work(number: int) -> Sliced[None]:
        begun.append(number)
        for _ in range(3):
            yield None
        ended.append(number)
        if number == 1:
            raise ValueError("for the test")

    for number in range(5):
        few.start(work(number))
    while len(ended) < 5:
        assert len(begun) - len(ended) <= 2
        loop.turn()
    assert begun == ended == list(range(5))
    assert set(loop.delays_ms) == {0}


def test_works_that_take_much_memory_wait_until_there_is_room() -> None:
    """They look again some milliseconds later."""
    loop, room, done = Loop(100), [False], []

    def work(number: int) -> Sliced[None]:
        done.append(number)
        yield None

    few = FewAtOnce(loop.slices, loop.call_later, 2, lambda: room[0])
    for number in range(3):
        few.start(work(number))
    loop.turn()
    assert not done
    room[0] = True
    loop.turn()
    assert done == [0, 1, 2]
    assert set(loop.delays_ms) == {10}
    few.start(work(3))
    assert done[-1] == 3
