"""A table of a DuckDB file as a sink: a batch's rows and its epoch are one transaction, as in
`barnabas.pipelines.outputs.table`.

DuckDB lets one process write, or several read. So the file is opened for each batch and closed
again: between batches dashboards and notebooks can read it. A batch waits while they do.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.base.installation import install_command
from barnabas.pipelines.outputs.declared import DatabaseSink
from barnabas.pipelines.outputs.duckdb_access import open_duckdb
from barnabas.pipelines.outputs.epochs import EPOCHS_TABLE, delete_epochs_statement, read_epoch, select_epoch_statement
from barnabas.pipelines.outputs.sql import (
    DROPPED_TABLE_ADVICE,
    DatabaseError,
    batch_name,
    check_columns,
    loses_digits,
    quoted,
    refuse_other_equality,
    split_by_null,
    unique_advice,
    upsert_statement,
)
from barnabas.pipelines.outputs.table import TableState, split_deleted
from barnabas.pipelines.values.arrow_values import values_of
from barnabas.pipelines.values.texts import as_json

__all__ = ["DuckTable", "inspect_duckdb"]

_BUSY_S = 30.0
_PAUSE_S = 0.05
_TYPES = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "float": "REAL",
    "double": "DOUBLE",
    "binary": "BLOB",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_ROUNDED = [
    ("DOUBLE", "FLOAT"),
    *((ours, kind) for ours in ("TIMESTAMPTZ", "TIMESTAMP") for kind in ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS")),
]
"""Types of ours, and those of columns that others made, which take several of our
values for one."""


class DuckTable:
    """A DuckDB file. Types are DuckDB's own; arrays and structs are JSON."""

    def __init__(
        self, sink: DatabaseSink, types: Mapping[str, str], *, wait: Callable[[float], None] = time.sleep
    ) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise DatabaseError(f"DuckDB needs duckdb: {install_command('outputs')}") from error
        self._duckdb: Any = duckdb
        self._sink = sink
        self._batch = batch_name(sink.table)
        self._types = dict(types)
        self._wait = wait
        with self._transaction() as connection:
            self._prepare(connection)

    def _prepare(self, connection: Any) -> None:
        columns = ", ".join(f"{quoted(column)} {_duckdb_type(type_name)}" for column, type_name in self._types.items())
        key = ", ".join(map(quoted, self._sink.key))
        schema, dot, name = self._sink.table.rpartition(".")
        if dot:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (flow VARCHAR, sink VARCHAR, query VARCHAR NOT NULL, "
            "epoch BIGINT NOT NULL, PRIMARY KEY (flow, sink))"
        )
        there = connection.execute(
            "SELECT 1 FROM information_schema.tables WHERE lower(table_name) = lower(?) "
            "AND lower(table_schema) = lower(coalesce(nullif(?, ''), current_schema()))",
            (name, schema),
        ).fetchall()
        if not there:
            connection.execute(f"CREATE TABLE {quoted(self._sink.table)} ({columns}, UNIQUE ({key}))")
            connection.execute(delete_epochs_statement("?"), (self._sink.table,))
        found = connection.execute(f"SELECT * FROM {quoted(self._sink.table)} LIMIT 0").description  # noqa: S608  # quoted
        check_columns(self._sink.table, self._types, {column[0] for column in found})
        kinds = {column[0]: str(column[1]) for column in found}
        rounded = {
            name: f"is of type {kinds[name]}, to which values are rounded"
            for name in self._sink.key
            if loses_digits(ours := _duckdb_type(self._types[name]), kinds[name]) or (ours, kinds[name]) in _ROUNDED
        }
        refuse_other_equality(self._sink.table, rounded)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            with contextlib.ExitStack() as opened:
                connection = self._connect(opened)
                connection.execute("BEGIN")
                yield connection
                # What is not committed is rolled back when the connection is closed.
                connection.execute("COMMIT")
        except self._duckdb.Error as error:
            advice = f" {DROPPED_TABLE_ADVICE}" if isinstance(error, self._duckdb.CatalogException) else ""
            advice += unique_advice(error, self._sink.table, self._sink.key)
            text = " ".join(str(error).split())
            raise DatabaseError(f"DuckDB at {self._sink.url}, table {self._sink.table}: {text}{advice}") from error

    def _connect(self, opened: contextlib.ExitStack) -> Any:
        waited_s = 0.0
        while True:
            try:
                return opened.enter_context(open_duckdb(self._sink.url))
            except self._duckdb.IOException as error:
                # Another process has the file open.
                if "lock" not in str(error).lower() or waited_s >= _BUSY_S:
                    raise
                self._wait(_PAUSE_S)
                waited_s += _PAUSE_S

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        table = self._sink.table
        with self._transaction() as connection:
            if epoch <= self._last_epoch(connection, flow, query):
                return False
            kept, deleted = split_deleted(rows)
            self._upsert(connection, _without_nesting(kept.select(list(self._types))))
            self._delete(connection, _without_nesting(deleted.select(list(self._types))))
            connection.execute(
                f"INSERT INTO {EPOCHS_TABLE} VALUES (?, ?, ?, ?) ON CONFLICT (flow, sink) "  # noqa: S608  # a constant
                "DO UPDATE SET query = excluded.query, epoch = excluded.epoch",
                (flow, table, query, epoch),
            )
        return True

    def last_epoch(self, flow: str, query: str) -> int | None:
        with self._transaction() as connection:
            return self._last_epoch(connection, flow, query)

    def _last_epoch(self, connection: Any, flow: str, query: str) -> int:
        noted = connection.execute(
            select_epoch_statement("?"),
            (flow, self._sink.table, query),
        ).fetchall()
        return int(noted[0][0]) if noted else -1

    def _upsert(self, connection: Any, rows: pa.Table) -> None:
        key = self._sink.key
        names = ", ".join(map(quoted, self._types))
        source = f"SELECT {names} FROM {self._batch}"  # noqa: S608  # names are quoted
        whole, with_null = split_by_null(rows, key)
        connection.register(self._batch, whole)
        connection.execute(upsert_statement(self._sink.table, source, list(self._types), key))
        if with_null.num_rows:
            self._delete(connection, with_null)
            connection.register(self._batch, with_null)
            connection.execute(f"INSERT INTO {quoted(self._sink.table)} ({names}) {source}")
        connection.unregister(self._batch)

    def _delete(self, connection: Any, rows: pa.Table) -> None:
        table = quoted(self._sink.table)
        pairs = [(f"{table}.{quoted(name)}", f"{self._batch}.{quoted(name)}") for name in self._sink.key]
        same = " AND ".join(f"{mine} IS NOT DISTINCT FROM {its}" for mine, its in pairs)
        connection.register(self._batch, rows)
        connection.execute(f"DELETE FROM {table} USING {self._batch} WHERE {same}")  # noqa: S608  # names are quoted
        connection.unregister(self._batch)

    def close(self) -> None:
        """The file is open during a batch only."""


