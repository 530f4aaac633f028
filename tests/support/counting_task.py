"""A task for `barnabas.base.processes`: counts its steps, in another process."""

import os
import signal

__all__ = ["DIES", "begin"]

DIES = -1


class _Counting:
    def __init__(self, fails_at: int) -> None:
        self._fails_at = fails_at
        self._steps = 0

    def step(self) -> tuple[int, int]:
        self._steps += 1
        if self._fails_at == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        print("no answer")  # what libraries print must not come between
        if self._steps == self._fails_at:
            raise FileNotFoundError(2, "gone", "/a/file")
        return self._steps, os.getpid()


def begin(fails_at: int) -> _Counting:
    """Count, and fail once at this step; `DIES` ends the process in the first."""
    return _Counting(fails_at)
