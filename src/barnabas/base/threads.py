"""The seam to threads: work that waits for a disk or takes long runs beside the event
loop, and its outcome on it.

The caller makes sure that the work shares nothing with what runs at the same time.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["AtMost", "Claim", "InThread", "WorkerThread"]

InThread = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Takes what to run beside the event loop, and what to call on the loop afterwards,
with its exception or None."""


T = TypeVar("T")


class AtMost:
    """Lets ``count`` threads at a time do what takes much memory; others wait for their turn."""

    __slots__ = ("_turns",)

    def __init__(self, count: int) -> None:
        self._turns = threading.BoundedSemaphore(count)

    def run(self, work: Callable[[], T]) -> T:
        """Its result. Raises what it raises."""
        with self._turns:
            return work()


class Claim:
    """Decides between two threads which does a piece of work: the one that comes first."""

    __slots__ = ("_is_taken", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False

    def run(self, work: Callable[[], None]) -> bool:
        """Do the work, unless it was done or is no longer wanted.

        Whether it was done; raises what it raises."""
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


class WorkerThread:
    """An `InThread` with one thread, which does what it is given in order.

    For short tasks that come thousands of times a second: an executor makes two futures of
    each and wakes three locks.
    """

    def __init__(self, name: str, call_on_loop: Callable[..., object]) -> None:
        """``call_on_loop`` calls a function with its arguments on the event loop,
        from any thread."""
        self._call_on_loop = call_on_loop
        self._given: queue.SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._given.put((work, done))

    def close(self) -> None:
        """Wait until all that was given is done. Nothing may be given any more."""
        self._given.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (given := self._given.get()) is not None:
            work, done = given
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            # The loop is closed, so the outcome is of no interest any more.
            with contextlib.suppress(RuntimeError):
                self._call_on_loop(done, error)
            del given, work, done, error  # not kept until the next comes
