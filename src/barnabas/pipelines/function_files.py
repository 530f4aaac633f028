"""Functions in Python files that a flow's file names, ``functions.py:late``: run to be used, or only read to be checked.

A file is code: to run it may have any effect. What looks at a flow without running it parses the file, and finds as much as can be
known so: whether there is such a function, and its parameters if it is a plain ``def``.
"""

import ast
import inspect
import runpy
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError

__all__ = ["ANY_PARAMETERS", "parse_function", "run_function_file"]

ANY_PARAMETERS = inspect.Signature([inspect.Parameter("_", inspect.Parameter.VAR_POSITIONAL)])
"""Of a function whose parameters are not known before its file is run."""


@cache
def run_function_file(path: str) -> Mapping[str, Any]:
    """What the file defines."""
    # Not imported: functions of a module that workers cannot import are sent to them whole.
    return runpy.run_path(path, run_name="barnabas_flow_functions")


def parse_function(path: str, name: str) -> Callable[..., Any] | None:
    """A function of this name and these parameters that cannot be called; None if the file has none. Raises `OSError`, `SyntaxError`, `ValueError`."""
    tree = ast.parse(Path(path).read_bytes(), path)
    found = [each for each in _statements(tree.body) if name in _names(each)]
    if not found:
        return None

    def unloaded(*_: object) -> object:
        raise BarnabasError(f"{path} was not run, so {name} cannot be called")

    unloaded.__name__ = name
    last: Any = found[-1]
    is_plain = isinstance(last, ast.FunctionDef) and not last.decorator_list and len(found) == 1
    unloaded.__signature__ = _signature(last.args) if is_plain else ANY_PARAMETERS  # type: ignore[attr-defined]
    return unloaded


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those in its conditions and the like too, without those of functions and classes."""
    for each in body:
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts = [*ast.iter_child_nodes(each)]
            parts += [part for handler in parts if isinstance(handler, ast.ExceptHandler) for part in handler.body]
            yield from _statements([part for part in parts if isinstance(part, ast.stmt)])


def _names(statement: ast.stmt) -> set[str]:
    """What a statement binds in its module."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    targets = [each for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return {each.id for each in targets}


def _signature(arguments: ast.arguments) -> inspect.Signature:
    kind, plain = inspect.Parameter, [*arguments.posonlyargs, *arguments.args]
    needed = len(plain) - len(arguments.defaults)
    found = [
        kind(
            each.arg,
            kind.POSITIONAL_ONLY if number < len(arguments.posonlyargs) else kind.POSITIONAL_OR_KEYWORD,
            default=kind.empty if number < needed else None,
        )
        for number, each in enumerate(plain)
    ]
    if arguments.vararg:
        found.append(kind(arguments.vararg.arg, kind.VAR_POSITIONAL))
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(kind(each.arg, kind.KEYWORD_ONLY, default=kind.empty if default is None else None))
    if arguments.kwarg:
        found.append(kind(arguments.kwarg.arg, kind.VAR_KEYWORD))
    return inspect.Signature(found)
