"""What a flow's checkpoint holds, without Spark: its position, its last run, the flow that made
it; and how to change it.

flow.json           the parts of the flow that the checkpoint depends on, and for each sink since
                    when it gets micro-batches
keys.json           the keys of the sinks' rows (`barnabas.pipelines.running.key_notes`)
limits.json         bad rows counted by runs that broke or were stopped by them
                    (`barnabas.pipelines.progress.bad_limits`)
versions.db         the greatest values of order_by that sinks have
                    (`barnabas.pipelines.frames.ordering`); it stays at a reset
run.json            process, start, end, reason of the end, and figures of the last run
lost.jsonl          records that were gone before the last run read them
                    (`barnabas.pipelines.connector.lost_records`)
letters.jsonl       dead letters of the last run that were too large
                    (`barnabas.pipelines.connector.letters`)
letters-NAME.json   where the dead letters of the last micro-batch begin
                    (`barnabas.pipelines.dead_letters.dead_letters`)
admitted-NAME.json  what a flow that quarantines may read of a source
start.json          where the first run began; start-NAME.json for further sources
topics.json         the ids of the topics that it has read
model.json          the version of the model that scored the last micro-batch
main/offsets/N      the end of micro-batch N, a line of JSON for each source after
                    two lines of Spark's own
main/commits/N      micro-batch N has reached the sinks
bad-rows/           the same for dead letters; bad-rows-NAME for further sources
before-TIME/        what was there before a rewind

A user's outputs and other flows may be in the folder, too: only these names are ever
moved or deleted.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.pipelines.cluster.offsets import Offsets, Range, from_json, from_spark, least_offsets, to_json
from barnabas.pipelines.errors import DAMAGED_ADVICE, OTHER_STATE_ADVICE, PipelineError
from barnabas.pipelines.outputs.declared import Sink
from barnabas.pipelines.outputs.registry import is_table, kind_of, sink_name
from barnabas.pipelines.specification.spec import Aggregate, Flow, Source

__all__ = [
    "Checkpoint",
    "CheckpointChange",
    "compare_flows",
    "describe_flow",
    "lost_rows_error",
    "sink_file",
    "sink_files",
]

_NOTE_S = 5.0
_writing = threading.Lock()
"""Held while run.json is read and written."""
_CONTEXT = 80
"""Characters of an operation's text that messages show before and after what differs."""
_OURS = re.compile(
    r"main|bad-rows(-\w+)?|(start|admitted|letters)(-\w+)?\.json(\.tmp)?|(flow|topics|model|limits|keys)\.json(\.tmp)?"
    r"|run\.(json|part)|(lost|letters)\.jsonl"
)
"""What a run leaves in the folder, but for its lock."""
_BEFORE = re.compile(r"before-\d{8}T\d{6}(-\d+)?")


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """A difference between a flow and the one that made its checkpoint."""

    field: str
    message: str
    fits: bool


