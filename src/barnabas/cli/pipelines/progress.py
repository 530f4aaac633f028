"""The progress of ``barnabas pipeline run`` on standard error."""

import sys
import time
from typing import TYPE_CHECKING, Self

from barnabas.cli.output.terminal import CLEAR_LINE, own, print
from barnabas.cli.pipelines.operations import lag_text
from barnabas.cli.pipelines.waiting import WaitDisplay
from barnabas.pipelines.progress.summary_text import lost_count_text

if TYPE_CHECKING:
    from barnabas.pipelines.progress.progress import Totals

__all__ = ["RunDisplay"]

_PLAIN_LINE_EVERY_S = 5.0


class RunDisplay:
    """Progress on standard error: one line that is written over on a terminal, a
    line now and then elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._last_line = ""
        self._next_line = 0.0
        self._waits = WaitDisplay()

    def __enter__(self) -> Self:
        if self._terminal and not self._quiet:
            self._waits.__enter__()
            self._waits.show("no micro-batch yet")
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and not self._quiet:
            self._waits.end()
        if self._terminal and self._last_line:
            print(file=sys.stderr)

    def say(self, text: str) -> None:
        if not self._quiet:
            self._waits.say(text)

    def show(self, totals: "Totals") -> None:
        if self._quiet or not totals.batches:
            return
        rate = totals.rows / totals.seconds if totals.seconds else 0
        line = (
            f"{totals.rows:,} rows, {rate:,.0f} rows/s, lag {lag_text(totals.lag, totals.catch_up_s)}, batch {totals.batch}"
            + (f", {totals.bad_rows:,} bad" if totals.bad_rows else "")
            + (f", {totals.late_rows:,} late" if totals.late_rows else "")
            + lost_count_text(totals.lost_records)
        )
        if self._terminal:
            self._waits.end()
            self._clear()
            print(line, end="", file=sys.stderr, flush=True)
            self._last_line = line
        elif time.monotonic() >= self._next_line and line != self._last_line:
            print(line, file=sys.stderr)
            self._next_line = time.monotonic() + _PLAIN_LINE_EVERY_S
            self._last_line = line

    def _clear(self) -> None:
        if self._terminal and self._last_line:
            print(own(sys.stderr, CLEAR_LINE), end="", file=sys.stderr)
