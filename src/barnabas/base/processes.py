"""The seam to processes: a task that computes for long goes on in a process of its own, step
by step as it is asked to.

A thread shares the interpreter with the event loop: beside one that computes, each request waits
several times for the time after which threads are switched. A process shares nothing but files. It
gets a task of plain values and returns such. It works only between a question and its answer, at a
lower priority than the process that asks, and ends by itself when that one is gone.

To start one takes 0.2 to 0.4 s of processor time, most of it for imports. So a process whose task
is over waits for another one, for `IDLE_S` seconds. What it took for its task it returns at once.
"""

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.base.memory import return_memory

__all__ = ["NoWorkerError", "StartProcess", "WorkerLostError", "WorkerProcess", "WorkerProcesses", "serve_worker"]

IDLE_S = 60.0
"""How long a process waits for another task. Brokers look for logs to compact every 15 s."""

GRACE_S = 5.0
"""How long a task may go on after its owner was closed. A step takes some 20 ms, unless
the process stands still."""

_NICENESS = 5
_MAIN = "import sys; sys.path[:] = {path!r}; from barnabas.base.processes import serve_worker; serve_worker()"


class WorkerLostError(BarnabasError):
    """The process ended before its task did."""


class NoWorkerError(WorkerLostError):
    """A process could not be started, or ended before it did anything."""


class WorkerProcess(Protocol):
    """A task under way in another process. In any thread, one call at a time."""

    def step(self) -> Any:
        """Go on, and return what the task's own ``step`` returns.

        Raises what it raises, and `WorkerLostError`."""
        ...

    def finish(self) -> None:
        """The task is over: its process may take another. Returns at once."""
        ...

    def close(self) -> None:
        """End the task with its process, if it is not finished.

        Returns at once; no step is under way."""
        ...


StartProcess = Callable[[str, object], WorkerProcess]
"""Takes the name of a module whose function ``begin`` makes a task, and its
argument. Raises `NoWorkerError`."""


class WorkerProcesses:
    """The processes that one owner has started. In any thread."""

    def __init__(self, idle_s: float = IDLE_S, grace_s: float = GRACE_S) -> None:
        self._idle_s = idle_s
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._idle: dict[_Process, threading.Timer] = {}
        """Processes without a task, and what ends each."""
        self._working: set[_Process] = set()
        """Processes with a task."""
        self._grace: threading.Timer | None = None
        """What ends those that still work some time after `close`."""
        self._is_closed = False

    def start(self, module: str, argument: object) -> WorkerProcess:
        """Begin a task in a process of its own: see `StartProcess`."""
        while True:
            process = self._take()
            if process is None:
                process = _Process()
                process.begin(module, argument)
                return self._task(process)
            with contextlib.suppress(WorkerLostError):  # somebody killed it
                process.begin(module, argument)
                return self._task(process)

    def close(self) -> None:
        """End the processes without a task.

        Those with one end after it, or are killed after some seconds. A process that stands still
        (stopped by a signal, say) would hold the thread that waits for its step for ever.
        """
        with self._lock:
            self._is_closed = True
            if self._working:
                self._begin_grace()
        while (process := self._take()) is not None:
            process.kill()

    def _task(self, process: "_Process") -> "_Task":
        with self._lock:
            self._working.add(process)
            if self._is_closed:  # it began while, or after, its owner was closed
                self._begin_grace()
        return _Task(process, self._keep, self._left)

    def _begin_grace(self) -> None:
        """Start the timer that ends work which is still running. The caller holds the lock."""
        if self._grace is None:
            self._grace = threading.Timer(self._grace_s, self._end_working)
            self._grace.name, self._grace.daemon = "late-worker", True
            self._grace.start()

    def _left(self, process: "_Process") -> None:
        """Its task is over."""
        with self._lock:
            self._working.discard(process)
            if self._grace is not None and not self._working:
                self._grace.cancel()
                self._grace = None

    def _end_working(self) -> None:
        with self._lock:
            late = tuple(self._working)
            self._grace = None
        for process in late:
            process.kill()

    def _take(self) -> "_Process | None":
        with self._lock:
            if not self._idle:
                return None
            process, timer = self._idle.popitem()
        timer.cancel()
        return process

    def _keep(self, process: "_Process") -> None:
        timer = threading.Timer(self._idle_s, self._expire, [process])
        timer.name, timer.daemon = "idle-worker", True
        with self._lock:
            is_kept = not self._is_closed
            if is_kept:
                self._idle[process] = timer
                timer.start()
        if not is_kept:
            process.kill()

    def _expire(self, process: "_Process") -> None:
        with self._lock:
            is_idle = self._idle.pop(process, None) is not None
        if is_idle:
            process.kill()


