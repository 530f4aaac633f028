"""An asyncio event loop whose time is virtual and whose callbacks belong to simulated processes.

The loop runs what is ready and then jumps to the next timer. Each callback costs a microsecond, so
that a coroutine that polls with ``sleep(0)`` does not stop the time. Nothing outside is read: no
clock, no selector, no thread; work for an executor is a callback some time later.

Every callback carries a `contextvars.Context`, and what a callback schedules inherits it: so each
one is known to belong to a `Process`. A dead process's callbacks are never run, without any
clean-up, as after ``kill -9``; those of a paused one wait in their order. What dead processes leave
behind is kept until the loop closes, for a collected coroutine would run its ``finally`` blocks.
"""

import asyncio
import contextvars
import gc
import heapq
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from enum import Enum
from typing import Any

from barnabas.base.randomness import Random

__all__ = ["Killed", "Process", "ProcessState", "SimulatedClock", "SimulatedLoop", "current_process"]

START_US = 1_000_000_000
_WALL_AT_START_MS = 1_700_000_000_000

_current: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("simulated process", default=None)


def current_process() -> "Process | None":
    """The process whose callback runs; None for the simulation's own."""
    return _current.get()


class Killed(BaseException):  # not an error of the program that receives it
    """Raised in a file operation in the middle of which its process dies. It must not be caught."""


