"""Two sets of rows, and where they differ: in a SQLite file, so that tables may be larger than memory. Needs no Spark.

A row is its key and its values, both as texts in one form (`text_of`). Rows are put by key, as a sink puts them: what was there is replaced.
"""

import datetime
import decimal
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.pipelines.texts import as_text_value, json_values

__all__ = ["EXPECTED", "FOUND", "RowComparison", "RowDifference", "rows_of", "text_of"]

EXPECTED, FOUND = "expected", "found"


class RowDifference(NamedTuple):
    """The rows of a key that are expected and those that are found: missing, extra, or different."""

    key: str
    expected: list[str]
    found: list[str]

    @property
    def kind(self) -> str:
        if not self.found:
            return "missing"
        return "different" if self.expected else "extra"


def text_of(values: Iterable[Any]) -> str:
    """Values of a row in one form: equal values of Arrow, SQLite and PostgreSQL are equal texts."""
    return json.dumps([_plain(each) for each in values], ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else str(value)  # -0.0 is 0.0
    if isinstance(value, decimal.Decimal):
        return format(value.normalize(), "f") if value else "0"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, list | dict | tuple):
        return json_values(value)
    if isinstance(value, datetime.datetime | datetime.date):
        return as_text_value(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


class RowComparison:
    """The rows that a sink should have, and those that it has."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for side in (EXPECTED, FOUND):
            self._connection.execute(f"CREATE TABLE {side} (key TEXT, row TEXT)")
            self._connection.execute(f"CREATE INDEX {side}_key ON {side} (key)")

    def put(self, side: str, rows: Iterable[tuple[str, str | None]]) -> None:
        """Rows, each in the place of those of its key before; None deletes them. A key comes once in ``rows``, or the last one counts."""
        last = dict(rows)
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.executemany(f"DELETE FROM {side} WHERE key = ?", [(key,) for key in last])  # noqa: S608  # a constant
            self.add(side, [(key, row) for key, row in last.items() if row is not None])

    def add(self, side: str, rows: Iterable[tuple[str, str]]) -> None:
        """Further rows; there may be several of a key."""
        self._connection.executemany(f"INSERT INTO {side} VALUES (?, ?)", rows)  # noqa: S608  # a constant

    def count(self, side: str) -> int:
        """How many rows there are."""
        return int(self._connection.execute(f"SELECT count(*) FROM {side}").fetchone()[0])  # noqa: S608  # a constant

    def differences(self) -> Iterator[RowDifference]:
        """Each key whose rows are not the same, in the order of the keys."""
        statement = (
            "SELECT key, row, sum(side) FROM (SELECT key, row, 1 AS side FROM expected UNION ALL SELECT key, row, -1 FROM found) "
            "GROUP BY key, row HAVING sum(side) <> 0 ORDER BY key, row"
        )
        held: RowDifference | None = None
        for key, row, count in self._connection.execute(statement):
            if held is None or held.key != key:
                if held is not None:
                    yield held
                held = RowDifference(key, [], [])
            (held.expected if count > 0 else held.found).extend([row] * abs(count))
        if held is not None:
            yield held

    def close(self) -> None:
        self._connection.close()


def rows_of(
    names: Sequence[str], key: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> Iterator[tuple[str, str]]:
    """Rows with the columns ``names`` as texts of their key and of ``columns``."""
    keys = [names.index(name) for name in key]
    values = [names.index(name) for name in columns]
    for row in rows:
        yield text_of(row[at] for at in keys), text_of(row[at] for at in values)
