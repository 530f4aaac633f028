"""One timer for all deadlines of a coordinator.

Whatever fails when a deadline has come is skipped. The other deadlines must not be forgotten with
it, and one that fails each time must not hold the loop: they are looked at again after a pause.

In Kafka: the `SystemTimerReaper` of the group coordinator, and the scheduler of the transaction
coordinator.
"""

import logging
from collections.abc import Callable

from barnabas.base.clock import CallLater, Timer

__all__ = ["DeadlineTimer"]

logger = logging.getLogger(__name__)

_PAUSE_MS = 1_000
_LATE_MS = 500


class DeadlineTimer:
    """Calls ``tick`` when a deadline has come. `set` it whenever deadlines may have changed."""

    __slots__ = (
        "_call_later",
        "_grace_ms",
        "_is_stopped",
        "_next_deadline_ms",
        "_not_before_ms",
        "_now_ms",
        "_tick",
        "_timer",
        "_timer_ms",
        "_what",
    )

    def __init__(
        self,
        what: str,
        now_ms: Callable[[], int],
        call_later: CallLater,
        next_deadline_ms: Callable[[], int | None],
        tick: Callable[[], None],
        *,
        grace_ms: int = 0,
    ) -> None:
        """``what`` has the deadlines, for the log: "groups". They are times of ``now_ms``.

        With ``grace_ms``, a process that was paused first reads for so long what has arrived
        meanwhile: the heartbeats of members that would expire."""
        self._what = what
        self._now_ms = now_ms
        self._call_later = call_later
        self._next_deadline_ms = next_deadline_ms
        self._tick = tick
        self._grace_ms = grace_ms
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._not_before_ms = 0
        """The end of the pause after an error."""
        self._is_stopped = False

    def set(self) -> None:
        """Wait for the earliest deadline."""
        due_ms = self._next_deadline_ms()
        if due_ms is None or self._is_stopped:
            return
        if self._timer is not None and self._timer_ms <= due_ms:
            return
        now_ms = self._now_ms()
        due_ms = max(due_ms, now_ms, self._not_before_ms)  # what is left of many deadlines is not late
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return  # requests must not put a tick off that is due
            self._timer.cancel()
        self._wait(now_ms, due_ms)

    def stop(self) -> None:
        """Wait no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, now_ms: int, due_ms: int) -> None:
        self._timer_ms = due_ms
        self._timer = self._call_later(due_ms - now_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        if self._grace_ms and now_ms - self._timer_ms > _LATE_MS:
            self._wait(now_ms, now_ms + self._grace_ms)
            return
        try:
            self._tick()
        except Exception:
            logger.exception("Deadlines of %s are looked at again in %d ms", self._what, _PAUSE_MS)
            self._not_before_ms = now_ms + _PAUSE_MS
        self.set()
