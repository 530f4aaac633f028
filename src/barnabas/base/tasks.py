"""Tasks and their runner: how long work takes turns with everything else that the
event loop serves.

A task is a generator. It is written once, for little and for much work, and it yields

    None           where others may have their turn; its data must be whole there, because other
                   code runs before it continues
    Beside(work)   what waits for a disk or takes long: done in a thread; what it
                   raises is raised at the yield
    an effect      something that the edge does which started the task, such as the steps
                   of `broker.cluster.steps`

The runner decides whether a task is interrupted: where it yields None and some 5 ms have passed. A
short task is therefore done before `Runner.start` returns, as if it were a plain call. Tasks that
are interrupted, or whose thread or effect is done while others wait, go on one after the other, and
together they get one slice of time in each turn of the event loop. While there are any, all tasks
that begin in one turn of the loop share one more slice, so a short task does not wait behind long
ones. A task that another task starts shares its slice.

A `Lane` is for tasks that must not overlap, or of which few may be under way because they
take much memory. A runner `apart` has a slice of its own, for work that must not wait for
what clients ask for.

A stop closes the tasks that wait (GeneratorExit at their yield), those of runners `apart` too, and
a task that runs at its next yield; a thread that runs is left to end.

Nothing else takes turns for deciding code. Coroutines of edges give way where they await, and a
connection hands on the frames that have come for one slice (`barnabas.net.sockets`).

Kafka has threads for this: request handlers, KafkaScheduler.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from barnabas.base.clock import CallLater, Clock
from barnabas.base.threads import InThread

__all__ = [
    "AnyTask",
    "Beside",
    "Lane",
    "Perform",
    "Resume",
    "Runner",
    "Task",
    "done_here",
    "in_pieces",
    "list_of",
    "one_by_one",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ROOM_CHECK_MS = 10


class Beside(NamedTuple):
    """Run ``work`` in a thread, then continue; what it raises is raised at the yield.

    It must share nothing with what runs meanwhile.
    """

    work: Callable[[], None]


Task = Generator[Beside | None, Any, T]
"""Work that yields where it may be interrupted. One with effects of an edge has a
wider type of its own."""

AnyTask = Generator[Any, Any, T]
"""Any task, whatever its effects."""

Resume = Callable[[Any, BaseException | None], None]
"""Called once with the outcome of an effect: its value, or the exception to raise at the yield."""

Perform = Callable[[Any, Resume], None]
"""Does an effect, now or later."""

Failed = Callable[[Any, Exception], None]


def one_by_one(items: Iterable[T]) -> Iterator[T]:
    """The items that there are now, for a task. It holds only those that are still to come.

    What is removed elsewhere meanwhile is freed in slices, too. A list of 20,000 logs would free
    them all at its end: 75 ms.
    """
    waiting = list(items)
    waiting.reverse()
    while waiting:
        yield waiting.pop()


def in_pieces(items: Iterable[T], most: int) -> Iterator[list[T]]:
    """The items that there are now, ``most`` at a time, for a task that gives way between two
    pieces. In order, and held no longer than by `one_by_one`; for loops that must be tight."""
    waiting = list(items)
    waiting.reverse()
    while waiting:
        piece = waiting[-most:]
        del waiting[-most:]
        piece.reverse()
        yield piece


def list_of(items: Iterable[T]) -> Task[list[T]]:
    """The items as a list; others may have their turn while they are made."""
    found: list[T] = []
    for item in items:
        found.append(item)
        yield None
    return found


def done_here(task: Task[T]) -> T:
    """The result of a task done without interruption.

    What it wants in a thread is done in the caller's."""
    error: Exception | None = None
    while True:
        try:
            step = next(task) if error is None else task.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        error = None
        if step is not None:
            try:
                step.work()
            except Exception as raised:
                error = raised


_END = object()


class _Started:
    """A task that did not end with its first step."""

    __slots__ = ("about", "error", "failed", "has_outcome", "is_performing", "perform", "task", "value")

    def __init__(self, task: AnyTask[None], perform: Perform | None, failed: Failed | None, about: Any) -> None:
        self.task = task
        self.perform = perform
        self.failed = failed
        self.about = about
        self.value: Any = None
        """What is sent to its yield."""
        self.error: BaseException | None = None
        """Or raised there."""
        self.is_performing = False
        """While its effect is being begun."""
        self.has_outcome = False
        """Whether that was done at once."""


