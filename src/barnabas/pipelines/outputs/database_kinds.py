"""The kinds ``sqlite``, ``duckdb`` and ``postgresql``: tables of databases. Needs no package."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from barnabas.pipelines.flow_file.addresses import postgres_problem
from barnabas.pipelines.outputs.declared import DatabaseSink, TableSink
from barnabas.pipelines.outputs.kind import (
    Declaration,
    KeyLimits,
    LocalPlace,
    TableKind,
    TableOpening,
    read_deletion,
    read_table_name,
    real_path,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.pipelines.outputs.table import OutputTable, TableState

__all__ = ["DUCKDB", "POSTGRESQL", "POSTGRES_KEY_BYTES", "SQLITE", "RowTableKind"]

T = TypeVar("T", bound=TableSink)

POSTGRES_KEY_BYTES = 2500
"""How many bytes the texts of a key may have for PostgreSQL: an entry of its index has 2,704,
its other columns included."""
_ADDRESS = 'like "postgresql://user@host/database"'


class RowTableKind(TableKind[T]):
    """A kind whose table is read by its `rows`; what `read` gives is made of these."""

    def rows(self, sink: T, wait: Callable[[float], None]) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        raise NotImplementedError

    def read(self, sink: T, wait: Callable[[float], None]) -> "pa.Table":
        from barnabas.pipelines.outputs.results import as_table

        return as_table(*self.rows(sink, wait))


class _FileKind(TableKind[DatabaseSink]):
    """A database in a file."""

    def declare(self, given: Declaration) -> DatabaseSink:
        name = read_table_name(given.table, with_schema=True)
        path = given.table.needed_path("path", "the database's file")
        return DatabaseSink(self.type, path, name, given.key, read_deletion(given))

    def places(self, sink: DatabaseSink) -> set[object]:
        """SQLite and DuckDB see no difference between upper and lower case."""
        return {(real_path(sink.url), sink.table.lower())}

    def local_place(self, sink: DatabaseSink) -> LocalPlace:
        return LocalPlace(sink.url)

    def at(self, sink: DatabaseSink, path: str) -> DatabaseSink:
        return replace(sink, url=path)


class _SqliteKind(_FileKind, RowTableKind[DatabaseSink]):
    type: ClassVar[str] = "sqlite"
    template: ClassVar[str] = 'path = "state/{name}.db"\ntable = "results"'

    def open(self, sink: DatabaseSink, opening: TableOpening) -> "OutputTable":
        from barnabas.pipelines.outputs.sqlite_table import SqliteTable

        return SqliteTable(sink, opening.types)

    def inspect(self, sink: DatabaseSink, flow: str, query: str) -> "TableState | None":
        from barnabas.pipelines.outputs.sqlite_table import inspect_sqlite

        return inspect_sqlite(sink.url, sink.table, flow, query)

    def rows(
        self,
        sink: DatabaseSink,
        wait: Callable[[float], None],  # noqa: ARG002  # not of all kinds
    ) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        from barnabas.pipelines.outputs.results import read_sqlite_rows

        return read_sqlite_rows(sink.url, sink.table)


class _DuckDbKind(_FileKind):
    type: ClassVar[str] = "duckdb"
    template: ClassVar[str] = 'path = "state/{name}.duckdb"\ntable = "results"'

    def open(self, sink: DatabaseSink, opening: TableOpening) -> "OutputTable":
        from barnabas.pipelines.outputs.duckdb_table import DuckTable

        return DuckTable(sink, opening.types)

    def inspect(self, sink: DatabaseSink, flow: str, query: str) -> "TableState | None":
        from barnabas.pipelines.outputs.duckdb_table import inspect_duckdb

        return inspect_duckdb(sink, flow, query)

    def read(self, sink: DatabaseSink, wait: Callable[[float], None]) -> "pa.Table":
        from barnabas.pipelines.outputs.results import read_duckdb

        return read_duckdb(sink, wait)


class _PostgresKind(RowTableKind[DatabaseSink]):
    type: ClassVar[str] = "postgresql"
    template: ClassVar[str] = (
        'url = "postgresql://localhost/postgres"   # ${{NAME}} takes a password from the environment\ntable = "results"'
    )
    key_limits: ClassVar[KeyLimits | None] = KeyLimits("PostgreSQL", POSTGRES_KEY_BYTES)

    def declare(self, given: Declaration) -> DatabaseSink:
        name = read_table_name(given.table, with_schema=True)
        url = given.table.needed_address("url", _ADDRESS)
        if problem := postgres_problem(url):
            raise given.table.fail("url", problem)
        return DatabaseSink(self.type, url, name, given.key, read_deletion(given))

    def places(self, sink: DatabaseSink) -> set[object]:
        return {(sink.url, sink.table)}

    def open(self, sink: DatabaseSink, opening: TableOpening) -> "OutputTable":
        from barnabas.pipelines.outputs.postgres_table import PostgresTable

        return PostgresTable(sink, opening.types, is_stopped=opening.is_stopped)

    def inspect(self, sink: DatabaseSink, flow: str, query: str) -> "TableState | None":
        from barnabas.pipelines.outputs.postgres_table import inspect_postgres

        return inspect_postgres(sink, flow, query)

    def rows(
        self,
        sink: DatabaseSink,
        wait: Callable[[float], None],  # noqa: ARG002  # not of all kinds
    ) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        from barnabas.pipelines.outputs.results import read_postgres_rows

        return read_postgres_rows(sink)

    def stored(self, value: Any, *, is_float: bool) -> Any:
        """Numbers of 4 bytes are rounded, and texts have no U+0000."""
        if is_float and value is not None:
            return struct.unpack("f", struct.pack("f", value))[0]
        return value.replace("\0", "\ufffd") if isinstance(value, str) else value


SQLITE = _SqliteKind()
DUCKDB = _DuckDbKind()
POSTGRESQL = _PostgresKind()
