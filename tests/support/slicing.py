"""What tests have in place of a pool of threads."""

from collections.abc import Callable

__all__ = ["thread_at_once"]


def thread_at_once(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    """An `InThread` that works in the caller's thread."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)
