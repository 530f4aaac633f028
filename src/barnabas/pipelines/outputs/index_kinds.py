"""The kinds ``search`` and ``opensearch``: indexes for search. Needs no package."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from barnabas.pipelines.flow_file.fields import check_web_address
from barnabas.pipelines.outputs.database_kinds import RowTableKind
from barnabas.pipelines.outputs.declared import OpenSearchSink, SearchSink
from barnabas.pipelines.outputs.kind import (
    Declaration,
    LocalPlace,
    TableKind,
    TableOpening,
    read_deletion,
    read_table_name,
    real_path,
)

if TYPE_CHECKING:
    from barnabas.pipelines.outputs.table import OutputTable, TableState

__all__ = ["OPENSEARCH", "SEARCH"]

_PARTS = ("", "_data", "_idx", "_content", "_docsize", "_config")
"""What SQLite makes of a full-text index: ends of the names of tables."""
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]*")


class _SearchKind(RowTableKind[SearchSink]):
    type: ClassVar[str] = "search"
    template: ClassVar[str] = 'path = "state/{name}-search.db"\ntable = "results"\ntext = ["{text}"]'

    def declare(self, given: Declaration) -> SearchSink:
        table = given.table
        deletion = read_deletion(given)
        text = table.texts("text")
        if not text:
            raise table.fail("text", 'is missing: the columns to search in, like ["message"]')
        name = read_table_name(table)
        return SearchSink(table.needed_path("path", "the index's file"), name, text, given.key, deletion)

    def places(self, sink: SearchSink) -> set[object]:
        names = [sink.table.lower(), *(f"{sink.table.lower()}_index{part}" for part in _PARTS)]
        return {(real_path(sink.path), name) for name in names}

    def local_place(self, sink: SearchSink) -> LocalPlace:
        return LocalPlace(sink.path)

    def open(self, sink: SearchSink, opening: TableOpening) -> "OutputTable":
        from barnabas.pipelines.outputs.search import SearchIndex

        return SearchIndex(sink, opening.types)

    def inspect(self, sink: SearchSink, flow: str, query: str) -> "TableState | None":
        from barnabas.pipelines.outputs.sqlite_table import inspect_sqlite

        return inspect_sqlite(sink.path, sink.table, flow, query)

    def rows(
        self,
        sink: SearchSink,
        wait: Callable[[float], None],  # noqa: ARG002  # not of all kinds
    ) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        from barnabas.pipelines.outputs.results import read_sqlite_rows

        return read_sqlite_rows(sink.path, sink.table)

    def at(self, sink: SearchSink, path: str) -> SearchSink:
        return replace(sink, path=path)


class _OpenSearchKind(TableKind[OpenSearchSink]):
    type: ClassVar[str] = "opensearch"
    template: ClassVar[str] = 'url = "http://localhost:9200"\nindex = "{name}"\ntext = ["{text}"]'
    unreadable: ClassVar[str] = "an index of OpenSearch is not read back"

    def declare(self, given: Declaration) -> OpenSearchSink:
        table = given.table
        deletion = read_deletion(given)
        text = table.texts("text")
        url = table.needed_address("url", 'like "http://localhost:9200"')
        check_web_address(table, "url", url, "http://localhost:9200")
        index = table.needed("index", "the index's name")
        if not _INDEX.fullmatch(index):
            raise table.fail(
                "index", f"is {index!r}, but may hold lower-case letters, digits, dot, dash and underscore only"
            )
        timeout_ms = table.number("timeout_ms", 30_000)
        return OpenSearchSink(url.rstrip("/"), index, text, given.key, timeout_ms, deletion)

    def places(self, sink: OpenSearchSink) -> set[object]:
        return {(sink.url, sink.table)}

    def open(self, sink: OpenSearchSink, opening: TableOpening) -> "OutputTable":
        from barnabas.pipelines.outputs.opensearch import OpenSearchIndex

        return OpenSearchIndex(sink, opening.types, is_stopped=opening.is_stopped)

    def inspect(self, sink: OpenSearchSink, flow: str, query: str) -> "TableState | None":
        from barnabas.pipelines.outputs.opensearch import OpenSearchIndex
        from barnabas.pipelines.outputs.table import TableState

        index = OpenSearchIndex(sink, None)
        return TableState(None, index.last_epoch(flow, query)) if index.is_there() else None


SEARCH = _SearchKind()
OPENSEARCH = _OpenSearchKind()
