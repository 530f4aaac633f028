"""Whether a source has more bad rows than it may have, ``max_bad``, over a run and those before it
that broke. Needs no Spark.

A run that was stopped by its bad rows has its position behind them. If counts began at 0 with the
next start, a supervisor that starts what has ended would go past any limit. So ``limits.json`` in
the checkpoint keeps the counts:

- A run that ended well, done or stopped by a person, deletes it.
- A run that broke or was killed leaves it, and the next one goes on counting.
- After a run that its bad rows ended, no run starts until the limit is above what was counted,
  the bad rows are accepted (`BadRowLimits.forget`), or position and state are others
  (``rewind``, ``reset``).
"""

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.pipelines.errors import DAMAGED_ADVICE, PipelineError
from barnabas.pipelines.progress.progress import Totals
from barnabas.pipelines.specification.spec import Flow, Source

__all__ = ["BadRowLimits"]


class BadRowLimits:
    """The limits of one flow's sources; those that quarantine judge each micro-batch by itself."""

    def __init__(self, flow: Flow, say: Callable[[str], None]) -> None:
        """Raises `PipelineError` if what runs before have counted cannot be read."""
        self._places = flow.places
        self._path = Path(flow.checkpoint) / "limits.json"
        self._sources = [each for each in flow.sources if each.max_bad and not each.quarantines]
        self._say = say
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._before: dict[str, dict[str, int]] = {}
        self._passed: dict[str, str] = {}
        """Why the source's bad rows ended a run."""
        if self._sources:
            self._load()

    def _load(self) -> None:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._before = {
                name: {each: int(of[each]) for each in ("rows", "bad_rows")} for name, of in found["counts"].items()
            }
            self._passed = {str(name): str(text) for name, text in found["passed"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(f"{self._path} is damaged: {error}; {DAMAGED_ADVICE}") from error

    def require_start(self) -> None:
        """Raise `PipelineError` if bad rows have ended a run, and nothing has changed since."""
        for source in self._sources:
            rows, bad = self._counts(source, Totals())
            was_final = source.name in self._passed
            if _ends_a_run(source) and _is_passed(source, rows, bad, is_final=was_final):
                why = self._passed.get(source.name) or f"{bad:,} of {rows:,} rows of {source.name} are bad"
                raise PipelineError(
                    f"the run before this one passed max_bad: {why}. Its position is behind these rows. Correct the flow and read "
                    f"them again, `{self._places.command('rewind')} --to WHERE --yes`, or go on without them, "
                    f"`{self._places.command('run')} --accept-bad-rows`"
                )

    def check(self, totals: Totals, *, is_final: bool = False) -> None:
        """Raise `PipelineError` when there are too many, or say so.

        ``is_final``: all that there was is counted."""
        for source in self._sources:
            rows, bad = self._counts(source, totals)
            if not _is_passed(source, rows, bad, is_final=is_final):
                continue
            counted = sorted(totals.bad.items(), key=lambda each: -each[1])
            kinds = ", ".join(f"{name}: {count:,}" for name, count in counted)
            text = f"{bad:,} of {rows:,} rows of {source.name} are bad, more than max_bad = {source.max_bad}"
            if kinds:
                text += f" ({kinds}); for example: {totals.bad_example}"
            if _ends_a_run(source):
                self._passed[source.name] = text
                try:
                    self.note(totals)
                except OSError as error:
                    text += f". The next run does not know of it: {self._path} cannot be written ({error.strerror})"
                raise PipelineError(text)
            if source.name not in self._warned:
                self._warned.add(source.name)
                self._say(f"warning: {text}")

    def note(self, totals: Totals) -> None:
        """Keep the counts, for a run after one that breaks; raises `OSError`.

        Flows without bad rows keep nothing."""
        with self._lock:
            counts = {}
            for source in self._sources:
                rows, bad = self._counts(source, totals)
                counts[source.name] = {"rows": rows, "bad_rows": bad}
            if any(each["bad_rows"] for each in counts.values()):
                text = json.dumps({"counts": counts, "passed": self._passed})
                OsFiles().write_atomically(str(self._path), text.encode())

    def forget(self) -> None:
        """Count from 0: the file is deleted."""
        self._before, self._passed = {}, {}
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def _counts(self, source: Source, totals: Totals) -> tuple[int, int]:
        """Rows and bad rows of this run, and of those before it that broke."""
        parts = (self._before.get(source.name, {}), totals.sources.get(source.name, {}))
        return sum(each.get("rows", 0) for each in parts), sum(each.get("bad_rows", 0) for each in parts)


def _ends_a_run(source: Source) -> bool:
    return source.max_bad is not None and source.max_bad.then == "stop"


def _is_passed(source: Source, rows: int, bad: int, *, is_final: bool) -> bool:
    return source.max_bad is not None and source.max_bad.is_passed(rows, bad, is_final=is_final)
