"""A flow in Python: the same model as the TOML file, with functions where the file has SQL.

Needs no Spark by itself.

    from barnabas.pipelines.flows import declare, fields, sqlite, topic

    def late(flights):
        return flights.where("delay > 15")

    flow = declare(
        "late-flights",
        checkpoint="state/late-flights",
        sources={"flights": topic("flights", format=fields("csv", carrier="string", delay="int"))},
        steps=[late],
        sinks=[sqlite("late.db", "late_flights")],
    )

`declare` takes what the file's tables hold, under the same names, and checks it with the same code:
an error names the file and line of this program. ``barnabas pipeline run flow.py`` (``check`` and
the other commands, too) takes the variable ``flow``.
"""

import ast
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from barnabas.pipelines.flow_file.fields import SpecError, SpecProblem
from barnabas.pipelines.flow_file.function_files import FunctionUse
from barnabas.pipelines.specification import spec

__all__ = [
    "declare",
    "fields",
    "foreach_batch",
    "load_flow",
    "output",
    "postgresql",
    "sqlite",
    "to_topic",
    "topic",
]

Table = dict[str, Any]
_overrides: ContextVar[Sequence[str]] = ContextVar("overrides", default=())
"""What ``--set`` asks for, while a program is loaded by a command."""


def declare(name: str, *, checkpoint: str, sinks: Sequence[Any], **tables: Any) -> spec.Flow:
    """A flow of the tables of docs/reference/pipelines.md: ``source`` or ``sources``,
    ``steps``, ``sinks`` and so on.

    A step may be a function DataFrame -> DataFrame whose name is the name of its view; its
    parameters name the views that it takes, and ``rows`` is the one before. A sink may be a
    function of a micro-batch's rows and its number. Relative paths are taken from the folder of the
    calling program. Raises `SpecError`.
    """
    caller = sys._getframe(1)
    file = caller.f_code.co_filename
    values = _plain({"name": name, "checkpoint": checkpoint, **tables, "sinks": list(sinks)})
    _set_brokers(values)
    lines = _lines_of_call(file, caller.f_lineno)
    return spec.read_flow(values, lines, file=file, overrides=_overrides.get(), environ=os.environ)


def topic(
    *topics: str,
    bootstrap_servers: str | None = None,
    format: Mapping[str, Any] | None = None,  # noqa: A002  # the field's name in the file
    watermark: tuple[str, str] | Mapping[str, str] | None = None,
    **more: Any,
) -> Table:
    """A source: topics, the format of their values, and (column of event time, delay);
    ``more`` as in the file.

    ``watermark`` may be the file's table, too: ``{"time": "at", "delay": "1 hour"}``. Without
    ``bootstrap_servers`` the first source of a flow is at localhost:9092, the others where
    the first is.
    """
    table: Table = {
        "topics": list(topics),
        **({"bootstrap_servers": bootstrap_servers} if bootstrap_servers else {}),
        **more,
    }
    table["format"] = dict(format) if format is not None else fields("text")
    if isinstance(watermark, list | tuple) and len(watermark) == 2:
        table["watermark"] = {"time": watermark[0], "delay": watermark[1]}
    elif watermark is not None:
        # The table as in the file; anything else is refused with its line, as there.
        table["watermark"] = watermark
    return table


def fields(type: str, /, **columns: str) -> Table:  # noqa: A002  # the field's name in the file
    """A format and its columns with their types.

    Add its other fields with ``|``: ``fields("csv", ...) | {"null": "NA"}``."""
    return {"type": type, "columns": columns} if columns else {"type": type}


def sqlite(path: str, table: str, *, key: Sequence[str] = ()) -> Table:
    """A table of a SQLite file."""
    return _sink("sqlite", key, path=path, table=table)


def postgresql(url: str, table: str, *, key: Sequence[str] = ()) -> Table:
    """A table of PostgreSQL."""
    return _sink("postgresql", key, url=url, table=table)


