"""How much work code does, counted in calls, of C functions too: times depend on the machine."""

import sys
from collections.abc import Callable

__all__ = ["work_of"]


def work_of(action: Callable[[], object]) -> int:
    """The number of calls that it makes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls
