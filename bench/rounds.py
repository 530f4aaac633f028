"""Fair rounds: contestants take turns in one run until each is warm and its median is stable, on a
machine whose load is noted.

The first rounds warm up and do not count: JVMs compile, workers start, files come into memory. The
order changes with every round. A ratio is the median of the ratios of single rounds: two runs that
follow each other have about the same load of the machine.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_LEAST_ROUNDS = 5
_MOST_ROUNDS = 15
_STABLE = 0.03
"""A median is stable that the last two rounds have changed by no more than this part."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a piece of work took: on a clock, and of processors."""

    seconds: float
    cpu_s: float


class CpuClock:
    """Time, and CPU seconds of a process and its descendants, from the moment it is made."""

    def __init__(self, root: int, *, without: Collection[int] = ()) -> None:
        """``without`` are descendants that do not count, nor do their own."""
        self._root = root
        self._without = without
        self._cpu_s = self._used_s()
        self._begun = time.perf_counter()

    def taken(self) -> Taken:
        """Since the clock was made."""
        return Taken(time.perf_counter() - self._begun, self._used_s() - self._cpu_s)

    def _used_s(self) -> float:
        parents: dict[int, list[int]] = {}
        used: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                pid = int(path.parent.name)
                parents.setdefault(int(fields[1]), []).append(pid)
                used[pid] = sum(map(int, fields[11:15]))  # with those of children that ended
        total, waiting = 0, [self._root]
        while waiting:
            pid = waiting.pop()
            if pid not in self._without:
                total += used.get(pid, 0)
                waiting += parents.get(pid, [])
        return total / _TICK


@dataclass
class Turns:
    """What the rounds of all contestants took, and how busy the machine was meanwhile."""

    taken: dict[str, list[Taken]] = field(default_factory=dict)
    """By contestant, without the rounds that warmed up."""
    loads: list[float] = field(default_factory=list)
    """The machine's load average over a minute, after each round."""
    is_stable: bool = False

    def seconds(self, name: str) -> float:
        """The median."""
        return statistics.median(each.seconds for each in self.taken[name])

    def cpu_s(self, name: str) -> float:
        """The median."""
        return statistics.median(each.cpu_s for each in self.taken[name])

    def ratio(self, name: str, other: str) -> tuple[float, float]:
        """What ``other`` takes in parts of what ``name`` takes, of time and of CPU seconds:
        medians over the rounds."""
        pairs = list(zip(self.taken[name], self.taken[other], strict=True))
        by_time = statistics.median(theirs.seconds / ours.seconds for ours, theirs in pairs)
        return by_time, statistics.median(theirs.cpu_s / max(ours.cpu_s, 1 / _TICK) for ours, theirs in pairs)


def take_turns(
    contestants: Mapping[str, Callable[[], Taken]], *, warm_up: int, until_s: float, least: int = _LEAST_ROUNDS
) -> Turns:
    """Rounds until all medians are stable, or the time ``until_s`` of `time.monotonic` has come,
    but at least ``least``, above 2."""
    turns = Turns({name: [] for name in contestants})
    number = 0
    while True:
        order = list(contestants) if number % 2 == 0 else list(reversed(contestants))
        for name in order:
            taken = contestants[name]()
            if number >= warm_up:
                turns.taken[name].append(taken)
        turns.loads.append(os.getloadavg()[0])
        number += 1
        counted = number - warm_up
        if counted >= least:
            turns.is_stable = all(_is_stable([each.cpu_s for each in taken]) for taken in turns.taken.values())
            if turns.is_stable or counted >= _MOST_ROUNDS or time.monotonic() > until_s:
                return turns


def _is_stable(values: list[float]) -> bool:
    before, now = statistics.median(values[:-2]), statistics.median(values)
    return abs(now - before) <= _STABLE * max(now, 1 / _TICK)