class _Task:
    """A `WorkerProcess` of the operating system."""

    def __init__(
        self, process: "_Process", keep: "Callable[[_Process], None]", left: "Callable[[_Process], None]"
    ) -> None:
        self._process: _Process | None = process
        self._keep = keep
        self._left = left

    @property
    def pid(self) -> int | None:
        """The process that works on it; None when it is over."""
        return None if self._process is None else self._process.pid

    def step(self) -> Any:
        if self._process is None:
            raise WorkerLostError("the task is over")
        return self._process.step()

    def finish(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._left(process)
        try:
            process.forget()
        except WorkerLostError:
            return
        self._keep(process)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._left(process)
            process.kill()


class _Process:
    """The asking side of `serve_worker`."""

    def __init__(self) -> None:
        """Raises `NoWorkerError`."""
        if not sys.executable:
            raise NoWorkerError("this Python does not know its own program")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _MAIN.format(path=sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise NoWorkerError(f"no process can be started: {error}") from error
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._has_begun = False
        self._is_beginning = False
        self.pid = self._process.pid

    def begin(self, module: str, argument: object) -> None:
        """Raises `WorkerLostError`, and has ended then."""
        self._is_beginning = True
        self._send((module, argument))

    def forget(self) -> None:
        """Let the memory of its task go. Raises `WorkerLostError`, and has ended then."""
        if self._is_beginning:  # what it says of that would be taken for what the next task says
            self.kill()
            raise self._lost()
        self._send(())

    def step(self) -> Any:
        self._send(None)
        if self._is_beginning:
            self._receive()
            self._is_beginning, self._has_begun = False, True
        answer, error = self._receive()
        if error is not None:
            raise error
        return answer

    def _receive(self) -> tuple[Any, BaseException | None]:
        assert self._answers is not None
        try:
            answer: tuple[Any, BaseException | None] = pickle.load(self._answers)  # noqa: S301  # from our own child
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as failure:
            # ValueError: the connection was closed meanwhile.
            raise self._lost() from failure
        return answer

    def _send(self, question: object) -> None:
        assert self._questions is not None
        try:
            pickle.dump(question, self._questions)
            self._questions.flush()
        except (OSError, ValueError) as failure:
            self.kill()
            raise self._lost() from failure
        except BaseException:
            self.kill()
            raise

    def _lost(self) -> WorkerLostError:
        if self._has_begun:
            return WorkerLostError(f"the process {self.pid} has ended")
        return NoWorkerError(f"the process {self.pid} has ended before it did anything")

    def kill(self) -> None:
        """Returns at once."""
        self._process.kill()
        # To free its memory takes a while.
        threading.Thread(target=self._wait, name="ended-worker", daemon=True).start()

    def _wait(self) -> None:
        for pipe in (self._questions, self._answers):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was not sent is lost with the process
                pipe.close()
        self._process.wait()


def serve_worker() -> None:
    """The other side: the whole life of a worker's process."""
    # Signals to the whole group are for the process that asks.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    task: Any = None
    while True:
        try:
            question = pickle.load(questions)  # noqa: S301  # from our own parent
        except EOFError:
            return
        if question is not None:
            task = None
            if question:
                module, argument = question
                task = importlib.import_module(module).begin(argument)
            else:
                return_memory()
                continue
        answer, failure = None, None
        if question is None:
            try:
                answer = task.step()
            except Exception as error:
                failure = error
        try:
            # Sent when a task begins, too: a loss from then on is the task's own.
            pickle.dump((answer, failure), answers)
            answers.flush()
        except BrokenPipeError:
            return
