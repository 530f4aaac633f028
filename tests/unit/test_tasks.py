"""Tasks: a short one is a plain call, long ones share the event loop, and the order stays."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest

from barnabas.base.task_futures import future_of, result_of
from barnabas.base.tasks import Beside, Resume, Runner, Task, done_here, in_pieces, one_by_one


class Loop:
    """Timers and threads that run when the test says so, and slices of ``steps`` steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.delays_ms: list[int] = []
        self.timers: list[Callable[[], object]] = []
        self.threads: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.runner = Runner(self, self.call_later, lambda work, done: self.threads.append((work, done)))

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


def test_work_done_here_does_in_the_callers_thread_what_it_wants_in_another() -> None:
    """With what that raises at its yield, as the runner does it."""
    log: list[str] = []

    def fail() -> None:
        raise OSError("no disk")

    def work() -> Task[int]:
        yield None
        yield Beside(lambda: log.append("made"))
        with pytest.raises(OSError, match="no disk"):
            yield Beside(fail)
        return 1

    assert done_here(work()) == 1
    assert log == ["made"]


def counting(log: list[str], name: str, steps: int) -> Task[None]:
    for step in range(steps):
        log.append(f"{name}{step}")
        yield None
    log.append(f"{name}.")


def test_short_work_is_done_when_start_returns() -> None:
    """As if it were a plain call: no timer, no turn of the loop."""
    loop, log = Loop(steps=10), []
    loop.runner.start(counting(log, "a", 3))
    assert (log, loop.timers) == (["a0", "a1", "a2", "a."], [])


def entries(log: list[str], name: str) -> list[str]:
    return [entry for entry in log if entry.startswith(name)]


def test_long_works_take_turns_and_share_one_slice_in_each_turn_of_the_loop() -> None:
    """However much waits, what else the loop serves waits for one slice only."""
    loop, log = Loop(steps=2), []
    loop.runner.start(counting(log, "a", 8))
    loop.runner.start(counting(log, "b", 8))
    assert log == ["a0", "a1", "a2", "b0", "b1", "b2"]
    before = len(log)
    while loop.timers:
        assert len(loop.timers) == 1
        loop.turn()
        assert len(log) - before <= 4
        before = len(log)
    for name in "ab":
        assert entries(log, name) == [*(f"{name}{n}" for n in range(8)), f"{name}."]
    assert log.index("b3") < log.index("a.")


def test_a_short_task_does_not_wait_behind_long_ones() -> None:
    """It is done when start returns, as if nothing waited."""
    loop, log = Loop(steps=2), []
    loop.runner.start(counting(log, "long", 8))
    loop.runner.start(counting(log, "short", 1))
    assert log[-1] == "short."


def test_tasks_that_begin_in_one_turn_beside_a_long_one_share_a_slice() -> None:
    """A thousand that arrive together do not hold the loop for a thousand slices; they begin in
    order, and the long one goes on."""
    loop, log = Loop(steps=2), []
    loop.runner.start(counting(log, "long", 40))
    for name in "abcdefgh":
        loop.runner.start(counting(log, name, 1))
    assert len(log) <= 3 + 4
    before = len(entries(log, "long"))
    while "h." not in log:
        at = len(log)
        loop.turn()
        assert len(log) - at <= 2 * 4
        assert len(entries(log, "long")) > before
        before = len(entries(log, "long"))
    begun = [entry for entry in log if entry.endswith("0") and not entry.startswith("long")]
    assert begun == [f"{name}0" for name in "abcdefgh"]


def test_a_runner_apart_does_not_wait_for_the_tasks_of_the_other() -> None:
    """What replicas copy has its turn in each turn of the loop, whatever clients ask for."""
    loop, log = Loop(steps=1), []
    apart = loop.runner.apart()
    loop.runner.start(counting(log, "client", 9))
    apart.start(counting(log, "apart", 9))
    turns = 0
    while loop.timers:
        turns += 1
        for name in ("client", "apart"):
            assert len(entries(log, name)) == 2 * turns
        loop.turn()
    assert log[-1] == "apart."


