"""What a flow has put into a sink, as an Arrow table, with a mark by which it is seen that nothing has changed since."""

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.outputs.declared import LakeSink, SearchSink
from barnabas.pipelines.outputs.duckdb_access import open_duckdb
from barnabas.pipelines.outputs.postgres import open_postgres, postgres_reason
from barnabas.pipelines.outputs.sql import quoted
from barnabas.pipelines.specification.spec import DatabaseSink, Sink

__all__ = ["NoResultError", "ResultReader", "read_postgres_rows", "read_sqlite_rows", "readable_sinks"]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_BUSY_S = 5.0
_PAUSE_S = 0.02


class NoResultError(BarnabasError):
    """There is nothing to show yet, or it cannot be read."""


def readable_sinks(sinks: Sequence[Sink]) -> list[tuple[int, Sink]]:
    """The sinks whose results can be read back, with their numbers in the flow's file."""
    return [
        (number, sink) for number, sink in enumerate(sinks) if isinstance(sink, DatabaseSink | LakeSink | SearchSink)
    ]


class ResultReader:
    """Reads one sink."""

    def __init__(self, sink: Sink, *, wait: Callable[[float], None] = time.sleep) -> None:
        self._sink = sink
        self._wait = wait

    def mark(self) -> Any:
        """Something that differs when the result may have changed; None if that is not known."""
        sink = self._sink
        if isinstance(sink, LakeSink):
            folder = Path(sink.path)
            found = folder.glob("_delta_log/*.json") if sink.type == "delta" else folder.glob("**/*.parquet")
            return sorted(each.name for each in found)
        if isinstance(sink, SearchSink) or (isinstance(sink, DatabaseSink) and sink.type != "postgresql"):
            path = sink.path if isinstance(sink, SearchSink) else sink.url
            return [_stamp(Path(path + ending)) for ending in ("", "-wal", ".wal")]
        return None

    def read(self) -> pa.Table:
        """All rows. Times are times, whatever form the sink keeps them in."""
        sink = self._sink
        if isinstance(sink, LakeSink):
            return self._read_lake(sink)
        if isinstance(sink, SearchSink):
            return _read_sqlite(sink.path, sink.table)
        if isinstance(sink, DatabaseSink):
            if sink.type == "sqlite":
                return _read_sqlite(sink.url, sink.table)
            return self._read_duckdb(sink) if sink.type == "duckdb" else _read_postgres(sink)
        raise NoResultError("the results of this sink cannot be read back")

    def _read_lake(self, sink: LakeSink) -> pa.Table:
        if sink.type == "delta":
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError

            try:
                return DeltaTable(sink.path).to_pyarrow_table()
            except TableNotFoundError as error:
                raise NoResultError(f"there is no Delta table at {sink.path} yet") from error
        import pyarrow.dataset as ds

        if not Path(sink.path).is_dir():
            raise NoResultError(f"there is no folder {sink.path} yet")
        dataset = ds.dataset(sink.path, format="parquet", partitioning="hive", exclude_invalid_files=False)
        return dataset.to_table()

    def _read_duckdb(self, sink: DatabaseSink) -> pa.Table:
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
                self._wait(_PAUSE_S)
                waited_s += _PAUSE_S
            except duckdb.Error as error:
                raise NoResultError(f"cannot read table {sink.table} in {sink.url}: {error}") from error


def _stamp(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None


def _read_sqlite(path: str, table: str) -> pa.Table:
    names, rows = read_sqlite_rows(path, table)
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
    """As `read_sqlite_rows`."""
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


def _read_postgres(sink: DatabaseSink) -> pa.Table:
    names, rows = read_postgres_rows(sink)
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return pa.table(dict(zip(names, map(_column, columns), strict=True)))


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
