"""Databases as sinks: a micro-batch is applied once, whether Spark runs it once or again after a crash.

In one transaction a batch upserts its rows on their key and writes its epoch to the table ``barnabas_epochs``:

    flow | sink | query | epoch        primary key (flow, sink)

An epoch that is not above the one noted for the same query (Spark's id, kept in the checkpoint) was applied before and
changes nothing. A new checkpoint is a new query, whose epochs start again at 0; its rows replace those of equal key.

A database takes ``NULL`` in a key for different from every other NULL, but a group with a null key is one group: such
rows are deleted and inserted.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from barnabas.pipelines.spec import DatabaseSink
from barnabas.pipelines.sql import (
    EPOCHS_TABLE,
    DatabaseError,
    check_columns,
    quoted,
    split_by_null,
    tuples_of,
    upsert_statement,
)
from barnabas.pipelines.texts import as_json, as_text_value

__all__ = ["PostgresDatabase", "SinkDatabase", "SqliteDatabase", "open_database"]

_SQLITE_BUSY_S = 30


class SinkDatabase(Protocol):
    """A table that takes batches."""

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        """Upserts the rows with their epoch; False when this epoch was applied before."""
        ...

    def close(self) -> None:
        """Releases the connection."""
        ...


def open_database(sink: DatabaseSink, types: Mapping[str, str]) -> SinkDatabase:
    """Connects, and makes the table if there is none; ``types`` are the columns with Spark's type names."""
    missing = [name for name in sink.key if name not in types]
    if missing:
        raise DatabaseError(
            f"the key of table {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}"
        )
    if sink.type == "duckdb":
        from barnabas.pipelines.outputs.duckdb_table import DuckDatabase

        return DuckDatabase(sink, types)
    return SqliteDatabase(sink, types) if sink.type == "sqlite" else PostgresDatabase(sink, types)


class SqliteDatabase:
    """A SQLite file. Times are ISO texts in UTC, decimals are texts, arrays and structs are JSON.

    ``id_column`` is the name of a column of whole numbers that identify rows; ``also`` are further statements that prepare
    the database, in the same transaction as the table.
    """

    def __init__(
        self, sink: DatabaseSink, types: Mapping[str, str], *, id_column: str | None = None, also: Sequence[str] = ()
    ) -> None:
        self._sink = sink
        self._id_column = id_column
        self._columns = list(types)
        try:
            # A micro-batch's thread is Spark's, and another each time; only one runs at once.
            self._connection = sqlite3.connect(
                sink.url, timeout=_SQLITE_BUSY_S, isolation_level=None, check_same_thread=False
            )
            # Readers go on while a batch is written, and a commit is on disk when it returns.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            with self._transaction():
                self._prepare(types)
                for statement in also:
                    self._connection.execute(statement)
        except sqlite3.Error as error:
            raise DatabaseError(f"SQLite at {sink.url}: {error}") from error

    def _prepare(self, types: Mapping[str, str]) -> None:
        columns = ", ".join(f"{quoted(name)} {_sqlite_type(type_name)}" for name, type_name in types.items())
        if self._id_column:
            columns = f"{quoted(self._id_column)} INTEGER PRIMARY KEY, {columns}"
        key = ", ".join(map(quoted, self._sink.key))
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {quoted(self._sink.table)} ({columns}, UNIQUE ({key}))")
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (flow TEXT NOT NULL, sink TEXT NOT NULL, query TEXT NOT NULL, "
            "epoch INTEGER NOT NULL, PRIMARY KEY (flow, sink))"
        )
        found = {row[1] for row in self._connection.execute(f"PRAGMA table_info({quoted(self._sink.table)})")}
        check_columns(self._sink.table, types, found)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        try:
            with self._transaction():
                noted = self._connection.execute(
                    f"SELECT query, epoch FROM {EPOCHS_TABLE} WHERE flow = ? AND sink = ?",  # noqa: S608  # a constant
                    (flow, self._sink.table),
                ).fetchone()
                if noted and noted[0] == query and epoch <= noted[1]:
                    return False
                self._upsert(rows.select(self._columns))
                self._connection.execute(
                    f"INSERT OR REPLACE INTO {EPOCHS_TABLE} VALUES (?, ?, ?, ?)",  # noqa: S608  # a constant
                    (flow, self._sink.table, query, epoch),
                )
        except sqlite3.Error as error:
            raise DatabaseError(f"SQLite at {self._sink.url}, table {self._sink.table}: {error}") from error
        return True

    def _upsert(self, rows: pa.Table) -> None:
        places = f"VALUES ({', '.join('?' * len(self._columns))})"
        whole, with_null = split_by_null(rows, self._sink.key)
        statement = upsert_statement(self._sink.table, places, self._columns, self._sink.key)
        self._connection.executemany(statement, tuples_of(whole, as_text_value))
        if with_null.num_rows:
            same = " AND ".join(f"{quoted(name)} IS ?" for name in self._sink.key)
            self._connection.executemany(
                f"DELETE FROM {quoted(self._sink.table)} WHERE {same}",  # noqa: S608  # names are quoted
                tuples_of(with_null.select(list(self._sink.key)), as_text_value),
            )
            names = ", ".join(map(quoted, self._columns))
            self._connection.executemany(
                f"INSERT INTO {quoted(self._sink.table)} ({names}) {places}",  # names are quoted
                tuples_of(with_null, as_text_value),
            )

    def close(self) -> None:
        self._connection.close()