def to_topic(name: str, *, key: Sequence[str] = (), **more: Any) -> Table:
    """A topic that takes results as JSON."""
    return _sink("topic", key, topic=name, **more)


def foreach_batch(function: Callable[[Any, int], None], *, key: Sequence[str] = ()) -> Table:
    """A function that takes each micro-batch's rows, as a DataFrame, and its number.

    After a crash it is called again with the number and the rows of the micro-batch
    that did not end.
    """
    return _sink("function", key, function=function)


def output(type: str, /, *, key: Sequence[str] = (), **fields: Any) -> Table:  # noqa: A002  # the field's name in the file
    """A sink of any kind, with its fields as in the file:
    ``output("delta", path="late", key=["id"])``."""
    return _sink(type, key, **fields)


def _sink(type_name: str, key: Sequence[str], **values: Any) -> Table:
    return {"type": type_name, **values, **({"key": list(key)} if key else {})}


def load_flow(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), *, functions: FunctionUse = FunctionUse.RUN
) -> spec.Flow:
    """A flow from a file of either kind; raises `SpecError`.

    ``functions`` is as for `spec.load`. A flow in Python is code itself, which is run in any case.
    """
    file = Path(path)
    if file.suffix != ".py":
        return spec.load(file, overrides, functions=functions)
    folder = str(file.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Spark's workers import what the program imports; they take the path from the environment.
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, known)])
    token = _overrides.set(overrides)
    try:
        flow = runpy.run_path(str(file), run_name="barnabas_flow").get("flow")
    except spec.SpecError:
        raise
    except FileNotFoundError as error:
        raise SpecError(f"cannot read {file}: {error}") from error
    except Exception as error:
        line = _line_in(file, error)
        text = f"{type(error).__name__}: {error}"
        raise SpecError(f"{file}:{line}: {text}", [SpecProblem(str(file), line, "", text)]) from error
    finally:
        _overrides.reset(token)
    if not isinstance(flow, spec.Flow):
        raise SpecError(f"{file}: sets no variable flow = declare(...)")
    return flow


def _line_in(file: Path, error: BaseException) -> int:
    line = getattr(error, "lineno", None) or 1 if isinstance(error, SyntaxError) else 1
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return int(line)


def _plain(value: Any) -> Any:
    """The values as the TOML reader would give them."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _set_brokers(values: Table) -> None:
    """The first source is on this machine unless it names brokers.

    Others follow it, as in a file."""
    sources = values.get("sources")
    first = next(iter(sources.values()), None) if isinstance(sources, dict) else values.get("source")
    if isinstance(first, dict):
        first.setdefault("bootstrap_servers", "localhost:9092")


def _lines_of_call(file: str, line: int) -> dict[str, int]:
    """Where the fields stand in the call of `declare` that covers the line."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}  # typed into a shell
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _called(each) == "declare"]
    for call in calls:
        if call.lineno <= line <= (call.end_lineno or call.lineno):
            found = dict(_walk(call, ""))
            return {"name": call.lineno, **found}
    return {}


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _walk(node: ast.expr, path: str) -> Iterator[tuple[str, int]]:
    if path:
        yield path, node.lineno
    parts: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Call):
        inner = f"{path}.columns" if _called(node) == "fields" else path
        parts = [(f"{inner}.{each.arg}".lstrip("."), each.value) for each in node.keywords if each.arg]
    elif isinstance(node, ast.Dict):
        texts = [
            (str(each.value) if isinstance(each, ast.Constant) and isinstance(each.value, str) else None)
            for each in node.keys
        ]
        parts = [(f"{path}.{text}", value) for text, value in zip(texts, node.values, strict=True) if text]
    elif isinstance(node, ast.List | ast.Tuple):
        parts = [(f"{path}[{at}]", each) for at, each in enumerate(node.elts)]
    elif isinstance(node, ast.BinOp):
        yield from _walk(node.left, path)
        yield from _walk(node.right, path)
    for part, value in parts:
        yield from _walk(value, part)