class Checkpoint:
    """A flow's folder."""

    def __init__(self, flow: Flow) -> None:
        self.folder = Path(flow.checkpoint)
        self._flow = flow
        self._began: str | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a micro-batch was planned on it."""
        return bool(_numbers(self.folder, "offsets"))

    def reached(self) -> list[Offsets]:
        """For each source how far the sinks have come: as `position`, or, since a
        rewind, as it was before."""
        before = sorted(each for each in self.folder.iterdir() if _BEFORE.fullmatch(each.name))
        for folder in [self.folder, *reversed(before)]:
            if _numbers(folder, "commits"):
                return self._position_in(folder)
        return [{} for _ in self._flow.sources]

    def starts(self) -> list[Offsets]:
        """For each source where the next run begins, as far as that is decided: `position`, or
        where a rewind has set it."""
        if _numbers(self.folder, "commits"):
            return self.position()
        found: list[Offsets] = []
        for source in self._flow.sources:
            name = _start_name(self._flow, source)
            try:
                found.append(from_json((self.folder / name).read_text(encoding="utf-8")))
            except FileNotFoundError:
                found.append({})
            except (OSError, BarnabasError) as error:
                raise PipelineError(f"{self.folder / name} is damaged: {error}; {DAMAGED_ADVICE}") from error
        return found

    def position(self) -> list[Offsets]:
        """For each source the next offsets to read, as of the last micro-batch that
        reached the sinks."""
        return self._position_in(self.folder)

    def _position_in(self, folder: Path) -> list[Offsets]:
        done = _numbers(folder, "commits")
        if not done:
            return [{} for _ in self._flow.sources]
        found = self._ends(folder, max(done))
        order = self.source_order()
        if len(order) != len(found):  # of an earlier version, which did not keep it
            return [least_offsets(_covered(source, each) for each in found) for source in self._flow.sources]
        named = list(zip(order, found, strict=True))
        return [least_offsets(each for name, each in named if name == source.name) for source in self._flow.sources]

    def _ends(self, folder: Path, batch: int) -> list[Offsets]:
        """Where a micro-batch ends, by Spark's order of the sources."""
        path = folder / "main" / "offsets" / str(batch)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()[2:]
            return [from_spark(json.loads(line)) if line != "-" else {} for line in lines]
        except (OSError, ValueError) as error:
            raise PipelineError(f"{path} is damaged: {error}; {DAMAGED_ADVICE}") from error

    def unfinished(self) -> list[Range]:
        """The records of the micro-batch that was planned and has not reached the sinks.

        Empty if that is not known."""
        planned = _numbers(self.folder, "offsets")
        done = _numbers(self.folder, "commits")
        if not planned or max(planned) in done:
            return []
        with contextlib.suppress(BarnabasError):
            ends = least_offsets(self._ends(self.folder, max(planned)))
            begins = least_offsets(self.position() if done else self.starts())
            ranges = [Range(name.topic, name.partition, begins.get(name, 0), end) for name, end in ends.items()]
            return sorted(each for each in ranges if each.start < each.end)
        return []

    def source_order(self) -> list[str]:
        """The sources of the lines in ``main/offsets``: Spark knows them by their order in its
        plan. Empty if it is not known."""
        return list(self._flow_note("order", []))

    def require_order(self, order: Sequence[str]) -> None:
        """Raise `PipelineError` if Spark would take the positions of one source for
        those of another."""
        before = self.source_order()
        if self.has_begun and before and list(order) != before:
            raise PipelineError(
                f"the checkpoint {self.folder} keeps positions by the order in which sources are read (in what is joined with what), which was "
                f"{', '.join(before)} and is {', '.join(order)} now: {OTHER_STATE_ADVICE}"
            )

    def require_state(self, operations: Sequence[str], version: str) -> None:
        """Raise `PipelineError` if the state was made by other operations.

        ``version`` of Spark says what their texts are of."""
        if problem := self.state_problem(operations, version):
            raise PipelineError(f"{problem}: {OTHER_STATE_ADVICE}")

    def state_problem(self, operations: Sequence[str], version: str) -> str:
        """How the operations differ from those that made the state.

        "" if they do not, or nothing can be said."""
        before = self._flow_note("operations", {})
        if not self.has_begun or before.get("version") != version:
            return ""
        texts, shown = before["texts"], [self._flow.hide(each) for each in operations]
        if "digests" in before:
            old, new = before["digests"], _digests(self._flow, operations)
        else:  # of an earlier version
            old, new = [self._flow.hide(each) for each in texts], shown
        at = next((number for number, (was, now) in enumerate(zip_longest(old, new)) if was != now), None)
        if at is None:
            return ""
        was, now = _around_difference(*(dict(enumerate(each)).get(at, "nothing") for each in (texts, shown)))
        return f"the state in the checkpoint {self.folder} was made by {was}, and the flow has {now} now"

    def _flow_note(self, name: str, otherwise: Any) -> Any:
        with contextlib.suppress(OSError, ValueError):  # `changes` reports what is damaged
            return json.loads((self.folder / "flow.json").read_text(encoding="utf-8")).get(name, otherwise)
        return otherwise

    def planned_end(self, query: str, batch: int) -> Offsets:
        """Where a micro-batch of a query with one source ends.

        Spark writes it before it runs the micro-batch."""
        path = self.folder / query / "offsets" / str(batch)
        try:
            return from_spark(json.loads(path.read_text(encoding="utf-8").splitlines()[2]))
        except (OSError, ValueError, IndexError) as error:
            raise PipelineError(f"{path} is damaged: {error}; {DAMAGED_ADVICE}") from error

    def batches(self) -> int:
        """Micro-batches that reached the sinks."""
        return max(_numbers(self.folder, "commits"), default=-1) + 1

    def required_batches(self, sink: Any) -> tuple[str, int] | None:
        """The query's id and the last micro-batch that a sink must hold.

        None if it need not hold any."""
        last = self.batches() - 1
        since = self._since().get(sink_name(sink))
        if since is None or last < since:
            return None
        path = self.folder / "main" / "metadata"
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["id"]), last
        except (OSError, ValueError, KeyError) as error:
            raise PipelineError(f"{path} is damaged: {error}; {DAMAGED_ADVICE}") from error

    def _since(self) -> dict[str, int]:
        """For each sink of the last run the first micro-batch that it was given."""
        return dict(self._flow_note("since", {}))

    def last_run(self) -> dict[str, Any]:
        """What run.json says; empty before the first run."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.folder / "run.json").read_text(encoding="utf-8")))
        return {}

    def note_run(self, figures: Mapping[str, Any]) -> None:
        """Keep the figures of the run that goes on now.

        It began when this is called first, with none.

        Spark's listener is called in a thread of its own, for the last batch a moment after the end
        at times: figures of a run that has ended are left out.
        """
        with _writing:
            last = self.last_run()
            has_ended = last.get("pid") == os.getpid() and "ended" in last
            if figures and has_ended:
                return
            if not self._began:
                goes_on = last.get("pid") == os.getpid() and not has_ended
                self._began = str(last["started"]) if goes_on and "started" in last else _now()
            self._note({"pid": os.getpid(), "started": self._began, **figures})

    def note_end(self, status: str, reason: str | None = None) -> None:
        """Keep how and when the run ended, beside its last figures."""
        with _writing:
            self._began = None
            self._note({**self.last_run(), "ended": _now(), "status": status, "reason": reason})

    def _note(self, run: Mapping[str, Any]) -> None:
        path = self.folder / "run.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(run), encoding="utf-8")
        part.replace(path)

    def note_flow(self, order: Sequence[str] = (), operations: Sequence[str] = (), version: str = "") -> None:
        """Keep what the checkpoint depends on from now on, and which sinks get
        micro-batches from now on."""
        described = {**describe_flow(self._flow), "order": list(order)}
        if version:
            texts = [self._flow.hide(each) for each in operations]
            described["operations"] = {"version": version, "texts": texts, "digests": _digests(self._flow, operations)}
        known, now = self._since(), self.batches()
        described["since"] = {name: min(known.get(name, now), now) for name in described["sinks"]}
        OsFiles().write_atomically(str(self.folder / "flow.json"), json.dumps(described, indent=1).encode())

    def changes(self) -> list[CheckpointChange]:
        """What is different in the flow since the checkpoint was made.

        An empty list for a new checkpoint."""
        if not self.has_begun:
            return []
        try:
            before = json.loads((self.folder / "flow.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise PipelineError(f"{self.folder / 'flow.json'} is damaged: {error}; {DAMAGED_ADVICE}") from error
        return compare_flows(before, self._flow)

    def is_running(self) -> bool:
        """Whether a process holds the checkpoint."""
        if not (self.folder / ".lock").exists():
            return False
        try:
            with OsFiles().lock(str(self.folder / ".lock")):
                return False
        except BlockingIOError:
            return True

    def stop(self, timeout_s: float = 60.0) -> bool:
        """Ask the process that runs the flow to end, and wait for it; False if none runs."""
        if not self.is_running():
            return False
        deadline = time.monotonic() + timeout_s
        pid = self.running_pid()
        patience = deadline - timeout_s + min(timeout_s, _NOTE_S)
        while pid is None and self.is_running() and time.monotonic() < patience:
            time.sleep(0.1)  # it holds the checkpoint, and notes its process in a moment
            pid = self.running_pid()
        if not self.is_running():
            return True
        if pid is None:
            raise PipelineError(
                f"the flow runs, but not as the process of this machine that {self.folder / 'run.json'} names; stop it where it runs"
            )
        with contextlib.suppress(ProcessLookupError):  # it ends by itself
            os.kill(pid, signal.SIGTERM)
        while self.is_running():
            if time.monotonic() > deadline:
                raise PipelineError(f"process {pid} did not end within {timeout_s:.0f} s")
            time.sleep(0.1)
        return True

    def running_pid(self) -> int | None:
        """The process that run.json names, if it has the checkpoint's lock file open: the note
        may be of the run before."""
        pid = self.last_run().get("pid")
        if not isinstance(pid, int):
            return None
        if not Path("/proc/self/fd").is_dir():  # not Linux
            return pid
        lock = str((self.folder / ".lock").resolve())
        with contextlib.suppress(OSError):
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(each) == lock:
                        return pid
        return None

    def reset(self) -> None:
        """Forget position and state.

        What is moved first is what a run begins with, so a reset that is killed is
        one all the same."""
        with _changed(self):
            kept = _new_folder(self.folder)
            for each in _parts(self.folder):
                if each != kept:
                    each.rename(kept / each.name)
            shutil.rmtree(kept, ignore_errors=True)

    def rewind(self, starts: list[Offsets], topics: str | None = None) -> Path:
        """Let the next run begin at these offsets, for each source.

        Returns the folder that keeps what was before. ``topics`` is the text of ``topics.json``:
        the ids of the topics that the offsets are of. Nothing is moved before all is written, so a
        full disk changes nothing, and a rewind that is killed has happened or has not.
        """
        texts = {
            _start_name(self._flow, source): to_json(start)
            for source, start in zip(self._flow.sources, starts, strict=True)
        }
        texts |= {"topics.json": topics} if topics else {}
        with _changed(self):
            kept = _new_folder(self.folder)
            try:
                for name, text in texts.items():
                    OsFiles().write_atomically(str(kept / f"new-{name}"), text.encode())
                    if (self.folder / name).exists():
                        shutil.copy2(self.folder / name, kept / name)
            except BaseException:
                shutil.rmtree(kept, ignore_errors=True)
                raise
            # With the state the flow goes on where it is; without it, it begins
            # where the new files say.
            for name in texts:
                (kept / f"new-{name}").replace(self.folder / name)
            for each in _parts(self.folder):
                if each.name not in (*texts, "flow.json") and not _BEFORE.fullmatch(each.name):
                    each.rename(kept / each.name)
        return kept

    def known_starts(self) -> list[list[Offsets]]:
        """For each source where runs have begun, as far as that is known: at first,
        and after each rewind."""
        folders = [self.folder, *(each for each in self.folder.iterdir() if _BEFORE.fullmatch(each.name))]
        found: list[list[Offsets]] = []
        for source in self._flow.sources:
            starts: list[Offsets] = []
            for folder in folders:
                with contextlib.suppress(OSError, BarnabasError):  # what is damaged says nothing
                    starts.append(from_json((folder / _start_name(self._flow, source)).read_text(encoding="utf-8")))
            found.append(starts)
        return found

    def first_partitions(self) -> list[dict[str, int]]:
        """For each source the least number of partitions that each of its topics had when a run
        began, as far as that is known."""
        found: list[dict[str, int]] = []
        for starts in self.known_starts():
            counts: dict[str, int] = {}
            for topic, count in [pair for start in starts for pair in Counter(name.topic for name in start).items()]:
                counts[topic] = min(count, counts.get(topic, count))
            found.append(counts)
        return found

    def since(self, sink: Any) -> int:
        """The first micro-batch that a sink was given."""
        return self._since().get(sink_name(sink), 0)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps runs away. Raises `PipelineError` if one goes on."""
        lock = OsFiles().lock(str(self.folder / ".lock"))
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock)
            except BlockingIOError as error:
                raise PipelineError(f"another process runs the flow with the checkpoint {self.folder}") from error
            yield