class PostgresDatabase:
    """A PostgreSQL table, through psycopg: COPY to a temporary table, then one upsert."""

    def __init__(self, sink: DatabaseSink, types: Mapping[str, str]) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise DatabaseError("PostgreSQL needs psycopg: pip install 'barnabas[pipelines]'") from error
        self._errors: Any = psycopg.Error
        self._sink = sink
        self._columns = list(types)
        try:
            self._connection = psycopg.connect(sink.url, autocommit=True, application_name="barnabas")
            with self._connection.transaction():
                self._prepare(types)
        except psycopg.Error as error:
            raise DatabaseError(f"PostgreSQL, table {sink.table}: {error}") from error

    def _prepare(self, types: Mapping[str, str]) -> None:
        # Two flows that start at once must not both make the tables.
        self._execute("SELECT pg_advisory_xact_lock(hashtext('barnabas'))")
        columns = ", ".join(f"{quoted(name)} {_postgres_type(type_name)}" for name, type_name in types.items())
        key = ", ".join(map(quoted, self._sink.key))
        self._execute(f"CREATE TABLE IF NOT EXISTS {quoted(self._sink.table)} ({columns}, UNIQUE ({key}))")
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (flow text NOT NULL, sink text NOT NULL, query text NOT NULL, "
            "epoch bigint NOT NULL, PRIMARY KEY (flow, sink))"
        )
        found = self._execute(f"SELECT * FROM {quoted(self._sink.table)} LIMIT 0").description  # noqa: S608  # quoted
        check_columns(self._sink.table, types, {column.name for column in found or ()})

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement.encode(), values)

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        try:
            with self._connection.transaction():
                noted = self._execute(
                    f"SELECT query, epoch FROM {EPOCHS_TABLE} WHERE flow = %s AND sink = %s FOR UPDATE",  # noqa: S608
                    (flow, self._sink.table),
                ).fetchone()
                if noted and noted[0] == query and epoch <= noted[1]:
                    return False
                self._upsert(rows.select(self._columns))
                self._execute(
                    f"INSERT INTO {EPOCHS_TABLE} VALUES (%s, %s, %s, %s) ON CONFLICT (flow, sink) "  # noqa: S608
                    "DO UPDATE SET query = excluded.query, epoch = excluded.epoch",
                    (flow, self._sink.table, query, epoch),
                )
        except self._errors as error:
            raise DatabaseError(f"PostgreSQL, table {self._sink.table}: {error}") from error
        return True

    def _upsert(self, rows: pa.Table) -> None:
        table, names = quoted(self._sink.table), ", ".join(map(quoted, self._columns))
        self._execute(f"CREATE TEMPORARY TABLE barnabas_batch (LIKE {table}) ON COMMIT DROP")
        with self._connection.cursor().copy(f"COPY barnabas_batch ({names}) FROM STDIN".encode()) as copy:
            for row in tuples_of(rows, _postgres_value):
                copy.write_row(row)
        key = list(map(quoted, self._sink.key))
        same = " AND ".join(f"{table}.{name} IS NOT DISTINCT FROM barnabas_batch.{name}" for name in key)
        incomplete = " OR ".join(f"barnabas_batch.{name} IS NULL" for name in key)
        self._execute(f"DELETE FROM {table} USING barnabas_batch WHERE ({incomplete}) AND {same}")  # noqa: S608
        source = f"SELECT {names} FROM barnabas_batch"  # noqa: S608  # names are quoted
        self._execute(upsert_statement(self._sink.table, source, self._columns, self._sink.key))

    def close(self) -> None:
        self._connection.close()


def _sqlite_type(type_name: str) -> str:
    if type_name in ("tinyint", "smallint", "int", "bigint", "boolean"):
        return "INTEGER"
    return {"float": "REAL", "double": "REAL", "binary": "BLOB"}.get(type_name, "TEXT")


def _postgres_type(type_name: str) -> str:
    known = {
        "tinyint": "smallint",
        "smallint": "smallint",
        "int": "integer",
        "bigint": "bigint",
        "boolean": "boolean",
        "float": "real",
        "double": "double precision",
        "binary": "bytea",
        "string": "text",
        "date": "date",
        "timestamp": "timestamptz",
        "timestamp_ntz": "timestamp",
    }
    if type_name.startswith("decimal"):
        return type_name.replace("decimal", "numeric")
    return known.get(type_name, "jsonb")


def _postgres_value(value: Any) -> Any:
    return as_json(value) if isinstance(value, list | dict) else value