def test_a_runner_apart_is_stopped_with_the_other() -> None:
    """Nothing that a server has begun goes on behind its stop; nor does what is made after it."""
    loop, log = Loop(steps=1), []
    apart = loop.runner.apart()
    ended: list[str] = []

    def work() -> Task[None]:
        try:
            yield from counting(log, "apart", 9)
        finally:
            ended.append("apart")

    apart.start(work())
    assert ended == []
    loop.runner.stop()
    assert ended == ["apart"]
    before = list(log)
    for runner in (apart, loop.runner.apart()):
        runner.start(counting(log, "later", 0))
    while loop.timers:
        loop.turn()
    assert log == before


@pytest.mark.parametrize("step", [None, Beside(lambda: None), "an effect"])
def test_a_task_that_runs_at_a_stop_ends_at_its_next_yield(step: Beside | str | None) -> None:
    """Though its slice is not over: it may be the one that stops the server."""
    loop, log = Loop(steps=10), []

    def work() -> Generator[Any, Any, None]:
        try:
            yield None
            loop.runner.stop()
            yield step
            log.append("goes on")
        finally:
            log.append("ends")

    loop.runner.start(work(), perform=lambda effect, _: log.append(effect))
    assert log == ["ends"]
    assert (loop.threads, loop.timers) == ([], [])


def test_effects_that_are_done_at_once_hold_the_loop_for_one_slice_and_need_no_stack() -> None:
    """A task may yield thousands of them; others have their turn between them, as between other
    steps."""
    loop, log = Loop(steps=100), []

    def asking() -> Generator[int, Any, None]:
        for number in range(5000):
            outcome = yield number
            log.append(outcome)

    def perform(number: int, resume: Resume) -> None:
        resume(number, None)

    loop.runner.start(asking(), perform=perform)
    while loop.timers:
        before = len(log)
        loop.turn()
        assert 0 < len(log) - before <= 102
    assert log == list(range(5000))


def test_the_edge_that_starts_a_task_performs_its_effects() -> None:
    """The task continues with the outcome, or with what is raised at its yield, at
    once or later."""
    loop, log = Loop(steps=0), []
    asked: list[tuple[str, Resume]] = []

    def work() -> Generator[str | None, Any, None]:
        log.append((yield "read"))
        yield None
        try:
            yield "write"
        except OSError as error:
            log.append(str(error))

    loop.runner.start(work(), perform=lambda effect, resume: asked.append((effect, resume)))
    effect, resume = asked.pop()
    assert (effect, log) == ("read", [])
    resume("found", None)
    assert (asked, log) == ([], ["found"])
    loop.turn()
    effect, resume = asked.pop()
    assert effect == "write"
    resume(None, OSError("refused"))
    loop.turn()
    assert log == ["found", "refused"]


@pytest.mark.parametrize("steps", [0, 1])
def test_what_a_task_raises_goes_to_the_one_who_started_it(steps: int) -> None:
    """With what the task is about; in its first step, or later."""
    loop = Loop(steps=0)
    failures: list[tuple[str, str]] = []

    def broken() -> Task[None]:
        for _ in range(steps):
            yield None
        raise ValueError("broken")

    def failed(about: str, error: Exception) -> None:
        failures.append((about, str(error)))

    loop.runner.start(broken(), failed=failed, about="a request")
    loop.turn()
    loop.runner.lane().start(broken(), failed=failed, about="another")
    loop.turn()
    assert failures == [("a request", "broken"), ("another", "broken")]


def test_work_beside_the_loop_goes_on_with_what_the_thread_raised() -> None:
    """The generator gets the error at its yield, and may go on."""
    loop, log = Loop(steps=10), []

    def fail() -> None:
        raise OSError("no disk")

    def work() -> Task[None]:
        yield Beside(lambda: log.append("made"))
        try:
            yield Beside(fail)
        except OSError as error:
            log.append(str(error))

    loop.runner.start(work())
    assert log == []
    loop.end_thread()
    assert log == ["made"]
    loop.turn()
    loop.end_thread()
    assert log == ["made", "no disk"]


