"""Does sliced work, and what it wants beside the loop, in the caller's thread."""

from collections.abc import Callable

from barnabas.base.slices import in_this_thread

__all__ = ["finish", "thread_at_once"]

finish = in_this_thread


def thread_at_once(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    """An `InThread` that works in the caller's thread."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)
