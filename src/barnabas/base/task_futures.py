"""Tasks on an asyncio loop: a runner for one, and what a coroutine of an edge needs
to await a task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from barnabas.base.clock import Clock
from barnabas.base.tasks import AnyTask, Perform, Resume, Runner

__all__ = ["future_of", "result_of", "runner_here"]

T = TypeVar("T")


def runner_here(clock: Clock) -> Runner:
    """A runner on the running loop. Its threads are those of the loop's executor."""
    loop = asyncio.get_running_loop()

    def in_thread(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        loop.run_in_executor(None, work).add_done_callback(lambda future: done(future.exception()))

    return Runner(clock, lambda delay_ms, work: loop.call_later(delay_ms / 1000, work), in_thread)


def future_of(runner: Runner, task: AnyTask[T]) -> "asyncio.Future[T]":
    """Begin a task, and return a future with its result or what it raises.

    A stop of ``runner`` cancels the future. The task goes on if the future is cancelled: another
    may want what it changes.
    """
    return _begin(runner, task, None)[0]


async def result_of(runner: Runner, task: AnyTask[T], perform: Callable[[Any], Awaitable[Any]] | None = None) -> T:
    """The result of a task, or what it raises; ``perform`` does its effects.

    A task whose caller is cancelled ends at its yield."""
    asked: list[tuple[Any, Resume]] = []
    is_ready: asyncio.Event | None = None

    def ask(effect: Any, resume: Resume) -> None:
        asked.append((effect, resume))
        if is_ready is not None:
            is_ready.set()

    done, steps = _begin(runner, task, ask)
    if done.done():  # as most
        return done.result()
    is_ready = asyncio.Event()
    done.add_done_callback(lambda _: is_ready.set())
    is_over = runner.time_slice()
    try:
        while not done.done():
            if not asked:
                is_ready.clear()
                await is_ready.wait()
                continue
            effect, resume = asked.pop()
            assert perform is not None, f"nothing performs {effect!r}"
            try:
                outcome = await perform(effect)
            except Exception as error:
                resume(None, error)
            else:
                resume(outcome, None)
            if is_over():  # an effect need not have waited: then each would begin another slice
                await asyncio.sleep(0)
                is_over = runner.time_slice()
        return done.result()
    finally:
        steps.close()


def _begin(runner: Runner, task: AnyTask[T], perform: Perform | None) -> "tuple[asyncio.Future[T], AnyTask[None]]":
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def run() -> AnyTask[None]:
        try:
            yield None
            result = yield from task
        except GeneratorExit:  # a stop, or nothing refers to the task of a loop that has ended
            if not done.get_loop().is_closed():
                done.cancel()
            raise
        except Exception as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    steps = run()
    next(steps)  # into its try: a generator that is closed before it has begun does not see that
    runner.start(steps, perform=perform)
    return done, steps
