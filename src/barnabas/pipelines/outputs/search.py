"""A full-text index as a sink, in a SQLite file (FTS5): results can be searched at
once, with no server.

The rows are a table of `SqliteTable`, so upserts, epochs and replays are those of any SQLite sink.
Triggers keep the index in the same transaction. The index refers to rows by a column of its own,
for SQLite may number rows differently after VACUUM.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.pipelines.outputs.declared import DatabaseSink, OutputError, SearchSink
from barnabas.pipelines.outputs.sql import quoted
from barnabas.pipelines.outputs.sqlite_table import SqliteTable

__all__ = ["ID_COLUMN", "Hit", "SearchIndex", "search_index"]

ID_COLUMN = "barnabas_id"
"""The number by which a row of the table is known in its index."""
_EVENTS = ("insert", "delete", "update")


class SearchIndex:
    """A table with a full-text index over some of its columns."""

    def __init__(self, sink: SearchSink, types: Mapping[str, str]) -> None:
        if missing := [name for name in sink.text if name not in types]:
            raise OutputError(
                f"text of the index {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}"
            )
        table = DatabaseSink("sqlite", sink.path, sink.table, sink.key)
        self._database = SqliteTable(table, types, id_column=ID_COLUMN, also=partial(_prepare_index, sink))

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        """The rows into the table, and so into the index."""
        return self._database.apply(rows, flow, query, epoch)

    def last_epoch(self, flow: str, query: str) -> int | None:
        """See the table."""
        return self._database.last_epoch(flow, query)

    def close(self) -> None:
        self._database.close()


def _prepare_index(sink: SearchSink, connection: sqlite3.Connection, is_new: bool) -> None:
    """Make the index and the triggers that are missing.

    A new table, or other columns of text, begin with a new index. The index of a table that was
    dropped stays in the file, and would find rows that are gone.
    """
    table, index = quoted(sink.table), quoted(f"{sink.table}_index")
    indexed = [row[1] for row in connection.execute(f"PRAGMA table_info({index})")]
    is_other = indexed != list(sink.text)
    if is_new or is_other:
        for event in _EVENTS:
            connection.execute(f"DROP TRIGGER IF EXISTS {quoted(_trigger(sink, event))}")
        connection.execute(f"DROP TABLE IF EXISTS {index}")
    for statement in _index_statements(sink, table, index):
        connection.execute(statement)
    if is_other and not is_new:
        connection.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")  # noqa: S608  # names are quoted


def _trigger(sink: SearchSink, event: str) -> str:
    return f"{sink.table}_index_{event}"


def _index_statements(sink: SearchSink, table: str, index: str) -> Iterator[str]:
    names = ", ".join(map(quoted, sink.text))
    old, new = (", ".join(f"{which}.{quoted(name)}" for name in sink.text) for which in ("old", "new"))
    yield (
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {index} USING fts5({names}, content={table}, content_rowid='{ID_COLUMN}', "
        "tokenize='unicode61 remove_diacritics 2')"
    )
    add = f"INSERT INTO {index}(rowid, {names}) VALUES (new.{ID_COLUMN}, {new});"  # noqa: S608  # names are quoted
    remove = f"INSERT INTO {index}({index}, rowid, {names}) VALUES ('delete', old.{ID_COLUMN}, {old});"  # noqa: S608  # the same
    for event, body in zip(_EVENTS, (add, remove, remove + add), strict=True):
        trigger = quoted(_trigger(sink, event))
        yield f"CREATE TRIGGER IF NOT EXISTS {trigger} AFTER {event.upper()} ON {table} BEGIN {body} END"


@dataclass(frozen=True, slots=True)
class Hit:
    """A row that was found."""

    row: dict[str, Any]
    snippet: str
    """The text around the words, which stand in square brackets."""
    score: float
    """Higher is better (bm25)."""


def search_index(sink: SearchSink, words: str, limit: int = 10) -> list[Hit]:
    """The best hits for a query of FTS5: words, ``"a phrase"``, ``prefix*``, AND,
    OR, NOT, ``column: word``.

    What is no query of FTS5, such as an address with dots, is searched for word by
    word. Raises `OutputError`.
    """
    try:
        with closing(
            sqlite3.connect(f"{Path(sink.path).absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        ) as connection:
            try:
                return _search(connection, sink, words, limit)
            except sqlite3.OperationalError as error:
                if "fts5" not in str(error) and "no such column" not in str(error):
                    raise
                plain = " ".join('"' + word.replace('"', '""') + '"' for word in words.split())
                return _search(connection, sink, plain, limit)
    except sqlite3.Error as error:
        raise OutputError(f"cannot search in {sink.path}, table {sink.table}: {error}") from error


def _search(connection: sqlite3.Connection, sink: SearchSink, words: str, limit: int) -> list[Hit]:
    table, index = quoted(sink.table), quoted(f"{sink.table}_index")
    found = connection.execute(
        f"SELECT snippet({index}, -1, '[', ']', '...', 16), -bm25({index}), {table}.* FROM {index} "  # noqa: S608  # quoted
        f"JOIN {table} ON {table}.{ID_COLUMN} = {index}.rowid WHERE {index} MATCH ? ORDER BY bm25({index}), {table}.{ID_COLUMN} LIMIT ?",
        (words, limit),
    )
    names = [column[0] for column in found.description]
    hits = []
    for row in found:
        values = dict(zip(names[3:], row[3:], strict=True))
        hits.append(Hit(values, row[0], round(row[1], 6)))
    return hits
