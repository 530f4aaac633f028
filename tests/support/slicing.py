"""Does sliced work in one go, in the caller's thread."""

from collections.abc import Callable

from barnabas.base.slices import in_one_go

__all__ = ["at_once", "finish"]

finish = in_one_go


def at_once(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    """An `InThread` that works in the caller's thread."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)
