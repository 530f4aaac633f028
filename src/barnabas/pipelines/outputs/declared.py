"""How lake tables and search indexes are declared in a flow's file. Needs neither Spark nor their packages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.flow_file.fields import NAME, POSITION, SpecTable, check_web_address
from barnabas.pipelines.outputs.epochs import EPOCHS_TABLE

__all__ = [
    "INDEX_PARTS",
    "OUTPUT_TYPES",
    "LakeSink",
    "OpenSearchSink",
    "OutputError",
    "SearchSink",
    "declare_output",
    "folder_type_problem",
    "read_deletion",
    "refuse_own_table",
]

OUTPUT_TYPES = ("parquet", "delta", "search", "opensearch")
INDEX_PARTS = ("", "_data", "_idx", "_content", "_docsize", "_config")
"""What SQLite makes of a full-text index: ends of the names of tables."""
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]*")


class OutputError(BarnabasError):
    """An output refused a batch, or what is there does not fit the flow."""


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A folder of Parquet files (``parquet``), or a Delta table (``delta``)."""

    type: str
    path: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    compact_every: int = 100
    """Delta only: after so many versions small files become large ones."""
    delete_when: str | None = None
    """Delta only: an SQL condition; a row of the results for which it is true deletes the row of its key."""
    order_by: str | None = None
    """A column that says which row of a key is the last one (`barnabas.pipelines.frames.ordering`)."""

    @property
    def table(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class SearchSink:
    """A table of a SQLite file with a full-text index over the columns ``text``."""

    path: str
    table: str
    text: tuple[str, ...]
    key: tuple[str, ...]
    delete_when: str | None = None
    """As of a `LakeSink`."""
    order_by: str | None = None
    type: str = "search"


@dataclass(frozen=True, slots=True)
class OpenSearchSink:
    """An index of OpenSearch, or of another server with its bulk protocol."""

    url: str
    table: str
    text: tuple[str, ...]
    key: tuple[str, ...]
    timeout_ms: int = 30_000
    delete_when: str | None = None
    """As of a `LakeSink`; it deletes the document."""
    order_by: str | None = None
    type: str = "opensearch"


def declare_output(
    kind: str, table: SpecTable, key: tuple[str, ...], *, rows_change: bool
) -> LakeSink | SearchSink | OpenSearchSink:
    """The output of one of `OUTPUT_TYPES`. ``rows_change``: results come again with other figures, as aggregates do."""
    if kind == "parquet" and rows_change:
        raise table.fail(
            "type", 'is "parquet", whose rows cannot be replaced; for these results take "delta" or a database'
        )
    if kind == "parquet":
        if table.text("delete_when") is not None:
            raise table.fail("delete_when", 'is not for "parquet", whose rows stay; take "delta" or a database')
        return LakeSink(kind, table.needed_path("path", "the folder of the files"), key, _columns(table))
    deletion = read_deletion(table, key)
    if kind == "delta":
        path = table.needed_path("path", "the folder of the table")
        return LakeSink(kind, path, key, _columns(table), table.number("compact_every", 100), deletion)
    text = table.texts("text")
    if kind == "search":
        if not text:
            raise table.fail("text", 'is missing: the columns to search in, like ["message"]')
        name = table.needed("table")
        if not NAME.fullmatch(name):
            raise table.fail("table", f"is {name!r}, which is no name of a table")
        refuse_own_table(table, name)
        return SearchSink(table.needed_path("path", "the index's file"), name, text, key, deletion)
    url = table.needed_address("url", 'like "http://localhost:9200"')
    check_web_address(table, "url", url, "http://localhost:9200")
    index = table.needed("index", "the index's name")
    if not _INDEX.fullmatch(index):
        raise table.fail(
            "index", f"is {index!r}, but may hold lower-case letters, digits, dot, dash and underscore only"
        )
    return OpenSearchSink(url.rstrip("/"), index, text, key, table.number("timeout_ms", 30_000), deletion)


def folder_type_problem(kind: str, type_name: str) -> str:
    """Why a column of a type of Spark's cannot make folders of a lake table of this kind; "" if it can."""
    are_odd = ("binary", "float", "double", "decimal") if kind == "delta" else ("binary",)
    if not type_name.startswith(are_odd):
        return ""
    return f"is of type {type_name}, whose values do not come back from the names of folders: take a text, a whole number or a date"


def read_deletion(table: SpecTable, key: tuple[str, ...]) -> str | None:
    """The condition ``delete_when`` of a sink."""
    condition = table.text("delete_when")
    if condition is not None and key == POSITION:
        raise table.fail("delete_when", "needs a key: each record's position is new, and so no row has it")
    return condition


def refuse_own_table(table: SpecTable, name: str) -> None:
    """Raises `SpecError` for the name of the table that keeps which micro-batches were applied."""
    if name.rpartition(".")[2].lower() == EPOCHS_TABLE:
        raise table.fail("table", f"is {name!r}, where the flow keeps what it has written; take another name")


def _columns(table: SpecTable) -> tuple[str, ...]:
    return _known(table, "partition_by", table.texts("partition_by"))


def _known(table: SpecTable, field: str, names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if not NAME.fullmatch(name):
            raise table.fail(field, f"{name!r} is no name of a column")
    return tuple(names)
