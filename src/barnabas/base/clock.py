"""The seam to time.

Deciding code does not hold a clock: it takes ``now_ms`` as an argument. Edges hold a `Clock` and pass the time on.
"""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Two readings of time; a simulation advances both together."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump. For timestamps that people and files see."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back. For time-outs and intervals."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
