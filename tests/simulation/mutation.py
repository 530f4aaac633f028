"""Ways to put a defect into the code in memory; each fails loudly where the code is not as the mutant expects it."""

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

__all__ = ["MutantOutdatedError", "patch", "rewrite"]


class MutantOutdatedError(Exception):
    """The code moved on; the mutant must follow it."""


def patch(owner: Any, name: str, value: object) -> None:
    """Replace a class's or a module's function, also where other modules imported it."""
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        raise MutantOutdatedError(f"{owner.__name__} has no {name}")
    if inspect.ismodule(owner):
        for module in list(sys.modules.values()):
            if (
                module is not None
                and module.__name__.startswith("barnabas")
                and getattr(module, name, None) is original
            ):
                setattr(module, name, value)
    setattr(owner, name, value)


def rewrite(owner: Any, name: str, old: str, new: str) -> None:
    """Compile a function again with ``old`` replaced by ``new`` in its source, where it must stand exactly once."""
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        raise MutantOutdatedError(f"{owner.__name__} has no {name}")
    function: Callable[..., Any] = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise MutantOutdatedError(f"{owner.__name__}.{name} holds {old!r} {source.count(old)} times, not once")
    namespace = function.__globals__
    before = namespace.get(name)
    exec(compile(source.replace(old, new), f"<mutant of {name}>", "exec"), namespace)  # our own source
    mutated = namespace.pop(name)
    if before is not None:
        namespace[name] = before  # `patch` finds the original by identity
    patch(owner, name, mutated)