def _start_name(flow: Flow, source: Source) -> str:
    return "start.json" if source is flow.source else f"start-{source.name}.json"


def _numbers(folder: Path, which: str) -> list[int]:
    """The micro-batches of the main query that have a file in one of its folders."""
    files = folder / "main" / which
    return [int(each.name) for each in files.iterdir() if each.name.isdecimal()] if files.is_dir() else []


def _parts(folder: Path) -> list[Path]:
    """What in the folder is this checkpoint's own, the main query's first: results and other
    checkpoints may lie beside it."""
    names = [each for each in folder.iterdir() if _OURS.fullmatch(each.name) or _BEFORE.fullmatch(each.name)]
    # Otherwise it is another flow's.
    ours = [each for each in names if each.is_symlink() or not (each / ".lock").exists()]
    return sorted(ours, key=lambda each: (each.name != "main", each.name))


def _new_folder(folder: Path) -> Path:
    """A folder for what is moved away."""
    name = f"before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    number = sum(each.name.startswith(name) for each in folder.iterdir())
    kept = folder / (f"{name}-{number}" if number else name)
    kept.mkdir(mode=0o700)
    return kept


@contextlib.contextmanager
def _changed(checkpoint: Checkpoint) -> Iterator[None]:
    """Holds a checkpoint while its files are moved.

    Raises `PipelineError` if a run has it, or if a file cannot be written."""
    try:
        with checkpoint.held():
            yield
    except OSError as error:
        raise PipelineError(
            f"the checkpoint {error.filename or checkpoint.folder} cannot be changed: {error.strerror or error}. The flow goes on as "
            "before; mend that, and try again"
        ) from error


