"""What a flow has put into an output, read back: rows of databases and lakes, as
tables of Arrow."""

import contextlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.pipelines.outputs.declared import DatabaseSink, NoResultError
from barnabas.pipelines.outputs.duckdb_access import open_duckdb
from barnabas.pipelines.outputs.postgres import open_postgres, postgres_reason
from barnabas.pipelines.outputs.sql import quoted

__all__ = ["as_table", "read_delta", "read_duckdb", "read_parquet", "read_postgres_rows", "read_sqlite_rows"]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_BUSY_S = 5.0
_PAUSE_S = 0.02


def read_delta(path: str) -> pa.Table:
    """All rows of a Delta table. Raises `NoResultError`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(path).to_pyarrow_table()
    except TableNotFoundError as error:
        raise NoResultError(f"there is no Delta table at {path} yet") from error


def read_parquet(path: str) -> pa.Table:
    """All rows of a folder of Parquet files. Raises `NoResultError`."""
    import pyarrow.dataset as ds

    if not Path(path).is_dir():
        raise NoResultError(f"there is no folder {path} yet")
    return ds.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()


def read_duckdb(sink: DatabaseSink, wait: Callable[[float], None]) -> pa.Table:
    """All rows of a table of a DuckDB file; ``wait`` pauses while a batch is written.

    Raises `NoResultError`."""
    import duckdb

    if not Path(sink.url).exists():
        raise NoResultError(f"there is no database {sink.url} yet")
    waited_s = 0.0
    while True:
        try:
            with open_duckdb(sink.url, read_only=True) as connection:
                return connection.sql(f"SELECT * FROM {quoted(sink.table)}").to_arrow_table()  # noqa: S608  # quoted
        except duckdb.IOException as error:
            if waited_s >= _BUSY_S:  # a batch is written, which takes a moment
                raise NoResultError(f"the database {sink.url} is in use: {error}") from error
            wait(_PAUSE_S)
            waited_s += _PAUSE_S
        except duckdb.Error as error:
            raise NoResultError(f"cannot read table {sink.table} in {sink.url}: {error}") from error


def as_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of a database as a table; texts that all are times become times."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return pa.table(dict(zip(names, map(_column, columns), strict=True)))


def read_sqlite_rows(path: str, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns of a table and its rows, as SQLite has them. Raises `NoResultError`."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
        ) as connection:
            found = connection.execute(f"SELECT * FROM {quoted(table)}")  # noqa: S608  # names are quoted
            names = [column[0] for column in found.description]
            return names, found.fetchall()
    except sqlite3.Error as error:
        raise NoResultError(f"cannot read table {table} in {path}: {error}") from error


def read_postgres_rows(sink: DatabaseSink) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Like `read_sqlite_rows`."""
    import psycopg

    try:
        with open_postgres(sink.url, application_name="barnabas dashboard") as connection:
            found = connection.execute(f"SELECT * FROM {quoted(sink.table)}".encode())  # noqa: S608  # names are quoted
            names = [column.name for column in found.description or ()]
            return names, found.fetchall()
    except psycopg.Error as error:
        raise NoResultError(
            f"cannot read table {sink.table} in PostgreSQL: {postgres_reason(error, sink.url)}"
        ) from error


def _column(values: Sequence[Any]) -> pa.Array:
    """Values of a database; texts that all are times, as SQLite keeps them, become times."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, str) and _TIME.fullmatch(value) for value in known):
        return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC"))
    try:
        array = pa.array(list(values))
        if pa.types.is_timestamp(array.type) and array.type.tz:  # of the server's zone
            array = array.cast(pa.timestamp("us", "UTC"))
        return array
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types, which SQLite allows
        return pa.array([None if value is None else str(value) for value in values], pa.string())