class Runner:
    """Runs the tasks of one server."""

    def __init__(self, clock: Clock, call_later: CallLater, in_thread: InThread) -> None:
        self._clock = clock
        self._call_later = call_later
        self._in_thread = in_thread
        self._new: deque[_Started] = deque()
        """Those that have not begun."""
        self._waiting: deque[_Started] = deque()
        """Those that were interrupted."""
        self._is_planned = False
        self._is_stopped = False
        self._apart: list[ref[Runner]] = []
        """Those that are stopped with this one, while somebody uses them."""
        self._latest: AnyTask[None] | None = None
        self._is_over: Callable[[], bool] | None = None
        """Whether the slice that runs now is over; None between slices."""
        self._begun: Callable[[], bool] | None = None
        """Whether the slice is over for tasks that begin while others wait; None
        before the first of a turn."""

    def apart(self) -> "Runner":
        """A runner with a slice of its own in each turn of the loop.

        Its tasks do not wait behind those of this one. `stop` of this one stops it too.
        """
        apart = Runner(self._clock, self._call_later, self._in_thread)
        apart._is_stopped = self._is_stopped
        self._apart = [each for each in self._apart if each() is not None]
        self._apart.append(ref(apart))
        return apart

    def now_ms(self) -> int:
        """The time, for a task that was interrupted."""
        return self._clock.monotonic_ms()

    def time_slice(self) -> Callable[[], bool]:
        """See `Clock.time_slice`; for those who wait for tasks."""
        return self._clock.time_slice()

    def lane(self, most: int = 1, has_room: Callable[[Any], bool] | None = None) -> "Lane":
        """See `Lane`. Its tasks take turns with those of this runner."""
        return Lane(self, self._call_later, most, has_room)

    @property
    def work(self) -> str:
        """The generator that ran last, for those who look for what held the event loop."""
        inner: Any = self._latest
        while (delegate := getattr(inner, "gi_yieldfrom", None)) is not None:
            inner = delegate
        return getattr(inner, "__qualname__", "")

    def start(
        self,
        task: AnyTask[None],
        perform: Perform | None = None,
        failed: Failed | None = None,
        about: Any = None,
    ) -> None:
        """Begin a task, at once unless too much has begun in this turn of the loop
        while others wait.

        ``perform`` does its effects. ``failed`` is called with ``about`` and what the task raises,
        which is logged otherwise.
        """
        is_over = self._is_over
        if is_over is None and self._is_planned:
            is_over = self._begun
            if is_over is None:
                is_over = self._begun = self._clock.time_slice()
            elif self._new or is_over():
                self._new.append(_Started(task, perform, failed, about))
                return
        elif self._is_stopped:
            task.close()
            return
        self._latest = task
        outer = self._is_over
        try:
            for step in task:  # noqa: B007  # `next` would raise where most end: at once
                break
            else:
                return
            if step is None:
                self._is_over = is_over = is_over or self._clock.time_slice()
                if not is_over():
                    for step in task:
                        if step is not None or is_over() or self._is_stopped:
                            break
                    else:
                        return
        except Exception as error:
            self.fail(failed, about, error)
            return
        finally:
            self._is_over = outer
        started = _Started(task, perform, failed, about)
        if step is None:
            self._wait(started)
        elif self._perform(started, step):
            self._go_on(started)

    def stop(self) -> None:
        """Start nothing more, and end what waits, in runners `apart` too."""
        self._is_stopped = True
        self._is_planned = False
        for tasks in (self._new, self._waiting):
            while tasks:
                tasks.popleft().task.close()
        for each in self._apart:
            if (apart := each()) is not None:
                apart.stop()

    @staticmethod
    def fail(failed: Failed | None, about: Any, error: Exception) -> None:
        """Report what a task has raised."""
        if failed is not None:
            failed(about, error)
        else:
            logger.error("Background work failed", exc_info=error)

    def _advance(self, started: _Started, is_over: Callable[[], bool]) -> None:
        """Continue a task until it ends, its slice is over, or it waits for an effect."""
        outer, self._is_over = self._is_over, is_over
        try:
            while (step := self._next_step(started, is_over)) is not _END:
                if step is None:
                    self._wait(started)
                    return
                if not self._perform(started, step):
                    return
                if self._is_planned or is_over():
                    self._wait(started)
                    return
        finally:
            self._is_over = outer

    def _next_step(self, started: _Started, is_over: Callable[[], bool]) -> Any:
        """The next effect of a task; None where its slice is over, `_END` if the task is."""
        task = self._latest = started.task
        error, started.error = started.error, None
        value, started.value = started.value, None
        try:
            step = task.send(value) if error is None else task.throw(error)
            if step is None and not is_over():
                for step in task:
                    if step is not None or is_over() or self._is_stopped:
                        break
                else:
                    return _END
        except StopIteration:
            return _END
        except Exception as raised:
            self.fail(started.failed, started.about, raised)
            return _END
        return step

    def _perform(self, started: _Started, step: Any) -> bool:
        """Begin an effect; whether its outcome is there already."""
        if self._is_stopped:
            started.task.close()
            return False
        resume = partial(self._resume, started)
        started.has_outcome, started.is_performing = False, True
        try:
            if type(step) is Beside:
                try:
                    self._in_thread(step.work, partial(resume, None))
                except Exception as error:  # no thread can be started
                    resume(None, error)
            else:
                assert started.perform is not None, f"nothing performs {step!r}"
                started.perform(step, resume)
        finally:
            started.is_performing = False
        return started.has_outcome

    def _resume(self, started: _Started, value: Any, error: BaseException | None) -> None:
        if getattr(started.task, "gi_frame", None) is None:
            return  # closed meanwhile
        if self._is_stopped:
            started.task.close()
            return
        started.value, started.error = value, error
        if started.is_performing:
            started.has_outcome = True
        else:
            self._go_on(started)

    def _go_on(self, started: _Started) -> None:
        """Continue a task whose effect has an outcome, behind others that wait."""
        if self._is_planned:
            self._waiting.append(started)
        else:
            self._advance(started, self._is_over or self._clock.time_slice())

    def _wait(self, started: _Started) -> None:
        """Go on in a later turn of the loop. In order: what was read first is applied first."""
        if self._is_stopped:
            started.task.close()
            return
        self._waiting.append(started)
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._call_later(0, self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        self._begun = None
        try:
            if self._new:
                self._begun = self._clock.time_slice()
                self._advance_some(self._new, self._begun)
            self._advance_some(self._waiting, self._clock.time_slice())
        finally:
            if self._waiting or self._new:
                self._plan()

    def _advance_some(self, tasks: deque[_Started], is_over: Callable[[], bool]) -> None:
        for _ in range(len(tasks)):
            if not tasks:
                return  # stopped meanwhile
            self._advance(tasks.popleft(), is_over)
            if is_over():
                return


class Lane:
    """Tasks of which only a few are under way at a time: one, where they must not overlap, or
    several, where what very many of them build would be in memory together. The others follow in
    order.
    """

    def __init__(
        self, runner: Runner, call_later: CallLater, most: int, has_room: Callable[[Any], bool] | None = None
    ) -> None:
        """``has_room`` says whether one may begin, from what it is about; where not, it is asked
        again some milliseconds later."""
        self._runner = runner
        self._call_later = call_later
        self._most = most
        self._has_room = has_room
        self._next: OrderedDict[AnyTask[None], tuple[Perform | None, Failed | None, Any]] = OrderedDict()
        self._under_way = 0
        self._is_beginning = self._is_planned = False

    @property
    def is_busy(self) -> bool:
        """Whether a task is under way or waits."""
        return self._under_way > 0 or bool(self._next)

    def start(
        self,
        task: AnyTask[None],
        perform: Perform | None = None,
        *,
        failed: Failed | None = None,
        about: Any = None,
    ) -> None:
        """Begin a task when its turn has come, at once if few others are under way. See
        `Runner.start`."""
        self._next[task] = perform, failed, about
        self._begin()

    def forget(self, task: AnyTask[None]) -> None:
        """Drop a task if it has not begun."""
        if self._next.pop(task, None) is not None:
            task.close()

    def _begin(self) -> None:
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            while self._next and self._under_way < self._most and self._has_room_for_next():
                self._under_way += 1
                task, (perform, failed, about) = self._next.popitem(last=False)
                self._runner.start(self._run(task, failed, about), perform)
        finally:
            self._is_beginning = False
        if self._next and not self._under_way and not self._is_planned:
            self._is_planned = True
            self._call_later(_ROOM_CHECK_MS, self._try_again)

    def _has_room_for_next(self) -> bool:
        if self._has_room is None:
            return True
        _, _, about = next(iter(self._next.values()))
        return self._has_room(about)

    def _try_again(self) -> None:
        self._is_planned = False
        self._begin()

    def _run(self, task: AnyTask[None], failed: Failed | None, about: Any) -> AnyTask[None]:
        try:
            yield from task
        except Exception as error:
            Runner.fail(failed, about, error)
        finally:
            self._under_way -= 1
            self._begin()
