"""The seam to time.

Deciding code takes ``now_ms`` as an argument. Edges hold a `Clock` and pass the time on. Only the
path of a request holds one too (dispatch, its handlers, delayed fetches), because one event
continues many requests there; a test lists these modules. What must happen later is asked for
through a `CallLater`, which an edge makes from its event loop.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas.base.tuples import new_tuple

__all__ = ["CallLater", "Clock", "Now", "SystemClock", "Timer"]


_SLICE_NS = 5_000_000


class Clock(Protocol):
    """Two readings of time, which a simulation advances together, and the length of a slice."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump. For timestamps that people and files see."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back. For timeouts and intervals."""
        ...

    def time_slice(self) -> Callable[[], bool]:
        """Begin a slice of work: a function that says whether it is over.

        See `barnabas.base.tasks`."""
        ...

    def worked_ms(self) -> float:
        """The processor time that the calling thread has used. A simulation's code uses none."""
        ...


class Now(NamedTuple):
    """Both readings, taken together: the time that an edge passes to deciding code
    that needs both."""

    ms: int
    """On the monotonic clock."""
    wall_ms: int

    @classmethod
    def of(cls, clock: Clock) -> "Now":
        now: Now = new_tuple(Now, (clock.monotonic_ms(), clock.wall_ms()))
        return now


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Forget the call; after it was made this does nothing."""
        ...


CallLater = Callable[[int, Callable[[], object]], Timer]
"""Takes a delay in milliseconds and what to call after it, once."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def time_slice(self) -> Callable[[], bool]:
        now_ns = time.perf_counter_ns
        end_ns = now_ns() + _SLICE_NS
        return lambda: now_ns() >= end_ns

    def worked_ms(self) -> float:
        return time.thread_time_ns() / 1_000_000
