"""`Deadline`: when a piece of work ends, however many brokers it asks, one after
another or at the same time.

In Kafka: `Timer`, and the `deadlineMs` of the calls of `KafkaAdminClient`.
"""

import time
from collections.abc import Callable

__all__ = ["Deadline", "sooner"]

_PATIENCE = 2 / 3  # of what is left


class Deadline:
    """A moment on the monotonic clock. Any thread may read it."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        """``seconds`` from now; ``now`` is a clock in seconds that never goes back."""
        self.length_s = max(0.0, seconds)
        self._named_s = self.length_s
        self._now = now
        self._end_s = now() + self.length_s

    def left_s(self, at_least: float = 0.0) -> float:
        """The seconds that are left.

        ``at_least`` is for a call that can still say why it has no answer after the end."""
        return max(at_least, self._end_s - self._now())

    @property
    def is_over(self) -> bool:
        return self._now() >= self._end_s

    def restart(self) -> None:
        """Begin again with the whole length."""
        self._end_s = self._now() + self.length_s

    def within(self, seconds: float) -> "Deadline":
        """The end of a step that may take ``seconds``, and never longer than this one allows."""
        left_s = self.left_s()
        step = Deadline(min(seconds, left_s), self._now)
        if seconds >= left_s:
            step._named_s = self._named_s
        return step

    def share(self, part: float) -> "Deadline":
        """The end of a step that may use this part of what is left."""
        return self.within(self.left_s() * part)

    def patience(self) -> "Deadline":
        """The end of a question that may stay without an answer: it leaves time for
        what follows."""
        return self.share(_PATIENCE)

    def __str__(self) -> str:
        """Its length, as messages name it: ``200 ms``, ``5 s``.

        A step that ends with the whole names the length of the whole."""
        length_s = self._named_s
        return f"{length_s * 1000:.0f} ms" if length_s < 1 else f"{round(length_s, 1):g} s"


def sooner(deadline: Deadline | None, seconds: float) -> Deadline:
    """The end of a step that may take ``seconds``, within a deadline where there is one."""
    return Deadline(seconds) if deadline is None else deadline.within(seconds)
