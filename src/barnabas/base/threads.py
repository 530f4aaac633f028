"""The seam to threads: work that waits for a disk or takes long runs beside the event loop, and its outcome on it.

The caller makes sure that the work shares nothing with what runs at the same time.
"""

import threading
from collections.abc import Callable

__all__ = ["Claim", "InThread"]

InThread = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Takes what to run beside the event loop, and what to call on the loop afterwards, with its exception or None."""


class Claim:
    """Decides between two threads which does a piece of work: the one that comes first."""

    __slots__ = ("_is_taken", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False

    def run(self, work: Callable[[], None]) -> bool:
        """Do the work, unless it was done or is no longer wanted. Whether it was done; raises what it raises."""
        with self._lock:
            if self._is_taken:
                return False
            self._is_taken = True
            work()
            return True

    def take(self) -> bool:
        """Have the work not be done, or wait until it is. Returns whether it was not."""
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
            return not was_taken