def test_a_failure_is_logged_and_ends_only_its_own_work(caplog: pytest.LogCaptureFixture) -> None:
    """Others go on."""
    loop, log = Loop(steps=0), []

    def broken() -> Task[None]:
        yield None
        raise ValueError("broken")

    loop.runner.start(broken())
    loop.runner.start(counting(log, "a", 2))
    while loop.timers:
        loop.turn()
    assert log == ["a0", "a1", "a."]
    assert "broken" in caplog.text


def test_a_stop_ends_what_waits_and_starts_nothing_more() -> None:
    """At a yield, so data is whole; a thread that runs is left to end, and its work
    ends with it."""
    loop, log = Loop(steps=0), []

    def closing(name: str, *steps: Beside | None) -> Task[None]:
        try:
            yield from steps
        finally:
            log.append(f"{name} ends")

    loop.runner.start(closing("beside", Beside(lambda: log.append("made"))))
    loop.runner.start(closing("waiting", None, None))
    loop.runner.stop()
    assert log == ["waiting ends"]
    loop.end_thread()
    assert log == ["waiting ends", "made", "beside ends"]
    loop.runner.start(counting(log, "a", 1))
    loop.turn()
    assert "a0" not in log


def test_works_in_order_do_not_overlap() -> None:
    """The next begins when the one before is done, its work beside the loop included; a
    failure does not stop them."""
    loop, log = Loop(steps=0), []
    in_order = loop.runner.lane()

    def broken() -> Task[None]:
        yield None
        raise ValueError("broken")

    def beside() -> Task[None]:
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
    """A response that is encoded at the end of a search does not double the time for
    which the loop is held."""
    loop, log = Loop(steps=4), []

    def outer() -> Task[None]:
        for step in range(3):
            log.append(f"outer{step}")
            yield None
        loop.runner.start(counting(log, "inner", 4))

    loop.runner.start(outer())
    assert log == ["outer0", "outer1", "outer2", "inner0", "inner1"]
    loop.turn()
    assert log[5:] == ["inner2", "inner3", "inner."]
    loop.runner.start(counting(log, "next", 4))
    assert log[-1] == "next.", "the slice of work that ended was shared with what came later"


class Freed:
    """Something whose end is seen."""


def test_what_is_removed_meanwhile_is_freed_when_its_turn_comes() -> None:
    """Work over thousands of logs does not hold those that are deleted until it ends, to
    free all of them at once."""
    things = {number: Freed() for number in range(4)}
    ends = [weakref.ref(thing) for thing in things.values()]
    seen = []
    for thing in one_by_one(things.values()):
        seen.append([end() is None for end in ends])
        things.clear()
        del thing
    assert seen == [[False] * 4, [True, False, False, False], [True, True, False, False], [True, True, True, False]]
    assert all(end() is None for end in ends)


def test_pieces_are_in_order_and_hold_only_what_is_still_to_come() -> None:
    """The last one may be shorter; what comes to the collection meanwhile is not in them."""
    things = {number: Freed() for number in range(5)}
    first = weakref.ref(things[0])
    assert [len(piece) for piece in in_pieces(things, 2)] == [2, 2, 1]
    assert [number for piece in in_pieces(things, 2) for number in piece] == [0, 1, 2, 3, 4]
    pieces = in_pieces(things.values(), 2)
    assert next(pieces)[0] is things[0]
    things.clear()
    assert len(next(pieces)) == 2
    assert first() is None
    assert list(in_pieces((), 2)) == []


@pytest.mark.parametrize("end", ["result", "error", "stop", "cancelled"])
def test_a_future_of_work_in_slices_ends_as_the_work_does(end: str) -> None:
    """With its result or error; it is cancelled at a stop, and the work goes on when
    the future is cancelled."""
    loop, log = Loop(steps=0), []

    def work() -> Task[int]:
        yield Beside(lambda: log.append("thread"))
        yield None
        if end == "error":
            raise OSError("the disk")
        log.append("end")
        return 1

    async def wait() -> int:
        future = future_of(loop.runner, work())
        assert not future.done()
        if end == "cancelled":
            future.cancel()
        loop.end_thread()
        if end == "stop":
            loop.runner.stop()
        loop.turn()
        assert future.done()
        return await future

    if end == "result":
        assert asyncio.run(wait()) == 1
    else:
        with pytest.raises(OSError if end == "error" else asyncio.CancelledError):
            asyncio.run(wait())
    assert log == ["thread", *(["end"] if end in ("result", "cancelled") else [])]