def _digests(flow: Flow, operations: Sequence[str]) -> list[str]:
    """What tells operations apart, also if their texts are the same without all secrets, and not
    by a secret that changes."""
    return [_digest(flow.places.expression_secrets.redact(each)) for each in operations]


def _digest(value: Any) -> str:
    """What is compared of a plain value, because texts may hold secrets."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _around_difference(*texts: str) -> list[str]:
    """The texts, cut to what is around the place where they begin to differ."""
    same = next(
        (at for at, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1), min(map(len, texts))
    )
    first = max(0, same - _CONTEXT)
    return [
        f"{'...' if first else ''}{each[first : same + _CONTEXT]}{'...' if same + _CONTEXT < len(each) else ''}"
        for each in texts
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _covered(source: Source, offsets: Offsets) -> Offsets:
    return {name: offset for name, offset in offsets.items() if source.covers(name.topic)}


def describe_flow(flow: Flow) -> dict[str, Any]:
    """What a checkpoint depends on, as plain values."""
    sources = {
        each.name: {
            "topics": list(each.topics),
            "pattern": each.pattern,
            "servers": each.bootstrap_servers,
            "quarantines": each.quarantines,
        }
        for each in flow.sources
    }
    state, code = _state_and_code(flow, lambda _, text: flow.hide(text))
    lasting_state, lasting_code = _state_and_code(flow, flow.places.lasting)
    return {
        "name": flow.name,
        "sources": sources,
        "state": state,
        "code": code,
        "digests": {name: _digest(value) for name, value in (lasting_state | lasting_code).items()},
        "sinks": [sink_name(each) for each in flow.sinks],
        "shuffle_partitions": flow.resources.shuffle_partitions,
    }


def _state_and_code(flow: Flow, text: Callable[[str, str], str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What state depends on by its fields; ``text`` says what a field's text becomes here."""
    state: dict[str, Any] = {}
    code: dict[str, Any] = {}
    for number, step in enumerate(flow.steps):
        place = f"steps[{number}]"
        if step.deduplicate:
            state[f"{place}.deduplicate"] = [text(f"{place}.deduplicate", each) for each in step.deduplicate]
        if step.aggregate:
            state |= _aggregate_state(f"{place}.aggregate", step.aggregate, text)
        if step.sql or step.function:
            field = f"{place}.{'sql' if step.sql else 'function'}"
            code[field] = text(field, step.sql or str(getattr(step.function, "__name__", "")))
    if flow.aggregate:
        state |= _aggregate_state("aggregate", flow.aggregate, text)
    return state, code


