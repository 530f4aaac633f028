"""Names that a package offers and imports at their first use, so that a tool does not
load what it does not need.

Kafka has no counterpart.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["import_lazily", "keep_modules"]


def import_lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: ``homes`` says in which of its modules each name is defined."""

    def import_name(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)  # the next time it is simply there
        return value

    return import_name


class _Kept(ModuleType):
    """A module under the name that it had; what is in it is looked up in the one that it became."""

    def __init__(self, name: str, became: str) -> None:
        super().__init__(name, f"Kept for pickles and programs that name it; see `{became}`.")
        self._became = became

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self._became), name)


def keep_modules(package: str, became: Mapping[str, str]) -> None:
    """Let modules of a package be found under their former names.

    They are imported when one of their names is used."""
    for name, module in became.items():
        sys.modules[f"{package}.{name}"] = _Kept(f"{package}.{name}", f"{package}.{module}")
