"""Tables of a view: their order, what a filter keeps, and which columns a narrow terminal shows.

In Kafka: the columns of `ToolsUtils.prettyPrintTable`, which are all shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Cell", "Column", "Level", "ShownColumn", "TableRow", "ViewTable", "filtered", "fit", "ordered", "shortened"]

CellValue = str | int | float | None
_GAP = 2
_LEAST_NAME, _WHOLE_NAME = 12, 24


class Cell(NamedTuple):
    """A value, by which rows are ordered, and its text."""

    value: CellValue
    text: str


class Level(StrEnum):
    """How much a row asks for attention."""

    PLAIN = "plain"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Of those with the greatest ``rank`` a narrow terminal goes without first; one of
    rank 0 stays."""

    title: str
    name: str
    """In JSON documents."""
    rank: int = 1
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class TableRow:
    """``key`` names the thing that the row is about, whatever the order."""

    key: str
    cells: Sequence[Cell]
    level: Level = Level.PLAIN


@dataclass(frozen=True, slots=True)
class ViewTable:
    """Rows in the view's own order; the first column has the name."""

    columns: Sequence[Column]
    rows: Sequence[TableRow]
    note: str = ""
    """What it cannot show."""


def ordered(table: ViewTable, column: int | None, *, descending: bool = False) -> ViewTable:
    """By a column. Rows with equal values keep their order, and those without a value come last,
    whichever way. None keeps the view's own order."""
    if column is None or not 0 <= column < len(table.columns):
        return table
    known = [row for row in table.rows if row.cells[column].value is not None]
    unknown = [row for row in table.rows if row.cells[column].value is None]
    known.sort(key=lambda row: _order(row.cells[column].value), reverse=descending)
    return replace(table, rows=[*known, *unknown])


def _order(value: CellValue) -> tuple[bool, float, str]:
    """Numbers before texts: a column may have both."""
    return (True, 0.0, value.lower()) if isinstance(value, str) else (False, float(value or 0), "")


def filtered(table: ViewTable, text: str) -> ViewTable:
    """The rows in which each word of ``text`` is part of a cell, whatever its case."""
    words = text.lower().split()
    rows = [row for row in table.rows if all(any(word in cell.text.lower() for cell in row.cells) for word in words)]
    return replace(table, rows=rows)


class ShownColumn(NamedTuple):
    """A column that is shown: its place in the table, and its width in columns of the terminal."""

    place: int
    width: int


def fit(
    table: ViewTable, width: int, measure: Callable[[str], int], rows: Sequence[TableRow] | None = None
) -> list[ShownColumn]:
    """The columns for a terminal of this width.

    The least important ones are left out until the rest fits with 24 columns for a text; then
    longer texts are made shorter, the first column last. ``rows`` are those that are seen; None
    for all.
    """
    seen = table.rows if rows is None else rows
    widths = [
        max([measure(column.title), *(measure(row.cells[place].text) for row in seen)])
        for place, column in enumerate(table.columns)
    ]
    kept = list(range(len(table.columns)))

    def needed() -> int:
        texts_cut = [widths[at] if table.columns[at].is_number else min(widths[at], _WHOLE_NAME) for at in kept]
        return sum(texts_cut) + _GAP * (len(kept) - 1)

    while needed() > width:
        rank, place = max((table.columns[place].rank, place) for place in kept)
        if not rank:
            break
        kept.remove(place)
    over = sum(widths[place] for place in kept) + _GAP * (len(kept) - 1) - width
    for place in reversed(kept):
        if over > 0 and not table.columns[place].is_number:
            shorter = max(min(widths[place], _LEAST_NAME), widths[place] - over)
            over -= widths[place] - shorter
            widths[place] = shorter
    return [ShownColumn(place, widths[place]) for place in kept]


def shortened(text: str, width: int, measure: Callable[[str], int]) -> str:
    """At most ``width`` columns: the middle of a longer text is left out, since names of a kind
    often differ at their ends only."""
    if measure(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail_width = (width - 1) // 2
    head = _prefix(text, width - 1 - tail_width, measure)
    tail = _prefix(text[::-1], tail_width, measure)[::-1]
    return f"{head}…{tail}"


def _prefix(text: str, width: int, measure: Callable[[str], int]) -> str:
    """As much of a text as has this width; a long one is not measured as a whole."""
    taken, found = 0, 0
    for letter in text:
        taken += measure(letter)
        if taken > width:
            break
        found += 1
    return text[:found]