def _aggregate_state(place: str, how: Aggregate, text: Callable[[str, str], str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_by": [text(f"{place}.group_by", each) for each in how.group_by],
        "compute": {name: text(f"{place}.compute.{name}", each) for name, each in how.compute.items()},
    }
    for name in ("time", "window", "slide", "session"):
        fields[name] = text(f"{place}.{name}", getattr(how, name) or "")
    return {f"{place}.{name}": value for name, value in fields.items() if value}


def sink_files(flow: Flow) -> dict[str, Path]:
    """The files and folders of the flow's sinks that are on this machine, by the sinks' names."""
    return {sink_name(sink): file for sink in flow.sinks if (file := sink_file(sink))}


def sink_file(sink: Sink) -> Path | None:
    """The file or folder of a sink that is on this machine."""
    place = kind_of(sink).local_place(sink)
    return None if place is None else Path(place.path)


def compare_flows(before: Mapping[str, Any], flow: Flow) -> list[CheckpointChange]:
    """What of the flow differs from the description of the one before, and whether
    the checkpoint still fits."""
    now = describe_flow(flow)
    changes: list[CheckpointChange] = []
    if (name := before.get("name", flow.name)) != flow.name:
        kept = not any(is_table(sink) for sink in flow.sinks)
        text = f"was {name}"
        changes.append(
            CheckpointChange("name", text if kept else f"{text}; tables know their micro-batches by it", fits=kept)
        )
    old_sources, new_sources = before["sources"], now["sources"]
    if list(old_sources) != list(new_sources):
        text = f"were {', '.join(old_sources)}; the checkpoint keeps positions in that order"
        return [CheckpointChange("sources", text, fits=False)]
    for source in flow.sources:
        changes += _source_changes(source.field, old_sources[source.name], new_sources[source.name], source)
    differing = _differing(before, now, flow)
    for name in sorted(differing & {*before["state"], *now["state"]}):
        old = before["state"].get(name)
        was = "was not there" if old is None else f"was {_shown(old)}"
        changes.append(CheckpointChange(name, f"{was}; the state in the checkpoint was made with it", fits=False))
    for name in sorted(differing & {*before["code"], *now["code"]}):
        text = "is different; that is fine unless it joins, groups or deduplicates otherwise, which `run` and `dry-run` refuse"
        changes.append(CheckpointChange(name, text, fits=True))
    for name in now["sinks"]:
        if name not in before["sinks"]:
            changes.append(CheckpointChange("sinks", f"{name} is new; it gets results from now on only", fits=True))
    if before["shuffle_partitions"] != now["shuffle_partitions"] and now["state"]:
        text = f"has no effect: the state is kept in {before['shuffle_partitions']} partitions since the first run"
        changes.append(CheckpointChange("resources.shuffle_partitions", text, fits=True))
    return changes


def _differing(before: Mapping[str, Any], now: Mapping[str, Any], flow: Flow) -> set[str]:
    """The fields of state and code that are not as they were."""
    if "digests" in before:
        old, new = before["digests"], now["digests"]
    else:  # of an earlier version: with secrets, or without those that it knew
        old = _hidden({**before["state"], **before["code"]}, flow)
        new = {**now["state"], **now["code"]}
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _hidden(value: Any, flow: Flow) -> Any:
    """Plain values, their texts without the flow's secrets."""
    if isinstance(value, dict):
        return {name: _hidden(each, flow) for name, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, flow) for each in value]
    return flow.hide(value) if isinstance(value, str) else value


