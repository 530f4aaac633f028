"""The kinds of outputs that flows may name: each is registered here, by one line.

    sqlite, duckdb, postgresql   database_kinds.py
    parquet, delta               lake_kinds.py
    search, opensearch           index_kinds.py
    topic, function              spark_kinds.py

Other programs register theirs with `register_output`, before they read a flow's
file. Needs no package.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.outputs.database_kinds import DUCKDB, POSTGRESQL, SQLITE
from barnabas.pipelines.outputs.declared import OutputError, Sink, TableSink
from barnabas.pipelines.outputs.index_kinds import OPENSEARCH, SEARCH
from barnabas.pipelines.outputs.kind import OutputKind, TableKind, TableOpening
from barnabas.pipelines.outputs.lake_kinds import DELTA, PARQUET
from barnabas.pipelines.outputs.spark_kinds import FUNCTIONS, TOPICS

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.pipelines.outputs.table import OutputTable, TableState

__all__ = [
    "inspect_output",
    "is_table",
    "kind_of",
    "open_output",
    "output_kinds",
    "register_output",
    "sink_name",
    "table_kind_of",
    "unregister_output",
]

_KINDS: dict[str, OutputKind[Any]] = {
    each.type: each for each in (SQLITE, DUCKDB, POSTGRESQL, PARQUET, DELTA, SEARCH, OPENSEARCH, TOPICS, FUNCTIONS)
}


def register_output(kind: TableKind[Any]) -> None:
    """Let flows name another kind of tables.

    Raises `TypeError` for a kind that is none of tables, `ValueError` if its name is taken.
    """
    if not isinstance(kind, TableKind):
        raise TypeError(f"{kind!r} is no TableKind")
    if kind.type in _KINDS:
        raise ValueError(f"there is a kind {kind.type} of outputs already")
    _KINDS[kind.type] = kind


def unregister_output(kind: TableKind[Any]) -> None:
    """Take a kind away again, as tests do."""
    del _KINDS[kind.type]


def output_kinds() -> dict[str, OutputKind[Any]]:
    """All kinds, by their names."""
    return dict(_KINDS)


def kind_of(sink: Sink) -> OutputKind[Any]:
    """The kind of a declared output."""
    return _KINDS[sink.type]


def is_table(sink: Sink) -> bool:
    """Whether the output is a table, which takes Arrow tables and knows a flow's
    micro-batches by the flow's name."""
    return isinstance(kind_of(sink), TableKind)


def table_kind_of(sink: Sink) -> TableKind[Any]:
    """The kind of a declared output that is a table."""
    kind = kind_of(sink)
    assert isinstance(kind, TableKind), sink.type
    return kind


def open_output(
    sink: TableSink,
    types: Mapping[str, str],
    schema: "pa.Schema",
    *,
    rows_change: bool,
    is_stopped: Callable[[], bool] = lambda: False,
) -> "OutputTable":
    """The table of an output, as `TableKind.open` has it.

    Raises `OutputError` if the rows lack a column of the key."""
    if missing := [name for name in sink.key if name not in types]:
        raise OutputError(
            f"the key of table {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}"
        )
    return table_kind_of(sink).open(sink, TableOpening(types, schema, rows_change, is_stopped))


def inspect_output(sink: TableSink, flow: str, query: str) -> "TableState | None":
    """The table of an output as it is, without changing it; None if it is not there.

    Raises `BarnabasError`."""
    return table_kind_of(sink).inspect(sink, flow, query)


def sink_name(sink: Sink) -> str:
    """A sink as messages and checkpoints name it."""
    return kind_of(sink).title(sink)
