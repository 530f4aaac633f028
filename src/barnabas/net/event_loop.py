"""The event loop of a server, which counts and names what holds it for more than 10 ms.

While a callback or a step of a task runs, no connection is served and no ping is answered. So each
has a budget of 10 ms. What exceeds it is counted by its place in a `LoopBudget` and logged;
servers show the counts to Prometheus, the coordination server in ``mntr`` too, and a broker logs
them when it stops. The loops made here are uvloop's, or asyncio's where there is no uvloop, with
each callback run by a function that reads the clock before and after: 0.1 us for a request. Pauses
for the collection of garbage are counted apart. Neither they nor the time for which the thread
waits for a CPU, which Linux counts, are the callback's: a busy machine makes no callback slow.
Waiting for a disk or for another thread's hold on the interpreter is, and the log line says how
much of the time was such waiting.

asyncio has such a check in its debug mode only (``slow_callback_duration``), uvloop has none.
"""

import asyncio
import contextlib
import gc
import logging
import math
import os
import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from types import CodeType
from typing import Any

from barnabas.net.process_metrics import ProcessMetrics

__all__ = [
    "BUDGET_S",
    "FrozenObjects",
    "LoopBudget",
    "SlowPlace",
    "budget_of",
    "count_after_start",
    "count_pauses",
    "limit_pauses",
    "loop_figures",
    "measured",
    "new_event_loop",
    "place_of",
]

logger = logging.getLogger(__name__)

BUDGET_S = 0.010
_SERIOUS_S = 0.050
_LOG_EVERY_S = 10.0
_MAX_PLACES = 1000
_PLACES_IN_SUMMARY = 5
_MAX_PAUSES = 64
_OLDEST = 2
_GC_THRESHOLDS = (2_000, 2, 1)
"""A collection of generation 1 walks 8,000 objects at most: 0.5 ms. After two of them comes a full
one, and what that leaves is frozen. So it walks 18,000 objects and a quarter of what the one before
left: some 4 ms, however many objects there are. With 750 in place of the 1, half a million offsets
made a pause of 287 ms (decisions.md)."""
_LOOK_EVERY_S = 10.0
_QUIET_S = 0.5
"""A loop that has worked no longer in that time is not busy."""
_MOST_LOOKS = 60
_BUSY_LIMITS = 2
_MOST_A_FREEZE = 40_000
_LEAST_FROZEN = 200_000
_BASELINE_S = 0.005
"""How old the reading of the thread's waiting time may be: its part before a slow
callback is less than that."""


