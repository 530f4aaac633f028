"""Work in slices: long work runs for some milliseconds at a time, and everything else is served between two slices.

Work in proportion to partitions, files, records or bytes is written as a generator. It yields None wherever it may be
interrupted: its data must be whole there, because other code runs before it continues. It yields `Beside` for what waits
for a disk, which then runs in a thread. `Slices` runs such work. A slice ends at the first yield after some 5 ms, so
short work is done before `Slices.start` returns, as if it were a plain call. Works that wait have their turn one after
the other, and together they get one slice in each turn of the event loop. Work that other work starts, such as an encoding
of what it found, shares its slice. `InOrder` is for works that must not overlap, `FewAtOnce` for those that take much memory.

A stop closes the generators that wait (GeneratorExit at their yield); a thread that runs is left to end.

Kafka has threads for this: request handlers, KafkaScheduler.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from barnabas.base.clock import CallLater, Clock
from barnabas.base.threads import InThread

__all__ = ["Beside", "FewAtOnce", "InOrder", "Sliced", "Slices", "at_once", "in_this_thread", "one_by_one"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ROOM_CHECK_MS = 10


class Beside(NamedTuple):
    """Run ``work`` in a thread, then continue; what it raises is raised at the yield.

    It must share nothing with what runs meanwhile.
    """

    work: Callable[[], None]


Sliced = Generator[Beside | None, None, T]
"""Work that yields where it may be interrupted."""


def one_by_one(items: Iterable[T]) -> Iterator[T]:
    """The items that there are now, for work in slices. It holds only those that are still to come.

    What is removed elsewhere meanwhile is freed in the slices, too. A list of 20,000 logs would free them all at its end: 75 ms.
    """
    waiting = list(items)
    waiting.reverse()
    while waiting:
        yield waiting.pop()


def at_once(work: Sliced[T]) -> T:
    """The result of work done without interruption. It must not yield `Beside`."""
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        assert step is None  # or its work in a thread would be left out


def in_this_thread(work: Sliced[T]) -> T:
    """The result of work done without interruption; what it wants beside the loop is done in the caller's thread."""
    error: Exception | None = None
    while True:
        try:
            step = next(work) if error is None else work.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        error = None
        if step is not None:
            try:
                step.work()
            except Exception as raised:
                error = raised


class Slices:
    """Runs the sliced work of one server."""

    def __init__(self, clock: Clock, call_later: CallLater, in_thread: InThread) -> None:
        self._clock = clock
        self._call_later = call_later
        self._in_thread = in_thread
        self._waiting: deque[tuple[Sliced[None], BaseException | None]] = deque()
        """Works with what is to be raised at their yield."""
        self._is_planned = False
        self._is_stopped = False
        self._latest: Sliced[None] | None = None
        self._is_over: Callable[[], bool] | None = None
        """Whether the slice that runs now is over; None between slices."""

    @property
    def work(self) -> str:
        """The generator that ran last, for those who look for what held the event loop."""
        inner: Any = self._latest
        while (delegate := getattr(inner, "gi_yieldfrom", None)) is not None:
            inner = delegate
        return getattr(inner, "__qualname__", "")

    def start(self, work: Sliced[None]) -> None:
        """Begin work, at once unless other work waits for its next slice. What it raises is logged."""
        if self._is_stopped:
            work.close()
        elif self._waiting:
            self._waiting.append((work, None))
        else:
            self._advance(work, None, self._is_over or self._clock.time_slice())

    def stop(self) -> None:
        """Start nothing more, and end what waits."""
        self._is_stopped = True
        while self._waiting:
            self._waiting.popleft()[0].close()

    def _advance(self, work: Sliced[None], error: BaseException | None, is_over: Callable[[], bool]) -> None:
        self._latest = work
        outer, self._is_over = self._is_over, is_over
        try:
            step = next(work) if error is None else work.throw(error)
            while step is None:
                if is_over():
                    self._wait(work, None)
                    return
                step = next(work)
        except StopIteration:
            return
        except Exception:
            logger.exception("Work in slices failed")
            return
        finally:
            self._is_over = outer
        self._in_thread(step.work, partial(self._resume, work))

    def _resume(self, work: Sliced[None], error: BaseException | None) -> None:
        if self._is_stopped:
            work.close()
        elif self._waiting:
            self._wait(work, error)
        else:
            self._advance(work, error, self._clock.time_slice())

    def _wait(self, work: Sliced[None], error: BaseException | None) -> None:
        self._waiting.append((work, error))
        if not self._is_planned:
            self._is_planned = True
            self._call_later(0, self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        is_over = self._clock.time_slice()
        for _ in range(len(self._waiting)):
            if not self._waiting:
                return  # stopped meanwhile
            work, error = self._waiting.popleft()
            self._advance(work, error, is_over)
            if is_over():
                break
        if self._waiting and not self._is_planned:
            self._is_planned = True
            self._call_later(0, self._turn)


class FewAtOnce:
    """Works of which only a few are under way at a time, the others follow in order: what very many of them build would else
    be in memory together."""

    def __init__(self, slices: Slices, call_later: CallLater, most: int, has_room: Callable[[], bool]) -> None:
        """``has_room`` says whether another one may begin; where not, it is asked again some milliseconds later."""
        self._slices = slices
        self._call_later = call_later
        self._most = most
        self._has_room = has_room
        self._next: deque[Sliced[None]] = deque()
        self._under_way = 0
        self._is_beginning = self._is_planned = False

    def start(self, work: Sliced[None]) -> None:
        """Begin work, at once if few others are under way."""
        self._next.append(work)
        self._begin()

    def _begin(self) -> None:
        if self._is_beginning:
            return
        self._is_beginning = True
        while self._next and self._under_way < self._most and self._has_room():
            self._under_way += 1
            self._slices.start(self._run(self._next.popleft()))
        self._is_beginning = False
        if self._next and not self._under_way and not self._is_planned:
            self._is_planned = True
            self._call_later(_ROOM_CHECK_MS, self._try_again)

    def _try_again(self) -> None:
        self._is_planned = False
        self._begin()

    def _run(self, work: Sliced[None]) -> Sliced[None]:
        try:
            yield from work
        finally:
            self._under_way -= 1
            self._begin()


class InOrder:
    """Works that run one after the other: each begins when those before it are done."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._works: deque[Sliced[None]] = deque()
        self._is_running = False

    @property
    def is_running(self) -> bool:
        """Whether work is under way or waits for its turn."""
        return self._is_running

    def start(self, work: Sliced[None]) -> None:
        """Begin work, at once if no other is under way. What it raises is logged."""
        self._works.append(work)
        if not self._is_running:
            self._is_running = True
            self._slices.start(self._run())

    def _run(self) -> Sliced[None]:
        try:
            while self._works:
                try:
                    yield from self._works.popleft()
                except Exception:
                    logger.exception("Work in slices failed")
        finally:
            self._is_running = False
