"""The seam to processes: a task that computes for long goes on in a process of its own, step by step as it is asked to.

A thread shares the interpreter with the event loop: beside one that computes, each request waits several times for the time
after which threads are switched. A process shares nothing but files. It is started for one task, gets plain values and returns
such, and ends with its task: so does its memory. It works only between a question and its answer, at a lower priority than the process that
asks, and ends by itself when that one is gone.
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

__all__ = ["StartProcess", "WorkerLostError", "WorkerProcess", "serve_worker", "start_worker"]

_NICENESS = 5
_MAIN = "import sys; sys.path[:] = {path!r}; from barnabas.base.processes import serve_worker; serve_worker()"


class WorkerLostError(BarnabasError):
    """The process could not be started, or has ended."""


class WorkerProcess(Protocol):
    """A task under way in another process. In any thread, one call at a time."""

    def step(self) -> Any:
        """Go on, and return what the task's own ``step`` returns. Raises what it raises, and `WorkerLostError`."""
        ...

    def close(self) -> None:
        """End the process. Returns at once; no step is under way."""
        ...


StartProcess = Callable[[str, object], WorkerProcess]
"""Takes the name of a module whose function ``begin`` makes a task, and its argument. Raises `WorkerLostError`."""


class _Process:
    """A `WorkerProcess` of the operating system."""

    def __init__(self, module: str, argument: object) -> None:
        if not sys.executable:
            raise WorkerLostError("this Python does not know its own program")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _MAIN.format(path=sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise WorkerLostError(f"a process for {module} cannot be started: {error}") from error
        self._questions, self._answers = self._process.stdin, self._process.stdout
        try:
            self._send((module, argument))
        except BaseException:
            self.close()
            raise

    def step(self) -> Any:
        self._send(None)
        assert self._answers is not None
        try:
            answer, error = pickle.load(self._answers)  # noqa: S301  # from our own child
        except (OSError, EOFError, pickle.UnpicklingError) as failure:
            raise WorkerLostError(f"the process {self._process.pid} has ended") from failure
        if error is not None:
            raise error
        return answer

    def _send(self, question: object) -> None:
        assert self._questions is not None
        try:
            pickle.dump(question, self._questions)
            self._questions.flush()
        except OSError as failure:
            raise WorkerLostError(f"the process {self._process.pid} has ended") from failure

    def close(self) -> None:
        self._process.kill()
        # To free its memory takes a while.
        threading.Thread(target=self._wait, name="ended-worker", daemon=True).start()

    def _wait(self) -> None:
        for pipe in (self._questions, self._answers):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was not sent is lost with the process
                pipe.close()
        self._process.wait()


def start_worker(module: str, argument: object) -> WorkerProcess:
    """Begin a task in a process of its own: see `StartProcess`."""
    return _Process(module, argument)


def serve_worker() -> None:
    """The other side: the whole life of a worker's process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # to a whole group they are for the process that asks
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    module, argument = pickle.load(questions)  # noqa: S301  # from our own parent
    task = importlib.import_module(module).begin(argument)
    while True:
        try:
            pickle.load(questions)  # noqa: S301
        except EOFError:
            return
        try:
            answer, failure = task.step(), None
        except Exception as error:
            answer, failure = None, error
        try:
            pickle.dump((answer, failure), answers)
            answers.flush()
        except BrokenPipeError:
            return
