"""Which class takes the batches of which declared output, and what looks at it for a dry run."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from barnabas.pipelines.database import SinkDatabase, look_at_sqlite, open_database
from barnabas.pipelines.outputs.declared import LakeSink, OpenSearchSink, OutputError, SearchSink
from barnabas.pipelines.outputs.holding import Holding
from barnabas.pipelines.spec import DatabaseSink

__all__ = ["TableSink", "look_at_output", "open_output"]

TableSink = DatabaseSink | LakeSink | SearchSink | OpenSearchSink
"""What takes batches as Arrow tables on the driver."""


def open_output(
    sink: TableSink,
    types: Mapping[str, str],
    schema: pa.Schema,
    *,
    rows_change: bool,
    is_stopped: Callable[[], bool] = lambda: False,
) -> SinkDatabase:
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

            return OpenSearchIndex(sink, types)


def look_at_output(sink: TableSink, flow: str, query: str) -> Holding | None:
    """What the output holds, without changing it; None if it is not there. Raises `BarnabasError` if it could not take batches."""
    match sink:
        case LakeSink():
            from barnabas.pipelines.outputs.lake import look_at_lake

            return look_at_lake(sink, flow, query)
        case SearchSink():
            return look_at_sqlite(sink.path, sink.table, flow, query)
        case OpenSearchSink():
            from barnabas.pipelines.outputs.opensearch import OpenSearchIndex

            return Holding(None, None) if OpenSearchIndex(sink, None).is_there() else None
        case DatabaseSink(type="sqlite"):
            return look_at_sqlite(sink.url, sink.table, flow, query)
        case DatabaseSink(type="duckdb"):
            from barnabas.pipelines.outputs.duckdb_table import look_at_duckdb

            return look_at_duckdb(sink, flow, query)
        case _:
            from barnabas.pipelines.outputs.postgres_table import look_at_postgres

            return look_at_postgres(sink, flow, query)