class SlowPlace:
    """How often one place held the loop for too long, and for how long."""

    __slots__ = ("count", "logged_s", "total_s", "worst_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.worst_s = 0.0
        self.logged_s = -_LOG_EVERY_S

    def __repr__(self) -> str:
        return f"SlowPlace(count={self.count}, total_s={self.total_s:.3f}, worst_s={self.worst_s:.3f})"


class LoopBudget:
    """What exceeded the budget of one loop. For reading, in any thread."""

    def __init__(self) -> None:
        self.slow: dict[str, SlowPlace] = {}
        """By place: the name of a function or coroutine, its file and line, and what it served."""
        self.slow_count = 0
        self.worst_s = 0.0
        self.gc_count = 0
        """Collections that took longer than the budget."""
        self.gc_worst_s = 0.0
        self.freezes = 0
        """Full collections, each of which froze what it left."""
        self.on_slow: Callable[[str, float], None] | None = None
        """Called with the place and the seconds, for tests."""
        self.check_after_s = [0.0]
        """From when on the end of any callback calls `ended`; never while a server starts."""
        self._is_starting = False
        self._pauses: list[tuple[float, float]] = []
        self._gc_began_s = 0.0
        self._schedstat = -1
        self._ran_ns = 0
        self._waited_ns = -1

    def resume(self) -> None:
        """Count from now on: the server has started, and there are clients that could wait."""
        self._is_starting = False
        self._ran_ns, self._waited_ns = self._read_schedstat()
        self.check_after_s[0] = time.perf_counter() + _BASELINE_S

    def suspend(self) -> None:
        """Count nothing until `resume`: imports, recovery and the first connections
        keep no client waiting."""
        self._is_starting = True
        self.check_after_s[0] = math.inf

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """A collection begins or ends: see `gc.callbacks`."""
        # The time of the thread that collects: waiting for a CPU does not count as a pause.
        now_s = time.thread_time()
        if phase == "start":
            self._gc_began_s = now_s
            return
        if self._is_starting:
            return
        took_s = now_s - self._gc_began_s
        self.gc_worst_s = max(self.gc_worst_s, took_s)
        if took_s > BUDGET_S / 10:
            self._pauses.append((time.perf_counter(), took_s))
            del self._pauses[:-_MAX_PAUSES]
        if info["generation"] == _OLDEST:
            gc.freeze()  # what is left is not walked again: see `FrozenObjects`
            self.freezes += 1
        if took_s > BUDGET_S:
            self.gc_count += 1
            logger.info("Collecting garbage of generation %d took %.0f ms", info["generation"], took_s * 1000)

    def ended(self, callback: Callable[..., object], args: tuple[Any, ...], began_s: float, ended_s: float) -> None:
        """A callback has ended, `check_after_s` or later."""
        ran_ns, waited_ns = self._read_schedstat()
        took_s = ended_s - began_s
        if took_s > BUDGET_S:
            paused_s = sum(paused_s for at_s, paused_s in self._pauses if began_s <= at_s <= ended_s)
            took_s -= paused_s
            took_s -= 0 if self._waited_ns < 0 else (waited_ns - self._waited_ns) / 1e9
            if took_s > BUDGET_S:
                worked_s = (ran_ns - self._ran_ns) / 1e9 - paused_s if ran_ns and self._waited_ns >= 0 else took_s
                self._exceeded(callback, args, took_s, min(took_s, max(0.0, worked_s)), ended_s)
        self._ran_ns, self._waited_ns = ran_ns, waited_ns
        self.check_after_s[0] = ended_s + _BASELINE_S

    def _read_schedstat(self) -> tuple[int, int]:
        """For how long this thread ran, and for how long it was ready to run and did not.

        0 where the system does not say."""
        try:
            if self._schedstat < 0:
                self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            ran, waited = os.pread(self._schedstat, 100, 0).split()[:2]
            return int(ran), int(waited)
        except (OSError, ValueError):
            return 0, 0

    def figures(self) -> dict[str, float]:
        """What was counted, for Prometheus and monitors."""
        return {
            ProcessMetrics.SLOW_CALLBACKS.name: self.slow_count,
            ProcessMetrics.SLOW_SECONDS.name: round(sum(place.total_s for place in self.slow.values()), 6),
            ProcessMetrics.SLOWEST_CALLBACK.name: round(self.worst_s, 6),
            ProcessMetrics.SLOW_COLLECTIONS.name: self.gc_count,
            ProcessMetrics.SLOWEST_COLLECTION.name: round(self.gc_worst_s, 6),
        }

    def summary(self) -> str:
        """What was counted, with the worst places, for a log."""
        worst = sorted(self.slow.items(), key=lambda item: item[1].worst_s, reverse=True)[:_PLACES_IN_SUMMARY]
        places = "".join(
            f"; {place}: {known.count} times, {known.worst_s * 1000:.0f} ms at most" for place, known in worst
        )
        return (
            f"The event loop was held for more than {BUDGET_S * 1000:.0f} ms {self.slow_count} times, and by collections of "
            f"garbage {self.gc_count} times{places}"
        )

    def close(self) -> None:
        """Let go of what was opened."""
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def _exceeded(
        self, callback: Callable[..., object], args: tuple[Any, ...], took_s: float, worked_s: float, ended_s: float
    ) -> None:
        place, peer = place_of(callback, args), _peer_of(callback)
        known = self.slow.get(place)
        if known is None:
            if len(self.slow) >= _MAX_PLACES:
                place = "elsewhere"
            known = self.slow.setdefault(place, SlowPlace())
        known.count += 1
        known.total_s += took_s
        known.worst_s = max(known.worst_s, took_s)
        self.slow_count += 1
        self.worst_s = max(self.worst_s, took_s)
        if ended_s - known.logged_s >= _LOG_EVERY_S:
            known.logged_s = ended_s
            level = logging.WARNING if took_s > _SERIOUS_S else logging.INFO
            logger.log(
                level,
                "The event loop was held for %.0f ms by %s%s (%d times, %.0f ms at most; "
                "it worked for %.0f ms and waited for the rest)",
                took_s * 1000,
                place,
                peer,
                known.count,
                known.worst_s * 1000,
                worked_s * 1000,
            )
        if self.on_slow is not None:
            self.on_slow(place, took_s)


def place_of(callback: Callable[..., object], args: tuple[Any, ...] = ()) -> str:
    """A callback's or coroutine's qualified name, file and line; of a connection
    also what it serves."""
    while isinstance(callback, partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return _place_of_task(owner)
    if isinstance(owner, Context) and args:  # Context.run(callback, ...)
        return place_of(args[0], args[1:])
    name = getattr(callback, "__qualname__", None) or repr(callback)
    code = getattr(callback, "__code__", None)
    work = getattr(owner, "work", "")
    where = f" ({_line_of(code, code.co_firstlineno)})" if isinstance(code, CodeType) else ""
    return f"{name}{where}{': ' if work else ''}{work}"


def _peer_of(callback: Callable[..., object]) -> str:
    """The peer of the connection whose callback ran.

    It does not belong to the place: a place for each connection would be too many."""
    peer = getattr(getattr(callback, "__self__", None), "peer", None)
    return f" for {peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else ""


def _place_of_task(task: "asyncio.Task[Any]") -> str:
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    code, frame = getattr(coroutine, "cr_code", None), getattr(coroutine, "cr_frame", None)
    if not isinstance(code, CodeType):
        return str(name)
    # It has run up to where it waits now; a coroutine that ended has no frame.
    return f"{name} ({_line_of(code, code.co_firstlineno if frame is None else frame.f_lineno)})"


def _line_of(code: CodeType, line: int) -> str:
    _, found, path = code.co_filename.rpartition("/barnabas/")
    return f"{path if found else code.co_filename}:{line}"


def _measured(budget: LoopBudget, callback: Callable[..., object]) -> Callable[..., None]:
    """The callback between two readings of the clock."""
    now_s = time.perf_counter
    ended, check_after_s = budget.ended, budget.check_after_s

    def run(*args: Any) -> None:
        began_s = now_s()
        try:
            callback(*args)
        finally:
            ended_s = now_s()
            if ended_s > check_after_s[0]:
                ended(callback, args, began_s, ended_s)

    return run


def _measured_often(budget: LoopBudget, callback: Callable[[], object]) -> Callable[[], None]:
    """Like `_measured`, for the callbacks that run with each request."""
    now_s = time.perf_counter
    ended, check_after_s = budget.ended, budget.check_after_s

    def run() -> None:
        began_s = now_s()
        callback()
        ended_s = now_s()
        if ended_s > check_after_s[0]:
            ended(callback, (), began_s, ended_s)

    return run


def _with_budget(base: Any) -> Any:
    """A subclass of a loop class whose callbacks are measured."""

    class Loop(base):  # type: ignore[misc]  # of a base that is known at run time
        def __init__(self, *args: Any) -> None:
            self.budget = LoopBudget()
            super().__init__(*args)

        def close(self) -> None:
            base.close(self)
            self.budget.close()

        def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
            return base.call_soon(self, _measured(self.budget, callback), *args, context=context)

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
            return base.call_soon_threadsafe(self, _measured(self.budget, callback), *args, context=context)

        def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
            run = _measured(self.budget, callback) if args else _measured_often(self.budget, callback)
            return base.add_reader(self, fd, run, *args)

        def add_writer(self, fd: Any, callback: Any, *args: Any) -> Any:
            run = _measured(self.budget, callback) if args else _measured_often(self.budget, callback)
            return base.add_writer(self, fd, run, *args)

    return Loop


def _uvloop_with_budget(base: Any) -> Any:
    class Loop(_with_budget(base)):  # type: ignore[misc]  # see _with_budget
        def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
            if delay <= 0:
                return self.call_soon(callback, *args, context=context)
            return base.call_later(self, delay, _measured(self.budget, callback), *args, context=context)

    return Loop  # its call_at calls call_later


def _asyncio_with_budget(base: Any) -> Any:
    class Loop(_with_budget(base)):  # type: ignore[misc]  # see _with_budget
        def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
            return base.call_at(self, when, _measured(self.budget, callback), *args, context=context)

    return Loop  # its call_later calls call_at


def new_event_loop(*, use_uvloop: bool = True) -> asyncio.AbstractEventLoop:
    """A loop with a `LoopBudget`: uvloop's where it is installed, else asyncio's."""
    kind = _asyncio_with_budget(asyncio.SelectorEventLoop)
    if use_uvloop:
        with contextlib.suppress(ImportError):
            import uvloop

            kind = _uvloop_with_budget(uvloop.Loop)
    loop: asyncio.AbstractEventLoop = kind()
    return loop


def limit_pauses() -> None:
    """Settings for the collection of garbage in a server process.

    Call it at the start; freeze what the start has loaded."""
    gc.set_threshold(*_GC_THRESHOLDS)


class FrozenObjects:
    """Frees what became garbage in a cycle when it was frozen already.

    When there are twice as many frozen objects as after the last look, all of them are looked at:
    50 ms for 200,000 objects, 0.3 s for a million. Python can only look at all in one go, so that
    waits until the loop has not been busy for ten seconds. A loop that is never quiet is held only
    when there are four times as many, after ten minutes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: LoopBudget) -> None:
        self._loop = loop
        self._budget = budget
        self._worked_s = 0.0
        self._count = -1
        self._limit = _LEAST_FROZEN
        self._looks = 0

    def look_later(self) -> None:
        """Look every ten seconds from now on."""
        self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self.look_later()
        worked_s = time.thread_time()
        is_busy = worked_s - self._worked_s > _QUIET_S
        self._worked_s = worked_s
        # To count them takes some milliseconds, too.
        if self._count >= 0 and self._count + self._budget.freezes * _MOST_A_FREEZE < self._limit:
            return
        self._looks += 1
        if not is_busy:
            self.check()
        elif self._looks >= _MOST_LOOKS:
            self.check(_BUSY_LIMITS)

    def check(self, limits: int = 1) -> None:
        """Look at all objects if there are twice as many as after the last time, or as many
        times that as ``limits``."""
        is_first = self._count < 0
        self._looks = self._budget.freezes = 0
        self._count = gc.get_freeze_count()
        if self._count < self._limit * (1 if is_first else limits):
            return
        if not is_first:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            # There is nothing to walk, and Python waits for a quarter of what the last collection
            # left before it walks all again.
            gc.collect()
            self._count = gc.get_freeze_count()
        self._limit = max(2 * self._count, _LEAST_FROZEN)


def count_pauses(loop: asyncio.AbstractEventLoop) -> None:
    """Count the pauses of this process for a loop, and hardly ever walk an object that has
    survived a full collection.

    Objects that live long (partitions, logs, znodes, offsets) are freed by their reference
    counts: they are in no cycle.
    """
    budget = budget_of(loop)
    if budget is not None:
        gc.callbacks.append(budget.collected)
        FrozenObjects(loop, budget).look_later()


def count_after_start(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Count nothing for a loop while its server starts.

    Call what is returned when it has started."""
    budget = budget_of(loop)
    if budget is None:
        return lambda: None
    budget.suspend()
    # In a callback of its own: the step that ends the start belongs to the start.

    def begin() -> None:
        loop.call_soon(budget.resume)

    return begin


def budget_of(loop: asyncio.AbstractEventLoop) -> LoopBudget | None:
    """The budget of a loop made here; None for other loops."""
    budget = getattr(loop, "budget", None)
    return budget if isinstance(budget, LoopBudget) else None


def measured(loop: asyncio.AbstractEventLoop, callback: Callable[..., object]) -> Callable[..., object]:
    """A callback that counts in the loop's budget: for protocols, which a transport
    calls past the loop."""
    budget = budget_of(loop)
    return callback if budget is None else _measured(budget, callback)


def loop_figures(loop: asyncio.AbstractEventLoop) -> dict[str, float]:
    """The figures of a loop's budget; none for loops that were not made here."""
    budget = budget_of(loop)
    return {} if budget is None else budget.figures()
