"""Lake tables as sinks: a folder of Parquet files, and a Delta table through
delta-rs, which needs no jars.

Parquet: a batch is one file, or one for each value of ``partition_by``, whose name holds the
query and the epoch. A file appears whole or not at all, and a batch that runs again replaces its
files with equal ones. So plain readers of the folder see each row once. A new query (another
checkpoint) would read the topics again and write all rows a second time: the folder remembers its
query, and refuses another.

Delta: a batch is one commit, which carries the query and the epoch as a transaction of an
application; that is how Delta itself recognises repetitions. Rows that are keyed by where
they came from are appended. Others, and those of a new query into a table that has rows, are
merged on their key.
"""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.base.files import OsFiles
from barnabas.base.installation import install_command
from barnabas.pipelines.errors import REFILL_ADVICE
from barnabas.pipelines.outputs.declared import LakeSink, OutputError
from barnabas.pipelines.outputs.table import DELETION_MARK, TableState

__all__ = ["DeltaTableSink", "ParquetFolder", "inspect_lake", "open_lake"]

_NOTES = "_barnabas"
"""The flows that write to a folder, and of each the query, as empty folders: some readers
take every file for Parquet."""
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_APPEND, _MERGE = "append", "merge"
_DELETED = f"it was deleted while the flow ran, or is an older copy, and lacks rows up to now. Restore it as it was; or {REFILL_ADVICE}"


def open_lake(sink: LakeSink, schema: pa.Schema, *, rows_change: bool) -> "ParquetFolder | DeltaTableSink":
    """The lake table, made if it is not there.

    ``rows_change``: rows of an equal key come again, with other values."""
    missing = [name for name in sink.partition_by if name not in schema.names]
    if missing:
        raise OutputError(
            f"partition_by of {sink.path} names {', '.join(missing)}, but the rows have {', '.join(schema.names)}"
        )
    if sink.type == "parquet":
        return ParquetFolder(sink, schema)
    return DeltaTableSink(sink, schema, rows_change=rows_change)


class ParquetFolder:
    """A folder of Parquet files."""

    def __init__(self, sink: LakeSink, schema: pa.Schema) -> None:
        self._sink = sink
        self._folder = Path(sink.path)
        self._files = OsFiles()
        self._claimed: set[tuple[str, str]] = set()
        """Flows and queries whose notes this run has seen."""
        self._check_columns(schema)

    def _check_columns(self, schema: pa.Schema) -> None:
        first = next(self._folder.glob("**/*.parquet"), None)
        if first is None:
            return
        stored = [name for name in schema.names if name not in self._sink.partition_by]
        found = pq.read_schema(first)
        wrong = [
            name for name in stored if name not in found.names or found.field(name).type != schema.field(name).type
        ]
        if wrong:
            raise OutputError(
                f"the files in {self._folder} have other columns or types than the flow: {', '.join(wrong)}. "
                "Give the sink another folder."
            )

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        """Write the batch's files; True, for a batch that runs again writes them again."""
        try:
            self._claim(flow, query)
            if rows.num_rows:
                for folder, part in self._parts(rows):
                    self._write(folder, f"{query}-{epoch:09d}.parquet", part)
        except OSError as error:
            raise OutputError(f"cannot write to {self._folder}: {error.strerror or error}") from error
        return True

    def last_epoch(self, flow: str, query: str) -> int | None:
        """-1 if the folder has no note of the query.

        A batch without rows leaves no file, so more is not known."""
        return None if _has_note(self._sink, flow, query) else -1

    def _claim(self, flow: str, query: str) -> None:
        """The folder belongs to the first query of a flow that writes to it."""
        note = self._folder / _NOTES / flow
        owners = _owners(note)
        if owners and query not in owners:
            raise OutputError(
                f"{self._folder} has rows of the flow {flow} from another checkpoint, which this one would add again. "
                "Move the folder away, or give the sink another path."
            )
        if not owners and (flow, query) in self._claimed:
            raise OutputError(f"the folder {self._folder}: {_DELETED}")
        self._claimed.add((flow, query))
        if not owners:
            (note / query).mkdir(parents=True, exist_ok=True)
            for each in (note, note.parent, self._folder):
                self._files.sync_dir(str(each))

    def _parts(self, rows: pa.Table) -> list[tuple[Path, pa.Table]]:
        names = list(self._sink.partition_by)
        if not names:
            return [(self._folder, rows)]
        parts = []
        for values in rows.select(names).group_by(names).aggregate([]).to_pylist():
            mask = None
            folder = self._folder
            for name in names:
                value = values[name]
                same = pc.is_null(rows[name]) if value is None else pc.fill_null(pc.equal(rows[name], value), False)
                mask = same if mask is None else pc.and_(mask, same)
                folder /= f"{name}={_NULL_PARTITION if value is None else _escaped(str(value))}"
            parts.append((folder, rows.filter(mask).drop_columns(names)))
        return parts

    def _write(self, folder: Path, name: str, rows: pa.Table) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        buffer = pa.BufferOutputStream()
        pq.write_table(rows, buffer, compression="zstd")
        self._files.write_atomically(str(folder / name), memoryview(buffer.getvalue()))

    def close(self) -> None:
        """Files are open during a batch only."""


