"""A table of a SQLite file as a sink: a batch's rows and its epoch are one transaction, as
`barnabas.pipelines.outputs.table` says."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.pipelines.outputs.declared import DatabaseSink
from barnabas.pipelines.outputs.epochs import EPOCHS_TABLE, delete_epochs_statement, read_epoch, select_epoch_statement
from barnabas.pipelines.outputs.sql import (
    DROPPED_TABLE_ADVICE,
    DatabaseError,
    check_columns,
    quoted,
    refuse_other_equality,
    split_by_null,
    tuples_of,
    unique_advice,
    upsert_statement,
)
from barnabas.pipelines.outputs.table import TableState, split_deleted
from barnabas.pipelines.values.texts import as_text_value

__all__ = ["SqliteTable", "inspect_sqlite"]

_NOT_WRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_SQLITE_BUSY_S = 30
_NAN = "NaN"


class SqliteTable:
    """A SQLite file.

    Times are ISO texts in UTC, decimals are texts, as is NaN in a key, arrays and structs are JSON.
    ``id_column`` is the name of a column of whole numbers that identify rows. ``also`` prepares
    more, in the same transaction as the table; its second argument says whether the table is new.
    """

    def __init__(
        self,
        sink: DatabaseSink,
        types: Mapping[str, str],
        *,
        id_column: str | None = None,
        also: Callable[[sqlite3.Connection, bool], None] = lambda *_: None,
    ) -> None:
        self._sink = sink
        self._id_column = id_column
        self._columns = list(types)
        try:
            # A micro-batch's thread is Spark's, and another each time; only one runs at once.
            self._connection = sqlite3.connect(
                sink.url, timeout=_SQLITE_BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                # Readers go on while a batch is written, and a commit is on disk when it returns.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                with self._transaction():
                    also(self._connection, self._prepare(types))
                self._file = _identity(sink.url)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            folder = Path(sink.url).absolute().parent
            advice = "" if folder.is_dir() else f"; there is no folder {folder}"
            if not advice and getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_WRITABLE:
                advice = f"; may this user write in {folder}, and is its disk not mounted read-only?"
            raise DatabaseError(f"SQLite at {sink.url}: {error}{advice}") from error

    def _prepare(self, types: Mapping[str, str]) -> bool:
        """Whether the table is new."""
        columns = ", ".join(f"{quoted(name)} {_sqlite_type(type_name)}" for name, type_name in types.items())
        if self._id_column:
            columns = f"{quoted(self._id_column)} INTEGER PRIMARY KEY, {columns}"
        key = ", ".join(map(quoted, self._sink.key))
        table = quoted(self._sink.table)
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (flow TEXT NOT NULL, sink TEXT NOT NULL, query TEXT NOT NULL, "
            "epoch INTEGER NOT NULL, PRIMARY KEY (flow, sink))"
        )
        found = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
        if found:
            check_columns(self._sink.table, types, found)
            refuse_other_equality(self._sink.table, self._other_equality(types))
            return False
        self._connection.execute(f"CREATE TABLE {table} ({columns}, UNIQUE ({key}))")
        self._connection.execute(delete_epochs_statement("?"), (self._sink.table,))
        return True

    def _other_equality(self, types: Mapping[str, str]) -> dict[str, str]:
        """Columns of the key in an existing table that take several values for one,
        each with the reason."""
        table = quoted(self._sink.table)
        declared = {row[1]: str(row[2]).upper() for row in self._connection.execute(f"PRAGMA table_info({table})")}
        indexes = [row[1] for row in self._connection.execute(f"PRAGMA index_list({table})") if row[2]]
        found = {}
        for name in self._sink.key:
            if _sqlite_type(types[name]) == "TEXT" and _is_numeric(declared[name]):
                found[name] = f"is of type {declared[name]}, of which SQLite makes numbers where it can"
        for index in indexes:
            for row in self._connection.execute(f"PRAGMA index_xinfo({quoted(index)})"):
                if row[2] in self._sink.key and row[4] != "BINARY":
                    found[row[2]] = f"is compared by {row[4]}"
        return found

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        # A deleted file can be written to as long as it is open.
        if _identity(self._sink.url) != self._file:
            text = f"the file was deleted or replaced. {DROPPED_TABLE_ADVICE}"
            raise DatabaseError(f"SQLite at {self._sink.url}, table {self._sink.table}: {text}")
        try:
            with self._transaction():
                if epoch <= self._last_epoch(flow, query):
                    return False
                kept, deleted = split_deleted(rows)
                self._upsert(kept.select(self._columns))
                self._delete(deleted)
                self._connection.execute(
                    f"INSERT OR REPLACE INTO {EPOCHS_TABLE} VALUES (?, ?, ?, ?)",  # noqa: S608  # a constant
                    (flow, self._sink.table, query, epoch),
                )
        except sqlite3.Error as error:
            advice = f". {DROPPED_TABLE_ADVICE}" if "no such table" in str(error) else ""
            advice += unique_advice(error, self._sink.table, self._sink.key)
            raise DatabaseError(f"SQLite at {self._sink.url}, table {self._sink.table}: {error}{advice}") from error
        return True

    def last_epoch(self, flow: str, query: str) -> int | None:
        return self._last_epoch(flow, query)

    def _last_epoch(self, flow: str, query: str) -> int:
        noted = self._connection.execute(
            select_epoch_statement("?"),
            (flow, self._sink.table, query),
        ).fetchone()
        return int(noted[0]) if noted else -1

    def _upsert(self, rows: pa.Table) -> None:
        places = f"VALUES ({', '.join('?' * len(self._columns))})"
        whole, with_null = split_by_null(rows, self._sink.key)
        statement = upsert_statement(self._sink.table, places, self._columns, self._sink.key)
        self._connection.executemany(statement, self._tuples(whole))
        if with_null.num_rows:
            self._delete(with_null)
            names = ", ".join(map(quoted, self._columns))
            self._connection.executemany(
                f"INSERT INTO {quoted(self._sink.table)} ({names}) {places}",  # names are quoted
                self._tuples(with_null),
            )

    def _delete(self, rows: pa.Table) -> None:
        same = " AND ".join(f"{quoted(name)} IS ?" for name in self._sink.key)
        self._connection.executemany(
            f"DELETE FROM {quoted(self._sink.table)} WHERE {same}",  # noqa: S608  # names are quoted
            self._tuples(rows.select(list(self._sink.key))),
        )

    def _tuples(self, rows: pa.Table) -> Iterator[tuple[Any, ...]]:
        """The rows' values.

        A NaN in a key is a text: SQLite makes NULL of the number, which is another key."""
        import pyarrow.compute as pc

        names = [name for name in self._sink.key if pa.types.is_floating(rows.schema.field(name).type)]
        places = {rows.column_names.index(name) for name in names if pc.any(pc.is_nan(rows[name])).as_py()}
        if not places:
            yield from tuples_of(rows, as_text_value)
            return
        for values in tuples_of(rows, as_text_value):
            yield tuple(_NAN if at in places and each != each else each for at, each in enumerate(values))

    def close(self) -> None:
        self._connection.close()


def inspect_sqlite(path: str, table: str, flow: str, query: str) -> TableState | None:
    """What a table of a SQLite file holds; None if it is not there. Raises `BarnabasError`."""
    if not Path(path).exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True, timeout=10)) as connection:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(statement, values).fetchall()

            columns = tuple(row[1] for row in ask(f"PRAGMA table_info({quoted(table)})"))
            has_epochs = ask(f"PRAGMA table_info({EPOCHS_TABLE})")
            return TableState(columns, read_epoch(ask, "?", has_epochs, flow, table, query)) if columns else None
    except sqlite3.Error as error:
        raise DatabaseError(f"SQLite at {path}: {error}") from error


def _identity(path: str) -> tuple[int, int] | None:
    """What distinguishes a file from another one of its name; None if there is none."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def _is_numeric(declared: str) -> bool:
    """Whether a column's type gives it a numeric affinity: SQLite's rules, in their order."""
    if "INT" in declared:
        return True
    return bool(declared) and not any(word in declared for word in ("CHAR", "CLOB", "TEXT", "BLOB"))


def _sqlite_type(type_name: str) -> str:
    if type_name in ("tinyint", "smallint", "int", "bigint", "boolean"):
        return "INTEGER"
    return {"float": "REAL", "double": "REAL", "binary": "BLOB"}.get(type_name, "TEXT")
