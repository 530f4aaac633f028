"""The lines of a screen: one table, or the first rows of each view below each other.

A line is a title, a table's header, a row, or a note. Only those that are seen are made into
texts, since a table may have thousands of rows.

Kafka has no counterpart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from barnabas.top.navigation import ALL, Navigation, current_table, navigated
from barnabas.top.rates import Seen
from barnabas.top.tables import Level, ShownColumn, TableRow, ViewTable, fit, shortened
from barnabas.top.views import VIEWS

__all__ = ["Layout", "LineKind", "RowPlace", "ScreenLine", "TextRules", "layout_of"]

_GAP = "  "
_LEAST_ROWS = 3


class TextRules(NamedTuple):
    """How texts are shown: ``escape`` makes one line of any text, ``measure`` gives its width."""

    escape: Callable[[str], str]
    measure: Callable[[str], int]

    def width(self, text: str) -> int:
        return self.measure(self.escape(text))

    def fitted(self, text: str, width: int, *, right: bool = False) -> str:
        """As wide as a column: shorter, or filled up with blanks."""
        shown = shortened(self.escape(text), width, self.measure)
        blanks = " " * (width - self.measure(shown))
        return blanks + shown if right else shown + blanks


class LineKind(StrEnum):
    """What a line is."""

    TITLE = "title"
    HEADER = "header"
    ROW = "row"
    NOTE = "note"
    BLANK = "blank"


class RowPlace(NamedTuple):
    """What a row is about: its view, and its key there."""

    view: str
    key: str


class ScreenLine(NamedTuple):
    """A line, before it is a text. ``row`` is its row's number in the section's table."""

    kind: LineKind
    section: int
    row: int = -1
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    view: str
    table: ViewTable
    shown: Sequence[ShownColumn]


@dataclass(frozen=True, slots=True)
class Layout:
    """Lines for a terminal of a width."""

    lines: Sequence[ScreenLine]
    sections: Sequence[_Section]
    rules: TextRules
    width: int

    def text(self, number: int) -> tuple[str, LineKind, Level]:
        """A line's text, its kind, and the level of its row."""
        line = self.lines[number]
        section = self.sections[line.section] if self.sections else None
        if section is None or line.kind in (LineKind.TITLE, LineKind.NOTE, LineKind.BLANK):
            return shortened(self.rules.escape(line.text), self.width, self.rules.measure), line.kind, Level.PLAIN
        if line.kind == LineKind.HEADER:
            titles = [section.table.columns[each.place].title for each in section.shown]
            return self._joined(section, titles), line.kind, Level.PLAIN
        row = section.table.rows[line.row]
        texts = [row.cells[each.place].text for each in section.shown]
        return self._joined(section, texts), line.kind, row.level

    def _joined(self, section: _Section, texts: Sequence[str]) -> str:
        columns = section.table.columns
        return _GAP.join(
            self.rules.fitted(text, each.width, right=columns[each.place].is_number and bool(each.place))
            for text, each in zip(texts, section.shown, strict=True)
        )

    def place(self, number: int) -> RowPlace | None:
        """What a line is about; None for one that is no row."""
        if not 0 <= number < len(self.lines) or self.lines[number].kind != LineKind.ROW:
            return None
        line = self.lines[number]
        section = self.sections[line.section]
        return RowPlace(section.view, section.table.rows[line.row].key)

    def number_of(self, place: RowPlace | None) -> int | None:
        """Where a row is now."""
        if place is None:
            return None
        return next((number for number in self.row_numbers if self.place(number) == place), None)

    @property
    def row_numbers(self) -> list[int]:
        return [number for number, line in enumerate(self.lines) if line.kind == LineKind.ROW]


def layout_of(navigation: Navigation, seen: Seen, width: int, height: int, rules: TextRules) -> Layout:
    """One table whole, or of all views as many rows as ``height`` has room for, at least three."""
    if navigation.view != ALL:
        table = current_table(navigation, seen)
        section = _Section(navigation.view, table, fit(table, width, rules.width))
        return Layout(_table_lines(0, table, table.rows, navigation, width), [section], rules, width)
    tables = {view: current_table(navigated(navigation, view), seen) for view in VIEWS}
    counts = _shares([len(table.rows) for table in tables.values()], height)
    sections, lines = [], []
    for number, ((view, table), count) in enumerate(zip(tables.items(), counts, strict=True)):
        rows = table.rows[:count]
        sections.append(_Section(view, table, fit(table, width, rules.width, rows)))
        lines.append(ScreenLine(LineKind.TITLE, number, text=_title(view, table, count)))
        lines += _table_lines(number, table, rows, navigated(navigation, view), width)
        lines.append(ScreenLine(LineKind.BLANK, number))
    return Layout(lines[:-1], sections, rules, width)


def _title(view: str, table: ViewTable, count: int) -> str:
    total = len(table.rows)
    return f"{VIEWS[view].title} ({count} of {total})" if count < total else f"{VIEWS[view].title} ({total})"


def _table_lines(
    section: int, table: ViewTable, rows: Sequence[TableRow], navigation: Navigation, width: int
) -> list[ScreenLine]:
    lines = [ScreenLine(LineKind.HEADER, section)] if rows else []
    lines += [ScreenLine(LineKind.ROW, section, number) for number in range(len(rows))]
    if not rows and navigation.filter:
        lines.append(ScreenLine(LineKind.NOTE, section, text=f"no row has {navigation.filter!r}"))
    elif table.note:
        lines += [ScreenLine(LineKind.NOTE, section, text=text) for text in _wrapped(table.note, width)]
    elif not rows:
        lines.append(ScreenLine(LineKind.NOTE, section, text="none"))
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """In lines of this many letters; a longer word stays whole."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _shares(wanted: Sequence[int], height: int) -> list[int]:
    """How many rows each section gets: equal shares, and what one does not need goes to others."""
    left = height - 4 * len(wanted)
    shares = [min(count, _LEAST_ROWS) for count in wanted]
    left -= sum(shares)
    while left > 0 and (hungry := [at for at, count in enumerate(wanted) if shares[at] < count]):
        for at in hungry[:left]:
            shares[at] += 1
        left -= len(hungry[:left])
    return shares