def inspect_lake(sink: LakeSink, flow: str, query: str) -> TableState | None:
    """What the folder or table holds; None if it is not there. Raises `OutputError`."""
    return _inspect_delta(sink, flow, query) if sink.type == "delta" else _inspect_parquet(sink, flow, query)


def _inspect_delta(sink: LakeSink, flow: str, query: str) -> TableState | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(sink.path)
        names = tuple(field.name for field in table.schema().fields)
        epochs = [table.transaction_version(f"barnabas/{flow}/{query}/{way}") for way in (_APPEND, _MERGE)]
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise OutputError(f"the Delta table at {sink.path}: {_plain(error)}") from error
    return TableState(names, max((int(each) for each in epochs if each is not None), default=-1))


def _plain(error: Exception) -> str:
    """What the operating system says, where the library wraps it in Rust's notation;
    else the text as one line."""
    text = str(error)
    found = re.search(r'Os \{ .*message: "([^"]+)" \}', text)
    return found[1] if found else " ".join(text.split())


def _inspect_parquet(sink: LakeSink, flow: str, query: str) -> TableState | None:
    folder = Path(sink.path)
    if not folder.is_dir():
        return None
    first = next(folder.glob("**/*.parquet"), None)
    try:
        names = (*pq.read_schema(first).names, *sink.partition_by) if first else None
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"{first} cannot be read: {error}") from error
    return TableState(names, None if _has_note(sink, flow, query) else -1)


def _has_note(sink: LakeSink, flow: str, query: str) -> bool:
    """Whether a folder of Parquet files is filled by a query of the flow."""
    return query in _owners(Path(sink.path) / _NOTES / flow)


def _owners(note: Path) -> list[str]:
    """The query that fills the folder for a flow.

    The note was a file once, which is taken as it is."""
    if note.is_file():
        return [note.read_text(encoding="utf-8").strip()]
    return [each.name for each in note.iterdir()] if note.is_dir() else []