def _source_changes(field: str, old: Mapping[str, Any], new: Mapping[str, Any], source: Any) -> list[CheckpointChange]:
    changes: list[CheckpointChange] = []
    if bool(old.get("quarantines")) != new["quarantines"]:
        text = f"was {'' if old.get('quarantines') else 'not '}quarantine; records up to now were read in the other way"
        changes.append(CheckpointChange(f"{field}.on_max_bad", text, fits=False))
    gone = [name for name in old["topics"] if not source.covers(name)]
    if gone:
        text = f"no longer has {', '.join(gone)}, which the checkpoint has a position in"
        if source.fail_on_data_loss:
            text += "; set fail_on_data_loss = false to leave it behind"
        changes.append(CheckpointChange(f"{field}.topics", text, fits=not source.fail_on_data_loss))
    added = [name for name in new["topics"] if name not in old["topics"] and not old["pattern"]]
    if added:
        changes.append(
            CheckpointChange(f"{field}.topics", f"has {', '.join(added)} now, read from the first record", fits=True)
        )
    if old["servers"] != new["servers"]:
        text = f"was {old['servers']}; the positions are right only if this is the same cluster"
        changes.append(CheckpointChange(f"{field}.bootstrap_servers", text, fits=True))
    return changes


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def lost_rows_error(flow: Flow, sink: Sink, found: int, last: int) -> PipelineError:
    """A sink holds micro-batches up to ``found`` (-1: none), but the checkpoint
    counts ``last`` as done."""
    has = "nothing that this flow wrote" if found < 0 else f"micro-batches up to {found} only"
    return PipelineError(
        f"{sink_name(sink)} holds {has}, but the checkpoint counts {last} as done: was it deleted, or restored "
        f"from an older copy? Restore it as it was; or let the flow fill it again from the topics: "
        f"`{flow.places.command('rewind')} --to earliest --yes`; or give the sink another table, which gets results from now on"
    )
