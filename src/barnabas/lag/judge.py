"""The state of a group at its partitions, by Burrow's rules, over a window of samples.

Burrow reads each commit with its time. A sample does not show when an offset was committed, and two
commits of the same offset look like none. So where Burrow sees that commits continue, this module
looks at the group's members: an offset that does not move is stalled if a member has the partition,
and stopped if none has. The other rules are Burrow's:

1. a lag of zero: well;
2. an offset that did not move over the window, without a member: stopped, unless the offset
   was the end at some time in the window. A group that had members and has none has
   stopped at once;
3. a lag that was zero at some time in the window: well;
4. an offset that went back within the window, and is still below what it was: rewinding;
5. an offset that did not move over the window: stalled;
6. a lag that never became smaller over the window: lagging;
7. otherwise well.

Rules 2, 5 and 6 need a whole window. Before, what they would decide is unknown.

The window is at least a minute and at least ten samples long (Burrow: ten commits). It must be
longer than the time between two commits: for a commit every 5 minutes, give a window of 10.

In Kafka: no counterpart; Burrow's `CachingEvaluator`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from barnabas.lag.values import LagState

__all__ = ["NOT_KNOWN", "STATES", "MemberPresence", "Movement", "SampleWindow", "judge", "movement"]

NOT_KNOWN = -1
"""Stands for an offset that is not known, or not committed."""
STATES = tuple(LagState)
"""What the numbers of `judge` mean."""

_WELL, _UNKNOWN, _LAGGING, _REWINDING, _STALLED, _STOPPED = range(len(STATES))
_Offsets = NDArray[np.int64]
_Flags = NDArray[np.bool_]
_MIN_WINDOW_MS = 60_000
_WINDOW_SAMPLES = 10


class MemberPresence(Enum):
    """What a group's members say about its partitions."""

    UNKNOWN = "unknown"
    NEVER = "never"
    """It has none, and may never have had: offsets are committed from outside."""
    LEFT = "left"
    """It had members, and has none."""
    PRESENT = "present"


class SampleWindow:
    """Samples of some partitions of a group, oldest first: at most twelve.

    Samples that are closer than a tenth of the window replace each other, but for the newest.
    """

    def __init__(self, length_ms: int) -> None:
        self.length_ms = max(length_ms, _MIN_WINDOW_MS)
        self.times_ms: list[int] = []
        self.committed: list[_Offsets] = []
        self.ends: list[_Offsets] = []

    @classmethod
    def for_interval(cls, interval_ms: int) -> "SampleWindow":
        """A window of ten samples that are taken each ``interval_ms``."""
        return cls(_WINDOW_SAMPLES * interval_ms)

    def add(self, now_ms: int, committed: _Offsets, ends: _Offsets) -> None:
        """One more sample, with `NOT_KNOWN` for what is not known; forget what is too old."""
        times = self.times_ms
        while times and now_ms <= times[-1]:
            self._drop(len(times) - 1)  # the clock was set back: the newest sample counts
        if len(times) > 1 and times[-1] - times[-2] < self.length_ms // _WINDOW_SAMPLES:
            self._drop(len(times) - 1)
        times.append(now_ms)
        self.committed.append(committed)
        self.ends.append(ends)
        while len(times) > 2 and times[1] <= now_ms - self.length_ms:
            self._drop(0)

    def _drop(self, place: int) -> None:
        del self.times_ms[place], self.committed[place], self.ends[place]

    @property
    def is_complete(self) -> bool:
        """Whether the samples span the whole length."""
        return bool(self.times_ms) and self.times_ms[-1] - self.times_ms[0] >= self.length_ms

    @property
    def span_ms(self) -> int:
        return self.times_ms[-1] - self.times_ms[0] if self.times_ms else 0

    def arrange(self, places: Sequence[int]) -> None:
        """Let the partitions be those that stood at ``places``; -1 for one that was not there."""
        index = np.array(places, dtype=np.int64)
        for columns in (self.committed, self.ends):
            columns[:] = [np.where(index < 0, NOT_KNOWN, np.append(column, NOT_KNOWN)[index]) for column in columns]

    def forget(self, which: _Flags) -> None:
        """Forget all but the newest sample of some partitions: their topic was made again."""
        for columns in (self.committed, self.ends):
            columns[:-1] = [np.where(which, NOT_KNOWN, column) for column in columns[:-1]]


