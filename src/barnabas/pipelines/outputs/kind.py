"""What a kind of output is: how it is declared, where it writes, and the table that takes its
batches. Needs no package.

A kind is a subclass of `TableKind` with one object, which is registered in
`barnabas.pipelines.outputs.registry`. A table needs no other place: reading a flow's file, its
check, dry run, run, dashboard and verification ask the registered object. Topics and functions are
also named where Spark writes them.

A kind that needs packages imports them inside of its methods: all kinds are imported
whenever a flow's file is read.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from barnabas.pipelines.flow_file.fields import NAME, POSITION, SpecTable
from barnabas.pipelines.outputs.declared import NoResultError, Sink, TableSink
from barnabas.pipelines.outputs.epochs import EPOCHS_TABLE

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.pipelines.outputs.table import OutputTable, TableState

__all__ = [
    "Declaration",
    "KeyLimits",
    "LocalPlace",
    "OutputKind",
    "SourceCluster",
    "TableKind",
    "TableOpening",
    "read_deletion",
    "read_table_name",
    "real_path",
]

S = TypeVar("S", bound=Sink)
T = TypeVar("T", bound=TableSink)


class SourceCluster(NamedTuple):
    """The cluster of a flow's first source, where a topic goes that names no other."""

    bootstrap_servers: str
    kafka: Mapping[str, str]
    """What a producer to it needs."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One of the tables ``[[sinks]]``, to be read."""

    table: SpecTable
    key: tuple[str, ...]
    """The columns of the results' keys: of the file, of the aggregate, or the
    position of a record."""
    near: SourceCluster
    is_aggregated: bool = False

    @property
    def rows_change(self) -> bool:
        """Whether rows come again with other figures, as those of aggregates do."""
        return self.is_aggregated or self.key != POSITION


class LocalPlace(NamedTuple):
    """The file or folder of an output on this machine."""

    path: str
    is_folder: bool = False


class KeyLimits(NamedTuple):
    """What texts a key may have: at most ``most_bytes`` in all, and no U+0000."""

    system: str
    most_bytes: int


class TableOpening(NamedTuple):
    """What the table of an output is to take."""

    types: Mapping[str, str]
    """The rows' columns, as Spark names their types."""
    schema: "pa.Schema"
    """The same for Arrow."""
    rows_change: bool
    """Whether rows come again with other figures."""
    is_stopped: Callable[[], bool]
    """Asked while a server that went away is waited for."""


class OutputKind(Generic[S]):
    """What the rest of the program asks about the outputs of one ``type``."""

    type: ClassVar[str]
    """Its name in flows' files."""
    template: ClassVar[str] = ""
    """The fields that ``barnabas pipeline new`` writes, with the places ``{name}`` and ``{text}``;
    "" for a kind not offered."""
    tells_positions_apart: ClassVar[bool] = True
    """Whether rows of one position replace each other, so that no record may become several."""
    unreadable: ClassVar[str] = ""
    """Why ``barnabas pipeline verify`` cannot read it back; "" if it can."""

    def declare(self, given: Declaration) -> S:
        """The output that the table declares, without its ``order_by``; raises `SpecError`."""
        raise NotImplementedError

    def title(self, sink: S) -> str:
        """The output as messages and checkpoints name it.

        Another title is another output to a checkpoint."""
        raise NotImplementedError

    def places(self, sink: S) -> set[object]:
        """Where it writes, in a form that is equal for equal places: no two outputs
        of a flow may share one."""
        raise NotImplementedError

    def repetition(self, sink: S) -> str:
        """What it makes of records that come again, after its title."""
        raise NotImplementedError

    def local_place(self, sink: S) -> LocalPlace | None:  # noqa: ARG002  # most have one
        """Its file or folder on this machine, if it has one."""
        return None

    def folders(self, sink: S) -> tuple[str, ...]:  # noqa: ARG002  # of lakes
        """The columns whose values become names of folders."""
        return ()


class TableKind(OutputKind[T]):
    """A kind whose table takes batches on the driver, as Arrow tables."""

    key_limits: ClassVar[KeyLimits | None] = None
    empty_folder_is_null: ClassVar[str] = ""
    """The system that takes an empty text in ``partition_by`` for null, and whose folders have
    names of limited length."""

    def open(self, sink: T, opening: TableOpening) -> "OutputTable":
        """The table, connected and prepared. Raises `BarnabasError`."""
        raise NotImplementedError

    def inspect(self, sink: T, flow: str, query: str) -> "TableState | None":
        """The table as it is, without changing it; None if it is not there.

        Raises `BarnabasError`."""
        raise NotImplementedError

    def title(self, sink: T) -> str:
        return f"{self.type} table {sink.table}"

    def repetition(self, sink: T) -> str:
        return f"keeps one row for each {', '.join(sink.key)}, so rows that come again replace their like"

    def folder_problem(self, type_name: str) -> str:  # noqa: ARG002  # of lakes
        """Why a column of a type of Spark's cannot make folders; "" if it can."""
        return ""

    # Reading results back, for the dashboard and for verification.

    @property
    def is_readable(self) -> bool:
        """Whether `read` gives rows."""
        return type(self).read is not TableKind.read

    def read(self, sink: T, wait: Callable[[float], None]) -> "pa.Table":  # noqa: ARG002  # a default
        """All rows; times are times, whatever form the output keeps them in.

        ``wait`` pauses. Raises `NoResultError`."""
        raise NoResultError("the results of this sink cannot be read back")

    def rows(self, sink: T, wait: Callable[[float], None]) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """The columns, and all rows as the output keeps them."""
        from barnabas.pipelines.values.arrow_values import row_tuples

        table = self.read(sink, wait)
        return table.column_names, row_tuples(table)

    def mark(self, sink: T) -> Any:
        """Something that differs when the rows may have changed; None if that is not known."""
        place = self.local_place(sink)
        if place is None:
            return None
        return [_stamp(Path(place.path + ending)) for ending in ("", "-wal", ".wal")]

    def at(self, sink: T, path: str) -> T | None:  # noqa: ARG002  # a default
        """The same output in another file or folder, for `verify`; None if it is on a server.

        The rows of one on a server are compared with the flow's as `stored` gives them.
        """
        return None

    def stored(self, value: Any, *, is_float: bool) -> Any:  # noqa: ARG002  # a default
        """A value as the output keeps it; ``is_float`` is of numbers of 4 bytes."""
        return value


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def read_deletion(given: Declaration) -> str | None:
    """The condition ``delete_when`` of a sink."""
    condition = given.table.text("delete_when")
    if condition is not None and given.key == POSITION:
        raise given.table.fail("delete_when", "needs a key: each record's position is new, and so no row has it")
    return condition


def read_table_name(table: SpecTable, *, with_schema: bool = False) -> str:
    """The name of a table, which may be one of a schema.

    It is not the table that keeps which micro-batches were applied."""
    name = table.needed("table")
    pattern = rf"{NAME.pattern}(\.{NAME.pattern})?" if with_schema else NAME.pattern
    if not re.fullmatch(pattern, name):
        raise table.fail("table", f"is {name!r}, which is no name of a table")
    if name.rpartition(".")[2].lower() == EPOCHS_TABLE:
        raise table.fail("table", f"is {name!r}, where the flow keeps what it has written; take another name")
    return name


def real_path(path: str) -> str:
    """One name for a file or folder that has several."""
    return os.path.realpath(path)
