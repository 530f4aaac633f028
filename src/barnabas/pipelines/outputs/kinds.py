"""The kinds of outputs: which module takes the batches of which declared sink, and which one inspects it for a dry run.

A module is imported when a flow names its kind, for some need packages of the extra ``outputs``.

    sqlite              sqlite_table.py
    duckdb              duckdb_table.py
    postgresql          postgres_table.py
    parquet, delta      lake.py
    search              search.py, an index in a SQLite file
    opensearch          opensearch.py
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from barnabas.pipelines.outputs.declared import LakeSink, OpenSearchSink, OutputError, SearchSink
from barnabas.pipelines.outputs.sinks import DatabaseSink
from barnabas.pipelines.outputs.sql import DatabaseError
from barnabas.pipelines.outputs.sqlite_table import SqliteTable, inspect_sqlite
from barnabas.pipelines.outputs.table import OutputTable, TableState

__all__ = ["TableSink", "inspect_output", "open_database", "open_output"]

TableSink = DatabaseSink | LakeSink | SearchSink | OpenSearchSink
"""What takes batches as Arrow tables on the driver."""


def open_output(
    sink: TableSink,
    types: Mapping[str, str],
    schema: pa.Schema,
    *,
    rows_change: bool,
    is_stopped: Callable[[], bool] = lambda: False,
) -> OutputTable:
    """The output, connected and prepared; ``types`` and ``schema`` are the rows' columns for Spark and for Arrow.

    ``is_stopped`` is asked while a server that went away is waited for.
    """
    if isinstance(sink, DatabaseSink):
        return open_database(sink, types, is_stopped=is_stopped)
    if missing := [name for name in sink.key if name not in types]:
        raise OutputError(f"the key of {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}")
    match sink:
        case LakeSink():
            from barnabas.pipelines.outputs.lake import open_lake

            return open_lake(sink, schema, rows_change=rows_change)
        case SearchSink():
            from barnabas.pipelines.outputs.search import SearchIndex

            return SearchIndex(sink, types)
        case OpenSearchSink():
            from barnabas.pipelines.outputs.opensearch import OpenSearchIndex

            return OpenSearchIndex(sink, types, is_stopped=is_stopped)


def open_database(
    sink: DatabaseSink, types: Mapping[str, str], *, is_stopped: Callable[[], bool] = lambda: False
) -> OutputTable:
    """A database's table, which is made if there is none, as `open_output` does it."""
    missing = [name for name in sink.key if name not in types]
    if missing:
        raise DatabaseError(
            f"the key of table {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}"
        )
    match sink.type:
        case "sqlite":
            return SqliteTable(sink, types)
        case "duckdb":
            from barnabas.pipelines.outputs.duckdb_table import DuckTable

            return DuckTable(sink, types)
        case _:
            from barnabas.pipelines.outputs.postgres_table import PostgresTable

            return PostgresTable(sink, types, is_stopped=is_stopped)


def inspect_output(sink: TableSink, flow: str, query: str) -> TableState | None:
    """The output as it is, without changing it; None if it is not there. Raises `BarnabasError` if it could not take batches."""
    match sink:
        case DatabaseSink(type="sqlite"):
            return inspect_sqlite(sink.url, sink.table, flow, query)
        case DatabaseSink(type="duckdb"):
            from barnabas.pipelines.outputs.duckdb_table import inspect_duckdb

            return inspect_duckdb(sink, flow, query)
        case DatabaseSink():
            from barnabas.pipelines.outputs.postgres_table import inspect_postgres

            return inspect_postgres(sink, flow, query)
        case LakeSink():
            from barnabas.pipelines.outputs.lake import inspect_lake

            return inspect_lake(sink, flow, query)
        case SearchSink():
            return inspect_sqlite(sink.path, sink.table, flow, query)
        case OpenSearchSink():
            from barnabas.pipelines.outputs.opensearch import OpenSearchIndex

            index = OpenSearchIndex(sink, None)
            return TableState(None, index.last_epoch(flow, query)) if index.is_there() else None
