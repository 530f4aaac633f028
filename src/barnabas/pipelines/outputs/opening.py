"""Which class takes the batches of which declared output."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from barnabas.pipelines.database import SinkDatabase, open_database
from barnabas.pipelines.outputs.declared import LakeSink, OpenSearchSink, OutputError, SearchSink
from barnabas.pipelines.spec import DatabaseSink

__all__ = ["TableSink", "open_output"]

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