@pytest.mark.parametrize("end", ["result", "error", "stop", "cancelled"])
def test_a_coroutine_that_awaits_a_task_performs_its_effects_and_gets_its_result(end: str) -> None:
    """Or what it raises.

    At a stop the coroutine is cancelled; if the coroutine is cancelled, the task
    ends at its yield."""
    loop, log = Loop(steps=0), []

    def work() -> Generator[str | None, Any, int]:
        try:
            for _ in range(2):
                log.append((yield "effect"))
                yield None
            with pytest.raises(OSError, match="refused"):
                yield "refused"
            if end == "error":
                raise OSError("the disk")
            return 1
        finally:
            log.append("end")

    async def perform(effect: str) -> str:
        await asyncio.sleep(0)
        if effect == "refused":
            raise OSError(effect)
        return f"{effect} done"

    async def wait() -> int:
        awaiting = asyncio.ensure_future(result_of(loop.runner, work(), perform))
        for _ in range(20):
            await asyncio.sleep(0)
            if log and end == "stop":
                loop.runner.stop()
            elif log and end == "cancelled":
                awaiting.cancel()
            loop.turn()
        assert awaiting.done()
        return await awaiting

    if end == "result":
        assert asyncio.run(wait()) == 1
    else:
        with pytest.raises(OSError if end == "error" else asyncio.CancelledError):
            asyncio.run(wait())
    assert log == (["effect done"] * 2 if end in ("result", "error") else ["effect done"]) + ["end"]


def test_effects_that_need_not_wait_do_not_keep_others_waiting() -> None:
    """Each of them would begin another slice."""

    async def two_at_once() -> list[str]:
        loop, log = Loop(steps=1), []

        def work() -> Generator[str, None, None]:
            for number in range(6):
                log.append(str(number))
                yield "effect"

        async def perform(_: str) -> None:
            """Its outcome is there at once."""

        async def other() -> None:
            while "5" not in log:
                log.append("other")
                await asyncio.sleep(0)

        awaiting = asyncio.ensure_future(result_of(loop.runner, work(), perform))
        await other()
        await awaiting
        return log

    assert asyncio.run(two_at_once()) == ["other", "0", "1", "2", "other", "3", "4", "other", "5"]


def test_a_short_task_is_awaited_without_a_turn_of_the_loop() -> None:
    """It costs what a call costs."""

    async def two_at_once() -> list[str]:
        loop, log = Loop(steps=9), []

        async def wait() -> None:
            await result_of(loop.runner, counting(log, "a", 2))

        awaiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert awaiting.done()
        return log

    assert asyncio.run(two_at_once()) == ["a0", "a1", "a."]


@pytest.mark.parametrize("is_stopped_before", [True, False])
def test_a_future_of_work_that_a_stop_keeps_from_beginning_is_cancelled(is_stopped_before: bool) -> None:
    """It comes after the stop, or waits behind other work; who awaits it would wait for ever."""
    loop, log = Loop(steps=0), []

    async def wait() -> None:
        for name in ("other", "another"):
            loop.runner.start(counting(log, name, 2))
        if is_stopped_before:
            loop.runner.stop()
        future = future_of(loop.runner, counting(log, "late", 2))
        loop.runner.stop()
        assert future.cancelled()

    asyncio.run(wait())
    assert not any(each.startswith("late") for each in log)


def test_work_that_a_killed_loop_left_ends_in_silence() -> None:
    """Simulated servers die without a stop: what is collected later must not call a
    loop that has ended."""
    unraisable: list[object] = []

    async def begin() -> Loop:
        loop = Loop(steps=0)
        loop.runner.start(counting([], "other", 2))
        future_of(loop.runner, counting([], "late", 2)).add_done_callback(lambda _: None)
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
    few = loop.runner.lane(2)
    begun: list[int] = []
    ended: list[int] = []

    def work(number: int) -> Task[None]:
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

    def work(number: int) -> Task[None]:
        done.append(number)
        yield None

    few = loop.runner.lane(2, lambda _: room[0])
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
