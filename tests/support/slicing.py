"""Does sliced work in one go, in the caller's thread."""

from collections.abc import Callable
from typing import TypeVar

from barnabas.base.slices import Sliced

T = TypeVar("T")


def finish(work: Sliced[T]) -> T:
    """The result of the work."""
    error: Exception | None = None
    while True:
        try:
            step = next(work) if error is None else work.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        error = None
        if step is not None:
            try:
                step.work()
            except Exception as raised:
                error = raised


def at_once(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    """An `InThread` that works in the caller's thread."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)
