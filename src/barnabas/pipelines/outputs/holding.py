"""What an output holds now, looked at without changing it: for ``barnabas pipeline dry-run``. Needs no output's package."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.pipelines.outputs.declared import OutputError
from barnabas.pipelines.sql import select_epoch_statement

__all__ = ["Holding", "noted_epoch", "require_writable"]


@dataclass(frozen=True, slots=True)
class Holding:
    """A table that is there."""

    columns: tuple[str, ...] | None
    """None if they are not known."""
    last_epoch: int | None
    """The last micro-batch of the query, -1 for none; None if the output keeps no such note."""


def require_writable(path: str, *, makes_folders: bool) -> None:
    """Raise `OutputError` if a file or folder of an output cannot be written, or not be made."""
    nearest = next(each for each in (Path(path), *Path(path).absolute().parents) if each.exists())
    folder = Path(path).absolute().parent
    if not makes_folders and not folder.is_dir():
        raise OutputError(f"{path} cannot be made: there is no folder {folder}")
    if not os.access(nearest, os.W_OK):
        raise OutputError(f"{nearest} cannot be written")


def noted_epoch(
    ask: Callable[..., list[Any]], placeholder: str, has_notes: object, flow: str, table: str, query: str
) -> int:
    """What a database's table of epochs says; ``ask`` runs a statement with values, ``has_notes`` says if the table is there."""
    noted = ask(select_epoch_statement(placeholder), [flow, table, query]) if has_notes else []
    return int(noted[0][0]) if noted else -1
