"""An output of flows in one module: a file with a JSON document in each line.

``register_output(LINES)`` is all else that it needs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from barnabas.base.files import OsFiles
from barnabas.pipelines.outputs.declared import NoResultError, OutputError
from barnabas.pipelines.outputs.kind import Declaration, LocalPlace, TableKind, TableOpening, read_deletion
from barnabas.pipelines.outputs.table import OutputTable, TableState, split_deleted


@dataclass(frozen=True, slots=True)
class LinesSink:
    """A file of lines."""

    path: str
    key: tuple[str, ...]
    delete_when: str | None = None
    order_by: str | None = None
    type: str = "lines"

    @property
    def table(self) -> str:
        return self.path


class LinesFile:
    """The file as a table: its first line says which micro-batch it holds, the
    others are rows by their keys."""

    def __init__(self, sink: LinesSink) -> None:
        self._path = Path(sink.path)
        self._key = sink.key
        self._query, self._epoch, self._rows = "", -1, dict[str, Any]()
        if self._path.exists():
            head, *lines = self._path.read_text().splitlines()
            try:
                self._query, self._epoch = json.loads(head)
            except ValueError as error:
                raise OutputError(f"{self._path} is no file of lines") from error
            self._rows = {self._key_of(row): row for row in map(json.loads, lines)}

    def _key_of(self, row: Mapping[str, Any]) -> str:
        return json.dumps([row[name] for name in self._key], default=str)

    # The name of the flow is not kept.
    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        if epoch <= (self.last_epoch(flow, query) or 0) and query == self._query:
            return False
        kept, deleted = split_deleted(rows)
        for row in deleted.to_pylist():
            self._rows.pop(self._key_of(row), None)
        for row in kept.to_pylist():
            self._rows[self._key_of(row)] = row
        lines = [json.dumps([query, epoch]), *(json.dumps(row, default=str) for row in self._rows.values())]
        OsFiles().write_atomically(str(self._path), ("\n".join(lines) + "\n").encode())
        self._query, self._epoch = query, epoch
        return True

    def last_epoch(self, flow: str, query: str) -> int | None:
        return self._epoch if query == self._query else -1

    def close(self) -> None:
        """Nothing is open between batches."""

    def columns(self) -> tuple[str, ...] | None:
        return next((tuple(row) for row in self._rows.values()), None)

    def rows(self) -> pa.Table:
        return pa.Table.from_pylist(list(self._rows.values()))


class LinesKind(TableKind[LinesSink]):
    """What flows need to know of such files."""

    type: ClassVar[str] = "lines"
    template: ClassVar[str] = 'path = "state/{name}.lines"'

    def declare(self, given: Declaration) -> LinesSink:
        return LinesSink(given.table.needed_path("path", "the file of lines"), given.key, read_deletion(given))

    def places(self, sink: LinesSink) -> set[object]:
        return {sink.path}

    def local_place(self, sink: LinesSink) -> LocalPlace:
        return LocalPlace(sink.path)

    def open(self, sink: LinesSink, opening: TableOpening) -> OutputTable:
        return LinesFile(sink)

    def inspect(self, sink: LinesSink, flow: str, query: str) -> TableState | None:
        if not Path(sink.path).exists():
            return None
        file = LinesFile(sink)
        return TableState(file.columns(), file.last_epoch(flow, query))

    def read(self, sink: LinesSink, wait: Callable[[float], None]) -> pa.Table:
        if not Path(sink.path).exists():
            raise NoResultError(f"there is no file {sink.path} yet")
        return LinesFile(sink).rows()

    def at(self, sink: LinesSink, path: str) -> LinesSink:
        return replace(sink, path=path)


LINES = LinesKind()
