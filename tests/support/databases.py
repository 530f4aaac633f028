"""Tables of databases, opened as flows open them."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from barnabas.pipelines.outputs.declared import DatabaseSink
from barnabas.pipelines.outputs.registry import open_output
from barnabas.pipelines.outputs.table import OutputTable


def open_database(
    sink: DatabaseSink, types: Mapping[str, str], *, is_stopped: Callable[[], bool] = lambda: False
) -> OutputTable:
    """A database's table, which is made if there is none.

    It has no use for the columns' types of Arrow."""
    return open_output(sink, types, pa.schema([]), rows_change=True, is_stopped=is_stopped)
