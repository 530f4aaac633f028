"""The kinds ``parquet`` and ``delta``: tables of a lake. Needs no package."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from barnabas.pipelines.flow_file.fields import NAME, SpecTable
from barnabas.pipelines.outputs.declared import LakeSink
from barnabas.pipelines.outputs.kind import Declaration, LocalPlace, TableKind, TableOpening, read_deletion, real_path

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.pipelines.outputs.table import OutputTable, TableState

__all__ = ["DELTA", "PARQUET"]


class _LakeKind(TableKind[LakeSink]):
    template: ClassVar[str] = 'path = "state/{name}-results"'
    tells_positions_apart: ClassVar[bool] = False
    odd_folders: ClassVar[tuple[str, ...]]
    """Types of Spark's whose values do not come back from the names of folders."""
    files: ClassVar[str]
    """The files that differ when the rows do."""

    def places(self, sink: LakeSink) -> set[object]:
        return {real_path(sink.path)}

    def local_place(self, sink: LakeSink) -> LocalPlace:
        return LocalPlace(sink.path, is_folder=True)

    def folders(self, sink: LakeSink) -> tuple[str, ...]:
        return sink.partition_by

    def folder_problem(self, type_name: str) -> str:
        if not type_name.startswith(self.odd_folders):
            return ""
        advice = "take a text, a whole number or a date"
        return f"is of type {type_name}, whose values do not come back from the names of folders: {advice}"

    def open(self, sink: LakeSink, opening: TableOpening) -> "OutputTable":
        from barnabas.pipelines.outputs.lake import open_lake

        return open_lake(sink, opening.schema, rows_change=opening.rows_change)

    def inspect(self, sink: LakeSink, flow: str, query: str) -> "TableState | None":
        from barnabas.pipelines.outputs.lake import inspect_lake

        return inspect_lake(sink, flow, query)

    def mark(self, sink: LakeSink) -> Any:
        return sorted(each.name for each in Path(sink.path).glob(self.files))

    def at(self, sink: LakeSink, path: str) -> LakeSink:
        return replace(sink, path=path)


class _ParquetKind(_LakeKind):
    type: ClassVar[str] = "parquet"
    odd_folders: ClassVar[tuple[str, ...]] = ("binary",)
    files: ClassVar[str] = "**/*.parquet"

    def declare(self, given: Declaration) -> LakeSink:
        table = given.table
        if given.rows_change:
            raise table.fail(
                "type", 'is "parquet", whose rows cannot be replaced; for these results take "delta" or a database'
            )
        if table.text("delete_when") is not None:
            raise table.fail("delete_when", 'is not for "parquet", whose rows stay; take "delta" or a database')
        return LakeSink(self.type, table.needed_path("path", "the folder of the files"), given.key, _folders(table))

    def repetition(self, sink: LakeSink) -> str:  # noqa: ARG002  # the same for all
        return "cannot replace rows, and refuses those of another beginning: move its folder away before the next run"

    def read(self, sink: LakeSink, wait: Callable[[float], None]) -> "pa.Table":  # noqa: ARG002  # not of all kinds
        from barnabas.pipelines.outputs.results import read_parquet

        return read_parquet(sink.path)


class _DeltaKind(_LakeKind):
    type: ClassVar[str] = "delta"
    odd_folders: ClassVar[tuple[str, ...]] = ("binary", "float", "double", "decimal")
    files: ClassVar[str] = "_delta_log/*.json"
    empty_folder_is_null: ClassVar[str] = "Delta"

    def declare(self, given: Declaration) -> LakeSink:
        table = given.table
        deletion = read_deletion(given)
        path = table.needed_path("path", "the folder of the table")
        return LakeSink(self.type, path, given.key, _folders(table), table.number("compact_every", 100), deletion)

    def read(self, sink: LakeSink, wait: Callable[[float], None]) -> "pa.Table":  # noqa: ARG002  # not of all kinds
        from barnabas.pipelines.outputs.results import read_delta

        return read_delta(sink.path)


def _folders(table: SpecTable) -> tuple[str, ...]:
    names = table.texts("partition_by")
    for name in names:
        if not NAME.fullmatch(name):
            raise table.fail("partition_by", f"{name!r} is no name of a column")
    return names


PARQUET = _ParquetKind()
DELTA = _DeltaKind()
