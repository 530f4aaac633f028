"""What a command of ``barnabas pipeline`` waits for, on standard error from its first moment:
Spark needs seconds to start.

On a terminal it is one line that is written over, with the seconds since the command began;
elsewhere a line for each thing.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, TextIO

from barnabas.cli.output.terminal import CLEAR_LINE, own, print

if TYPE_CHECKING:
    from barnabas.pipelines.specification.spec import Flow

__all__ = ["WaitDisplay", "trial_session"]


class WaitDisplay:
    """Shows the last thing that `show` was given, until the end of the ``with`` block."""

    def __init__(self, stream: TextIO | None = None, *, every_s: float = 1.0) -> None:
        self._stream = stream or sys.stderr
        self._every_s = every_s
        self._is_terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._text = ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._ticker = threading.Thread(target=self._tick, name="wait-display", daemon=True)

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Show nothing more, but what `say` is given; safe to call again."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._is_terminal:
            self._ticker.join()
            self._print("", end="")

    def show(self, text: str) -> None:
        """This is what the command waits for now."""
        self._text = text
        if self._is_terminal:
            self._draw()
        else:
            self._print(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._print(text)
        if self._is_terminal and not self._ended.is_set():
            self._draw()

    def _tick(self) -> None:
        while not self._ended.wait(self._every_s):
            self._draw()

    def _draw(self) -> None:
        if not self._text:
            return
        with self._lock:
            self._print(f"{self._text}, {time.monotonic() - self._began:.0f} s", end="")

    def _print(self, text: str, end: str = "\n") -> None:
        """In place of what a terminal's line has."""
        print(own(self._stream, CLEAR_LINE) + text, end=end, file=self._stream, flush=True)


@contextlib.contextmanager
def trial_session(flow: "Flow") -> Iterator[Any]:
    """A Spark session on this machine, to try a flow, with its cores, memory and settings."""
    from barnabas.pipelines.packages import require_extra
    from barnabas.pipelines.spark.session import open_session

    require_extra()
    resources = flow.resources
    with WaitDisplay() as waits:
        waits.show("starting Spark")
        session = open_session(flow.name, cores=resources.cores, memory=resources.memory, conf=resources.spark)
    try:
        yield session.spark
    finally:
        session.close()