def judge(window: SampleWindow, owned: _Flags, membership: MemberPresence) -> NDArray[np.int8]:
    """The state of each partition, as a number of `STATES`.

    ``owned`` says which partitions a member has.
    """
    committed, ends = np.array(window.committed), np.array(window.ends)
    known = (committed >= 0) & (ends >= 0)
    now, end = committed[-1], ends[-1]
    lag = np.maximum(ends - committed, 0)
    # A partition that came later has no whole window, though the group has.
    is_whole = known[0] & window.is_complete
    has_moved = (known & (committed != now)).any(axis=0)
    was_at_end = (known & (ends <= now)).any(axis=0)
    was_zero = (known & (lag == 0)).any(axis=0)
    has_rewound, has_shrunk = _steps(committed, lag, known)

    state = np.full(len(now), _UNKNOWN, dtype=np.int8)
    state[is_whole | has_shrunk] = _WELL
    state[is_whole & ~has_shrunk] = _LAGGING
    state[is_whole & ~has_moved] = _STALLED
    state[has_rewound] = _REWINDING
    state[was_zero] = _WELL
    if membership in (MemberPresence.NEVER, MemberPresence.PRESENT):
        state[is_whole & ~owned & ~has_moved & ~was_at_end] = _STOPPED
    if membership is MemberPresence.LEFT:
        state[~was_at_end & ~has_moved] = _STOPPED
    state[now >= end] = _WELL
    state[(now < 0) | (end < 0)] = _UNKNOWN
    return state


def _steps(committed: _Offsets, lag: _Offsets, known: _Flags) -> tuple[_Flags, _Flags]:
    """Where the offset went back and has not returned, and where the lag became smaller."""
    has_rewound = np.zeros(committed.shape[1], dtype=np.bool_)
    has_shrunk = np.zeros(committed.shape[1], dtype=np.bool_)
    now = committed[-1]
    before, lag_before = committed[0], np.where(known[0], lag[0], NOT_KNOWN)
    before = np.where(known[0], before, NOT_KNOWN)
    for row, lag_row, is_known in zip(committed[1:], lag[1:], known[1:], strict=True):
        has_rewound |= is_known & (row < before) & (now < before)
        has_shrunk |= is_known & (lag_before >= 0) & (lag_row < lag_before)
        before = np.where(is_known, row, before)
        lag_before = np.where(is_known, lag_row, lag_before)
    return has_rewound, has_shrunk


class Movement(NamedTuple):
    """Rates in records for each second, and seconds until the lag is zero; NaN where they are not
    known, infinity where that is never."""

    consumed_per_s: NDArray[np.float64]
    produced_per_s: NDArray[np.float64]
    catch_up_s: NDArray[np.float64]


def movement(window: SampleWindow) -> Movement:
    """How fast partitions and the group at them moved over the window.

    An offset that went back has no rate.
    """
    committed, ends = np.array(window.committed), np.array(window.ends)
    times = np.array(window.times_ms, dtype=np.float64)
    consumed, produced = _rate(times, committed), _rate(times, ends)
    lag = np.where((committed[-1] >= 0) & (ends[-1] >= 0), ends[-1] - committed[-1], NOT_KNOWN)
    gain = consumed - produced
    with np.errstate(divide="ignore", invalid="ignore"):
        catch_up = np.where(gain > 0, lag / gain, np.inf)
    catch_up[np.isnan(gain) | (lag < 0)] = np.nan
    catch_up[lag == 0] = 0.0
    return Movement(consumed, produced, catch_up)


def _rate(times_ms: NDArray[np.float64], columns: _Offsets) -> NDArray[np.float64]:
    first = (columns >= 0).argmax(axis=0)
    at = np.arange(columns.shape[1])
    passed_s = (times_ms[-1] - times_ms[first]) / 1000
    moved = columns[-1] - columns[first, at]
    is_known = (columns[-1] >= 0) & (columns[first, at] >= 0) & (passed_s > 0) & (moved >= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(is_known, moved / passed_s, np.nan)
