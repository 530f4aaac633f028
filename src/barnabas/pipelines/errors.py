"""From Spark's long exceptions to one line that a person can act on."""

import contextlib
import re
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from barnabas.base.errors import BarnabasError

__all__ = [
    "DAMAGED_ADVICE",
    "OTHER_STATE_ADVICE",
    "REFILL_ADVICE",
    "DataLossError",
    "PipelineError",
    "reason_of",
    "secrets_hidden",
    "with_advice",
]

OTHER_STATE_ADVICE = "undo the change, give the flow another checkpoint, or forget position and state with `barnabas pipeline reset FILE --yes`"
"""What to do about a flow whose checkpoint is of another."""
REFILL_ADVICE = "let the flow fill it again from the topics, with `barnabas pipeline rewind FILE --to earliest --yes`"
"""What to do about a sink that lost rows."""
DAMAGED_ADVICE = "restore it from a copy, or let the flow begin at a place that you name, with `barnabas pipeline rewind FILE --to WHERE --yes`"
"""What to do about a file of a checkpoint that cannot be read."""
_PYTHON_ERROR = re.compile(r"^\s*([A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
_OURS = (
    *("BarnabasError", "ConfigError", "ClusterError", "DataLossError", "PipelineError", "SchemaLookupError"),
    *("UnwritableColumnError", "UnwritableRowError"),
    *("AuthenticationError", "ConfigurationError", "ConnectError"),
)
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in ', re.MULTILINE)
_INSTALLED = re.compile(r"/(site-packages|dist-packages|lib/python3[.\d]*|barnabas|pyspark(\.zip)?)/|^<|\.zip/")
_WRONG_ARROW = (
    "a function on Arrow gave a column of another type than it declares: int is pa.int32(), bigint is pa.int64(), double is "
    "pa.float64(), timestamp is pa.timestamp('us', 'UTC')"
)
_FULL = ("No space left on device", "Disk quota exceeded", "database or disk is full")
_SHORT_BYTES = 64 * 2**20
"""Less free space than this is shown as the reason why a disk is full."""
_JVM_ERROR = re.compile(r"^(?:Caused by: )(?:[\w.$]+): (.+)$", re.MULTILINE)
_THROWN = re.compile(r"^: (?:[\w.$]+): (.+)$", re.MULTILINE)
_OTHER_STATE = re.compile(r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE")
_OTHER_TYPES = (
    f"the state in the checkpoint was made with other types of columns than the flow has now: {OTHER_STATE_ADVICE}"
)
_NO_REASON = "Spark broke off a micro-batch and gave no reason: run the flow again, it goes on from its checkpoint"


class PipelineError(BarnabasError):
    """A flow could not start, or broke."""


class DataLossError(BarnabasError):
    """Records that a query was to read are gone: deleted by retention, or with their topic."""

    @classmethod
    def gone(cls, topic: str, partition: int, what: str) -> "DataLossError":
        """Records of a partition are no longer there.

        ``what`` says which, with a full stop or a question mark."""
        return cls(f"{topic}-{partition} {what} To go on with what is there, set failOnDataLoss to false.")


def reason_of(error: Exception, ours: BaseException | None = None) -> BarnabasError:
    """The deepest reason in an exception of Spark's.

    ``ours`` is what our own code in the driver raised, if it did."""
    if isinstance(ours, BarnabasError):
        return ours
    if found := _OTHER_STATE.search(str(error)) or _OTHER_STATE.search(str(ours)):
        return PipelineError(f"{_OTHER_TYPES} ({found[0]})")
    if "ArrowColumnVector$ArrowVectorAccessor" in str(ours or error):
        return PipelineError(_WRONG_ARROW)
    if ours is not None and _TRACEBACK not in str(ours) and not type(ours).__name__.startswith("Py4J"):
        text = _first_line(str(ours))
        plain = _without_codes(text)
        return PipelineError(plain if plain != text else f"{type(ours).__name__}: {text}{_place_of(ours)}")
    text = str(ours or error)
    errors = [found for found in _PYTHON_ERROR.finditer(text) if not found[2].startswith("Py4J")]
    if errors:
        module, kind, message = errors[-1].groups()
        if kind in _OURS or (module or "").startswith("barnabas."):
            return PipelineError(message)
        return PipelineError(f"{kind}: {message}{_shown_place(_FRAME.findall(text[: errors[-1].start()]))}")
    if causes := _JVM_ERROR.findall(text):
        return PipelineError(_without_codes(causes[-1]))
    first = _first_line(text)
    # Py4J's words for an exception of the JVM.
    if first.startswith("An error occurred while calling"):
        thrown = _THROWN.search(text)
        return PipelineError(_without_codes(thrown[1]) if thrown else _NO_REASON)
    return PipelineError(_without_codes(first) if first.startswith("[USER_RAISED_EXCEPTION]") else first)


@contextlib.contextmanager
def secrets_hidden(hide: Callable[[str], str]) -> Iterator[None]:
    """Raise the block's error in words for a person, without secrets; ``hide`` is the flow's."""
    try:
        yield
    except BarnabasError as error:
        lines = [hide(each) for each in error.lines]
        if lines == list(error.lines):
            raise
        raise PipelineError.of_lines(*lines) from None


def with_advice(error: BarnabasError, checkpoint: Path, sinks: Mapping[str, Path] | None = None) -> BarnabasError:
    """The error; if a disk is full, with the folders that may be on it and what to do.

    ``sinks`` has files by their sinks' names."""
    if not any(words in str(error) for words in _FULL):
        return error
    folders = {"the checkpoint": checkpoint, "Spark's scratch files": Path(tempfile.gettempdir()), **(sinks or {})}
    free = {what: shutil.disk_usage(_nearest(folder)).free for what, folder in folders.items()}
    short = [what for what in free if free[what] < _SHORT_BYTES] or list(free)
    shown = [f"{what} ({folders[what]}: {free[what] / 2**20:,.1f} MiB free)" for what in short]
    others = "" if sinks is not None else ", or for a sink on this machine"
    return PipelineError(
        f"{error}: free some for {' or '.join(shown)}{others}, and start the flow again; it goes on from its checkpoint, and "
        "nothing is lost"
    )


def _nearest(path: Path) -> Path:
    """The path, or what there is of its folders."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def _place_of(error: BaseException) -> str:
    """Where in code of the flow's author an exception came from."""
    frames = traceback.extract_tb(error.__traceback__)
    return _shown_place([(frame.filename, str(frame.lineno)) for frame in frames])


def _shown_place(frames: Sequence[tuple[str, str]]) -> str:
    """The innermost frame that is neither ours nor of an installed package."""
    ours = [each for each in frames if not _INSTALLED.search(each[0])]
    return f" ({Path(ours[-1][0]).name}, line {ours[-1][1]})" if ours else ""


def _without_codes(text: str) -> str:
    """A message of Spark's without its condition and SQLSTATE."""
    return _SQL_STATE.sub("", _CONDITION.sub("", text))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason was given"
