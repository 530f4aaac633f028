"""The seam to threads: work that waits for a disk or takes long runs beside the event loop, and its outcome on it.

The caller makes sure that the work shares nothing with what runs at the same time.
"""

from collections.abc import Callable

__all__ = ["InThread"]

InThread = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Takes what to run beside the event loop, and what to call on the loop afterwards, with its exception or None."""
