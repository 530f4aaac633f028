"""Awaits work in slices: what a coroutine of an edge needs of `Slices`."""

import asyncio
from typing import TypeVar

from barnabas.base.slices import Sliced, Slices

__all__ = ["future_of"]

T = TypeVar("T")


def future_of(slices: Slices, work: Sliced[T]) -> "asyncio.Future[T]":
    """Begin work, and return a future with its result or what it raises. A stop of ``slices`` cancels the future.

    The work goes on if the future is cancelled: another may want what it changes.
    """
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def run() -> Sliced[None]:
        try:
            yield None
            result = yield from work
        except GeneratorExit:  # a stop, or nothing refers to the work of a loop that has ended
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
    slices.start(steps)
    return done
