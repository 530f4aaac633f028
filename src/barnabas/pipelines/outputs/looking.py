"""What an output holds now, looked at without changing it: for ``barnabas pipeline dry-run``."""

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.pipelines.outputs.declared import LakeSink, OpenSearchSink, OutputError, SearchSink
from barnabas.pipelines.outputs.opening import TableSink
from barnabas.pipelines.spec import DatabaseSink
from barnabas.pipelines.sql import EPOCHS_TABLE, DatabaseError, quoted, select_epoch_statement

__all__ = ["Holding", "look_at"]


@dataclass(frozen=True, slots=True)
class Holding:
    """A table that is there."""

    columns: tuple[str, ...] | None
    """None if they are not known."""
    last_epoch: int | None
    """The last micro-batch of the query, -1 for none; None if the output keeps no such note."""


def look_at(sink: TableSink, flow: str, query: str) -> Holding | None:
    """The table; None if it is not there. Raises `BarnabasError` if it cannot be reached or read."""
    match sink:
        case LakeSink():
            return _delta(sink, flow, query) if sink.type == "delta" else _parquet(sink, flow, query)
        case SearchSink():
            return _sqlite(sink.path, sink.table, flow, query)
        case OpenSearchSink():
            return _opensearch(sink)
        case DatabaseSink(type="sqlite"):
            return _sqlite(sink.url, sink.table, flow, query)
        case DatabaseSink(type="duckdb"):
            return _duckdb(sink, flow, query)
        case _:
            return _postgres(sink, flow, query)


def _sqlite(path: str, table: str, flow: str, query: str) -> Holding | None:
    if not Path(path).exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True, timeout=10)) as connection:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(statement, values).fetchall()

            columns = tuple(row[1] for row in ask(f"PRAGMA table_info({quoted(table)})"))
            has_epochs = ask(f"PRAGMA table_info({EPOCHS_TABLE})")
            return Holding(columns, _epoch(ask, "?", has_epochs, flow, table, query)) if columns else None
    except sqlite3.Error as error:
        raise DatabaseError(f"SQLite at {path}: {error}") from error


def _duckdb(sink: DatabaseSink, flow: str, query: str) -> Holding | None:
    if not Path(sink.url).exists():
        return None
    import duckdb

    try:
        with duckdb.connect(sink.url, read_only=True) as connection:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(statement, list(values)).fetchall()

            tables = "SELECT column_name FROM information_schema.columns WHERE lower(table_name) = lower(?)"
            columns = tuple(row[0] for row in ask(tables, [sink.table.rpartition(".")[2]]))
            has_epochs = ask(tables, [EPOCHS_TABLE])
            return Holding(columns, _epoch(ask, "?", has_epochs, flow, sink.table, query)) if columns else None
    except duckdb.Error as error:
        raise DatabaseError(f"DuckDB at {sink.url}: {' '.join(str(error).split())}") from error


def _postgres(sink: DatabaseSink, flow: str, query: str) -> Holding | None:
    import psycopg

    try:
        with psycopg.connect(sink.url, connect_timeout=10, application_name="barnabas") as connection:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(statement.encode(), values).fetchall()

            if ask("SELECT to_regclass(%s)", [quoted(sink.table)])[0][0] is None:
                return None
            found = connection.execute(f"SELECT * FROM {quoted(sink.table)} LIMIT 0".encode()).description  # noqa: S608
            has_epochs = ask("SELECT to_regclass(%s)", [EPOCHS_TABLE])[0][0]
            columns = tuple(each.name for each in found or ())
            return Holding(columns, _epoch(ask, "%s", has_epochs, flow, sink.table, query))
    except psycopg.Error as error:
        raise DatabaseError(f"PostgreSQL, table {sink.table}: {' '.join(str(error).split())}") from error


def _epoch(
    ask: Callable[..., list[Any]], placeholder: str, has_epochs: object, flow: str, table: str, query: str
) -> int:
    noted = ask(select_epoch_statement(placeholder), [flow, table, query]) if has_epochs else []
    return int(noted[0][0]) if noted else -1


def _delta(sink: LakeSink, flow: str, query: str) -> Holding | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(sink.path)
        names = tuple(field.name for field in table.schema().fields)
        epochs = [table.transaction_version(f"barnabas/{flow}/{query}/{way}") for way in ("append", "merge")]
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise OutputError(f"the Delta table at {sink.path}: {error}") from error
    return Holding(names, max((int(each) for each in epochs if each is not None), default=-1))


def _parquet(sink: LakeSink, flow: str, query: str) -> Holding | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from barnabas.pipelines.outputs.lake import has_note

    folder = Path(sink.path)
    if not folder.is_dir():
        return None
    first = next(folder.glob("**/*.parquet"), None)
    try:
        names = (*pq.read_schema(first).names, *sink.partition_by) if first else None
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"{first} cannot be read: {error}") from error
    return Holding(names, None if has_note(sink, flow, query) else -1)


def _opensearch(sink: OpenSearchSink) -> Holding | None:
    from barnabas.pipelines.outputs.opensearch import OpenSearchIndex

    return Holding(None, None) if OpenSearchIndex(sink, None).is_there() else None
