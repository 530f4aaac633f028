"""Functions in Python files that a flow's file names, ``functions.py:late``: run to be used, or
only read to be checked.

A file is code: to run it may have any effect. What looks at a flow without running it parses the
file, and finds as much as can be known so: whether there is such a function, and its parameters
if it is a plain ``def``.
"""

import ast
import enum
import inspect
import runpy
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError

__all__ = ["ANY_PARAMETERS", "FunctionUse", "find_function", "parse_function", "run_function_file"]

ANY_PARAMETERS = inspect.Signature([inspect.Parameter("_", inspect.Parameter.VAR_POSITIONAL)])
"""The signature of a function whose parameters are not known before its file is run."""

_NAME_MAKERS = ("exec", "eval", "globals", "locals", "vars", "setattr", "modules")


class FunctionUse(enum.Enum):
    """What becomes of a file with functions."""

    RUN = enum.auto()
    """It is run, so that they can be called."""
    PARSE = enum.auto()
    """It is parsed, so that they can be checked."""
    NAME = enum.auto()
    """Nothing: who asks for the state of a flow, or stops it, does not judge its functions."""


@cache
def run_function_file(path: str) -> Mapping[str, Any]:
    """What the file defines."""
    # Not imported: functions of a module that workers cannot import are sent to them whole.
    return runpy.run_path(path, run_name="barnabas_flow_functions")


def find_function(path: str, name: str, use: FunctionUse) -> object:
    """What a file has under a name; None if it has nothing.

    Raises what the file raises, and as `parse_function`."""
    if use is FunctionUse.RUN:
        return run_function_file(path).get(name)
    return parse_function(path, name) if use is FunctionUse.PARSE else _unloaded(path, name, ANY_PARAMETERS)


def parse_function(path: str, name: str) -> Callable[..., Any] | None:
    """A function of this name and these parameters that cannot be called.

    None if the file has none. Raises `OSError`, `SyntaxError`, `ValueError`. A file that may make
    names which do not stand in it, by ``from x import *``, say, may have any function.
    """
    tree = ast.parse(Path(path).read_bytes(), path)
    found = [each for each in _statements(tree.body) if name in _names(each)]
    found += [each for each in ast.walk(tree) if isinstance(each, ast.Global) and name in each.names]
    makes_names = any(map(_makes_names, ast.walk(tree)))
    if not found and not makes_names:
        return None
    only = found[0] if len(found) == 1 and not makes_names else None
    if isinstance(only, ast.FunctionDef) and not only.decorator_list:
        return _unloaded(path, name, _signature(only.args))
    return _unloaded(path, name, ANY_PARAMETERS)


def _unloaded(path: str, name: str, signature: inspect.Signature) -> Callable[..., Any]:
    def unloaded(*_: object) -> object:
        raise BarnabasError(f"{path} was not run, so {name} cannot be called")

    unloaded.__name__ = name
    unloaded.__signature__ = signature  # type: ignore[attr-defined]
    return unloaded


def _makes_names(node: ast.AST) -> bool:
    """Whether this may bind names of the module that do not stand in its file."""
    if isinstance(node, ast.ImportFrom):
        return any(each.name == "*" for each in node.names)
    if isinstance(node, ast.Attribute):
        return node.attr in ("__dict__", "modules")
    return isinstance(node, ast.Name) and node.id in _NAME_MAKERS


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those in its conditions and the like too, without those
    of functions and classes."""
    for each in body:
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts = [*ast.iter_child_nodes(each)]
            parts += [
                part for case in parts if isinstance(case, ast.ExceptHandler | ast.match_case) for part in case.body
            ]
            yield from _statements([part for part in parts if isinstance(part, ast.stmt)])


def _names(statement: ast.stmt) -> set[str]:
    """What a statement binds in its module."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    parts = [*ast.walk(statement)]
    names = {each.id for each in parts if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names |= {each.name for each in parts if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name}
    return names | {each.rest for each in parts if isinstance(each, ast.MatchMapping) and each.rest}


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