def inspect_duckdb(sink: DatabaseSink, flow: str, query: str) -> TableState | None:
    """What the table holds; None if it is not there. Raises `BarnabasError`."""
    if not Path(sink.url).exists():
        return None
    import duckdb

    try:
        with open_duckdb(sink.url, read_only=True) as connection:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(statement, list(values)).fetchall()

            schema, _, name = sink.table.rpartition(".")
            tables = (
                "SELECT column_name FROM information_schema.columns WHERE lower(table_name) = lower(?) "
                "AND lower(table_schema) = lower(coalesce(nullif(?, ''), current_schema()))"
            )
            columns = tuple(row[0] for row in ask(tables, [name, schema]))
            has_epochs = ask(tables, [EPOCHS_TABLE, ""])
            return TableState(columns, read_epoch(ask, "?", has_epochs, flow, sink.table, query)) if columns else None
    except duckdb.Error as error:
        raise DatabaseError(f"DuckDB at {sink.url}: {' '.join(str(error).split())}") from error


def _duckdb_type(type_name: str) -> str:
    if type_name.startswith("decimal"):
        return type_name.upper()
    return _TYPES.get(type_name, "JSON")


def _without_nesting(rows: pa.Table) -> pa.Table:
    """Arrays, structs and maps as JSON texts."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            values = [None if value is None else as_json(value) for value in values_of(field.name, rows.column(number))]
            rows = rows.set_column(number, field.name, pa.array(values, pa.string()))
    return rows
