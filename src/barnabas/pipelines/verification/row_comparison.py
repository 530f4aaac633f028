"""Two sets of rows, and where they differ: in a SQLite file, so that tables may be larger
than memory. Needs no Spark.

A row is its key and its values, both as texts in one form (`text_of`). Rows are put by key, as a
sink puts them: what was there is replaced. In a topic, key and value are the bytes of a record, and
no key differs from an empty one.
"""

import contextlib
import datetime
import decimal
import itertools
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.pipelines.frames.ordering import last_record
from barnabas.pipelines.values.texts import as_text_value, json_values, text_of_bytes

__all__ = ["EXPECTED", "FOUND", "LastRecords", "RowComparison", "RowDifference", "TopicRecord", "rows_of", "text_of"]

EXPECTED, FOUND = "expected", "found"
_Stored = str | bytes


class RowDifference(NamedTuple):
    """The rows of a key that are expected and those that are found: missing, extra, or different.

    All as they are shown."""

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


class _TemporaryTables:
    """Tables in a file that is deleted after its use. A thread uses it at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # A file that is deleted afterwards need not outlast a crash.
        for name in ("journal_mode", "synchronous"):
            self._connection.execute(f"PRAGMA {name} = OFF")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write together what else would be written row by row.

        There is no journal to take it back with: after an error it stays."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:  # SQLite ends it when the disk is full
                self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class RowComparison(_TemporaryTables):
    """The rows that a sink should have, and those that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for side in (EXPECTED, FOUND):
            self._connection.execute(f"CREATE TABLE {side} (key, row)")
            self._connection.execute(f"CREATE INDEX {side}_key ON {side} (key)")

    def put(self, side: str, rows: Iterable[tuple[_Stored | None, _Stored | None]]) -> None:
        """Rows, each in the place of those of its key before; None deletes them.

        A key comes once in ``rows``, or the last one counts."""
        last = dict(rows)
        with self._transaction():
            self._connection.executemany(f"DELETE FROM {side} WHERE key IS ?", [(key,) for key in last])  # noqa: S608  # a constant
            self._insert(side, ((key, row) for key, row in last.items() if row is not None))

    def add(self, side: str, rows: Iterable[tuple[_Stored | None, _Stored]]) -> None:
        """Further rows; there may be several of a key."""
        with self._transaction():
            self._insert(side, rows)

    def _insert(self, side: str, rows: Iterable[tuple[_Stored | None, _Stored]]) -> None:
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
        for key, rows in itertools.groupby(self._connection.execute(statement), key=lambda found: found[0]):
            difference = RowDifference(_shown(key), [], [])
            for _, row, count in rows:
                (difference.expected if count > 0 else difference.found).extend([_shown(row)] * abs(count))
            yield difference


class TopicRecord(NamedTuple):
    """A record of a topic; ``time`` grows with it, and is None if the record has none."""

    key: bytes | None
    partition: int
    time: int | None
    value: bytes | None


class LastRecords(_TemporaryTables):
    """The last record of each key of a topic: in a partition the one that comes last, of several as
    `last_record` says.

    Records without a key have no order among them: all count.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection.execute(
            "CREATE TABLE last (key BLOB, partition INTEGER, time INTEGER, value BLOB, PRIMARY KEY (key, partition)) WITHOUT ROWID"
        )
        self._connection.execute("CREATE TABLE without_key (value BLOB)")

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Further records, those of a partition in its order."""
        with self._transaction():
            for each in records:
                if each.key is None:
                    self._connection.execute("INSERT INTO without_key VALUES (?)", (each.value,))
                else:
                    self._connection.execute("INSERT OR REPLACE INTO last VALUES (?, ?, ?, ?)", each)

    def rows(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Key and value of the records that count; one without a value deletes its key."""
        found = self._connection.execute("SELECT key, partition, time, value FROM last ORDER BY key")
        for key, records in itertools.groupby(map(TopicRecord._make, found), key=lambda each: each.key):
            candidates = [
                {"timestamp": each.time, "partition": each.partition, "value": each.value} for each in records
            ]
            if (value := last_record(candidates)["value"]) is not None:
                yield key, value
        for (value,) in self._connection.execute("SELECT value FROM without_key WHERE value IS NOT NULL"):
            yield None, value


def _shown(stored: _Stored | None) -> str:
    """A key or a row for people; what is compared is what is stored."""
    if stored is None:
        return "null"
    return (text_of_bytes(stored) or '""') if isinstance(stored, bytes) else stored


def rows_of(
    names: Sequence[str], key: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> Iterator[tuple[str, str]]:
    """Rows with the columns ``names`` as texts of their key and of ``columns``."""
    keys = [names.index(name) for name in key]
    values = [names.index(name) for name in columns]
    for row in rows:
        yield text_of(row[at] for at in keys), text_of(row[at] for at in values)