class ProcessState(Enum):
    """Whether a process runs."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One life of a simulated process: it is killed once and never comes back; a
    restart makes a new one."""

    def __init__(self, loop: "SimulatedLoop", name: str, rng: Random) -> None:
        self.loop = loop
        self.name = name
        self.rng = rng
        self.state = ProcessState.RUNNING
        self.context = contextvars.Context()
        self.context.run(_current.set, self)
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.io_delay_us: Callable[[], int] = lambda: 100
        self._is_blocked = False
        self._held: list[asyncio.Handle] = []
        self._remains: list[object] = []

    @property
    def is_alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Run something in this process."""
        self.loop.call_soon(callback, *args, context=self.context)

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a callback may run now; otherwise it is kept."""
        if self.state is ProcessState.RUNNING and not self._is_blocked:
            return True
        self._held.append(handle)
        return False

    def block(self, duration_us: int) -> None:
        """Let nothing run for a while: a blocking call under way."""
        if not self._is_blocked and duration_us > 0:
            self._is_blocked = True
            self.loop.call_outside(duration_us, self._unblock)

    def _unblock(self) -> None:
        self._is_blocked = False
        if self.state is ProcessState.RUNNING:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        self.loop.make_ready(held)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """SIGCONT."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            if not self._is_blocked:
                self._release()

    def die(self) -> None:
        """SIGKILL: from now on nothing of it runs."""
        self.state = ProcessState.DEAD
        for task in list(self.tasks):
            self._leave(task)
        self.loop.remove(self)

    def begin(self, task: "asyncio.Task[Any]") -> None:
        """A task of this process is made; also by the callback in which it died."""
        self.tasks.add(task)
        if not self.is_alive:
            self._leave(task)

    def _leave(self, task: "asyncio.Task[Any]") -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own means against its warning
        self._remains.append(task)

    def take_remains(self) -> list[object]:
        """What was never run, at the end of the simulation."""
        remains, self._remains = [*self._remains, *self._held], []
        self._held = []
        return remains


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. ``on_exception`` gets what no callback or task of a live process caught."""

    def __init__(self, on_exception: Callable[[Process | None, dict[str, Any]], None] | None = None) -> None:
        super().__init__()
        self._numbers = 0
        self.now_us = START_US
        self.callbacks_run = 0
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._sequence = 0
        self._ready: deque[asyncio.Handle]  # BaseEventLoop makes it
        self._outside = contextvars.Context()
        self._dead: list[Process] = []
        self._on_exception = on_exception
        self.set_exception_handler(self._hear_exception)
        self.set_task_factory(_make_task)

    # Time

    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_at(  # type: ignore[override]  # typeshed ties the arguments to the callback's
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (max(round(when * 1_000_000), self.now_us), self._sequence, timer))
        return timer

    def call_outside(self, delay_us: int, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Call after a delay, in no process: the network, a disk, the scenario."""
        return self.call_at((self.now_us + delay_us) / 1_000_000, callback, *args, context=self._outside)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when they are due."""

    # Running

    def _run_once(self) -> None:
        ready = self._ready
        timers = self._timers
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise RuntimeError("the simulation waits for something that cannot happen: nothing is left to run")
            self.now_us = max(self.now_us, timers[0][0])
        while timers and timers[0][0] <= self.now_us:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(_current)  # type: ignore[attr-defined]  # every Handle has one
            if process is not None and not process.admits(handle):
                continue
            self.now_us += 1
            self.callbacks_run += 1
            handle._run()

    def make_ready(self, handles: list[asyncio.Handle]) -> None:
        """Queue what a process held back."""
        self._ready.extend(handles)

    def run_in_executor(  # type: ignore[override]  # the executor is not used
        self, executor: object, function: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        del executor
        future = self.create_future()
        process = _current.get()
        delay_us = process.io_delay_us if process is not None else lambda: 100

        def run() -> None:
            result: Any = None
            error: Exception | None = None
            try:
                result = function(*args)
            except Exception as raised:
                error = raised
            self.call_at((self.now_us + delay_us()) / 1_000_000, finish, result, error)

        def finish(result: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_at((self.now_us + delay_us()) / 1_000_000, run)
        return future

    def create_future(self) -> "asyncio.Future[Any]":
        future = _SimulatedFuture(loop=self)
        future.number = self.next_number()
        return future

    def next_number(self) -> int:
        """For hashes: sets are iterated in their order, and addresses differ from run to run."""
        self._numbers += 1
        return self._numbers

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        """As asyncio's, but the coroutine is made when it runs: one that `close` drops would be a
        warning from Python 3.13 on."""
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]  # BaseEventLoop makes it
        if not self.is_closed():
            self.call_soon(lambda: self.create_task(agen.aclose()))

    # Ends

    def _hear_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        handle = context.get("handle")
        process = handle._context.get(_current) if handle is not None else None
        task = context.get("future") or context.get("task")
        if process is None and task is not None:
            process = getattr(task, "process", None)
        if process is None:
            process = _current.get()
        if (process is None or process.is_alive) and self._on_exception is not None:
            self._on_exception(process, context)

    def remove(self, process: Process) -> None:
        """Keep what a dead process leaves."""
        self._dead.append(process)

    def close(self) -> None:
        """Also let go of the dead, whatever their ``finally`` blocks say."""
        self._on_exception = None
        # Set for code that asks for a loop while it ends: asyncio would make one and leave it open.
        asyncio.set_event_loop(self)
        try:
            for process in self._dead:
                for remain in process.take_remains():
                    if isinstance(remain, asyncio.Task):
                        _end(remain)
        finally:
            asyncio.set_event_loop(None)
        self._dead.clear()
        self._timers.clear()
        self._ready.clear()
        super().close()
        gc.collect()


class _SimulatedFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future whose place in a set does not depend on its address."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _SimulatedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task that knows its process, for the report of uncaught exceptions.

    See `_SimulatedFuture` for its hash."""

    process: Process | None = None
    number = 0

    def __init__(self, coroutine: Any, *, loop: "SimulatedLoop", context: contextvars.Context | None) -> None:
        self.number = loop.next_number()
        super().__init__(coroutine, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.number


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: contextvars.Context | None = None
) -> "asyncio.Task[Any]":
    assert isinstance(loop, SimulatedLoop)
    task: asyncio.Task[Any] = _SimulatedTask(coroutine, loop=loop, context=context)
    process = _current.get() if context is None else context.get(_current)
    if process is not None:
        task.process = process  # type: ignore[attr-defined]
        process.begin(task)
    return task


def _end(task: "asyncio.Task[Any]") -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # as in Process.die
    coroutine: Any = task.get_coro()
    for _ in range(20):
        try:
            coroutine.close()
        except BaseException:  # noqa: S112  # a block that awaits, or meets its dead files
            continue
        return


class SimulatedClock:
    """A machine's clocks on a loop's time; the wall clock can be set wrong."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        self._slices = 0

    def wall_ms(self) -> int:
        return _WALL_AT_START_MS + (self._loop.now_us - START_US) // 1000 + self.skew_ms

    def monotonic_ms(self) -> int:
        return self._loop.now_us // 1000

    def time_slice(self) -> Callable[[], bool]:
        """No time passes inside a callback, so a slice is some steps long: 0 to 7,
        another number each time."""
        self._slices += 1
        left = self._slices * 0x9E3779B1 >> 16 & 7

        def is_over() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        return is_over

    def worked_ms(self) -> float:
        return 0.0