class DeltaTableSink:
    """A Delta table."""

    def __init__(self, sink: LakeSink, schema: pa.Schema, *, rows_change: bool) -> None:
        try:
            import deltalake
            from deltalake.exceptions import DeltaError
        except ImportError as error:
            raise OutputError(f"Delta tables need deltalake: {install_command('outputs')}") from error
        self._delta: Any = deltalake
        self._error: Any = DeltaError
        self._sink = sink
        self._rows_change = rows_change
        self._applied: dict[tuple[str, str], int] = {}
        """The last micro-batch of each flow and query that this run applied."""
        try:
            self._table = deltalake.DeltaTable.create(
                sink.path, schema, mode="ignore", partition_by=list(sink.partition_by) or None
            )
        except (DeltaError, OSError) as error:
            raise OutputError(f"the Delta table at {sink.path}: {_plain(error)}") from error
        stored = {field.name for field in self._table.schema().fields}
        if missing := [name for name in schema.names if name not in stored]:
            raise OutputError(
                f"the Delta table at {sink.path} has no column {', '.join(missing)}; add it, or give the sink another path"
            )

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        """One commit; False when the table has the epoch's commit already."""
        self._require_folders(rows)
        try:
            way, last = self._followed(flow, query)
            if last is not None and epoch <= last:
                return False
            transaction = self._delta.Transaction(f"barnabas/{flow}/{query}/{way}", epoch)
            properties = self._delta.CommitProperties(app_transactions=[transaction])
            if rows.num_rows and (way == _MERGE or DELETION_MARK in rows.column_names):
                self._merge(rows, properties)
                rows = rows.slice(0, 0)
            # A merge that changes nothing leaves no commit: without rows, or with deletions of
            # rows that are not there.
            if self._way(flow, query) != (way, epoch):
                rows = rows.select([name for name in rows.column_names if name != DELETION_MARK])
                self._delta.write_deltalake(self._table, rows, mode="append", commit_properties=properties)
            self._applied[flow, query] = epoch
            self._compact()
        except (self._error, OSError) as error:
            raise OutputError(f"the Delta table at {self._sink.path}: {_plain(error)}") from error
        return True

    def _require_folders(self, rows: pa.Table) -> None:
        """Raise `OutputError` for an empty text that is to make a folder: Delta's protocol takes it
        for null, and so for another key."""
        for name in self._sink.partition_by:
            if pa.types.is_string(rows.schema.field(name).type) and pc.any(pc.equal(rows[name], "")).as_py():
                raise OutputError(
                    f"the Delta table at {self._sink.path}: column {name} is empty, which Delta takes for null in partition_by: "
                    "put another text in its place, or leave such rows out"
                )

    def _followed(self, flow: str, query: str) -> tuple[str, int | None]:
        """Like `_way`, for the table as it is now.

        Raises `OutputError` if it lacks what this run has put into it."""
        is_there = (Path(self._sink.path) / "_delta_log").is_dir()
        if is_there:
            self._table.update_incremental()
            way, last = self._way(flow, query)
        if not is_there or (-1 if last is None else last) < self._applied.get((flow, query), -1):
            raise OutputError(f"the Delta table at {self._sink.path}: {_DELETED}")
        return way, last

    def last_epoch(self, flow: str, query: str) -> int | None:
        """The epoch of the last commit that carries one."""
        try:
            self._table.update_incremental()
            last = self._way(flow, query)[1]
        except (self._error, OSError) as error:
            raise OutputError(f"the Delta table at {self._sink.path}: {_plain(error)}") from error
        return -1 if last is None else last

    def _way(self, flow: str, query: str) -> tuple[str, int | None]:
        """Append or merge, as the query's first batch did, and its last epoch."""
        for way in (_APPEND, _MERGE):
            last = self._table.transaction_version(f"barnabas/{flow}/{query}/{way}")
            if last is not None:
                return way, int(last)
        is_empty = not self._table.file_uris()
        return (_APPEND if is_empty and not self._rows_change else _MERGE), None

    def _merge(self, rows: pa.Table, properties: Any) -> None:
        # "=" lets the engine join by hash; nulls in a key are rare, and one group. Without
        # parentheses the engine's parser takes all that follows IS NOT DISTINCT FROM for its
        # right side.
        conditions = [
            f'(target."{name}" {"IS NOT DISTINCT FROM" if rows[name].null_count else "="} source."{name}")'
            for name in self._sink.key
        ]
        merger = self._table.merge(
            rows, " AND ".join(conditions), source_alias="source", target_alias="target", commit_properties=properties
        )
        if DELETION_MARK not in rows.column_names:
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
            return
        deletes = f'source."{DELETION_MARK}"'
        merger = merger.when_matched_delete(deletes).when_matched_update_all(except_cols=[DELETION_MARK])
        merger.when_not_matched_insert_all(f"NOT {deletes}", except_cols=[DELETION_MARK]).execute()

    def _compact(self) -> None:
        version = self._table.version()
        if version and version % self._sink.compact_every == 0:
            self._table.optimize.compact()
            self._table.vacuum(dry_run=False)

    def close(self) -> None:
        """Files are open during a batch only."""


def _escaped(value: str) -> str:
    """A value in the name of a folder, as Hive and Spark write it."""
    return "".join(f"%{ord(each):02X}" if each in "\"#%'*/:=?\\{[]^\x7f" or each < " " else each for each in value)
