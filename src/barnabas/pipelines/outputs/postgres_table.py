"""A table of PostgreSQL as a sink, through psycopg: COPY to a temporary table, then one upsert
(`barnabas.pipelines.outputs.table`).

A server that goes away in the midst of a batch (a restart, a crash, a failover) is waited for: the
connection is opened again and the batch applied again from its start. If the lost answer was to a
commit, the epoch says so, and the batch changes nothing.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.base.installation import install_command
from barnabas.pipelines.outputs.declared import DatabaseSink
from barnabas.pipelines.outputs.epochs import EPOCHS_TABLE, delete_epochs_statement, read_epoch, select_epoch_statement
from barnabas.pipelines.outputs.postgres import open_postgres, postgres_reason
from barnabas.pipelines.outputs.sql import (
    DROPPED_TABLE_ADVICE,
    DatabaseError,
    batch_name,
    check_columns,
    loses_digits,
    quoted,
    refuse_other_equality,
    tuples_of,
    unique_advice,
    upsert_statement,
)
from barnabas.pipelines.outputs.table import TableState, split_deleted
from barnabas.pipelines.values.arrow_values import values_of
from barnabas.pipelines.values.texts import as_json

__all__ = ["PostgresTable", "inspect_postgres"]

logger = logging.getLogger(__name__)
_NO_NUL = "\N{REPLACEMENT CHARACTER}"
_JSON_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""U+0000 in JSON, but not a backslash that stands before the text u0000."""
_PATIENCE_S = 60.0
_PAUSE_S = 0.5
_LIMITS = {"connect_timeout": "10", "tcp_user_timeout": "30000"}
"""Settings of libpq, unless the URL says otherwise: a host that does not answer at all is
noticed."""
_TIMES = tuple(f"timestamp({digits}) {zone} time zone" for digits in range(6) for zone in ("with", "without"))
_ROUNDED = {"double precision": ("real",), "timestamptz": ("date", *_TIMES), "timestamp": ("date", *_TIMES)}
"""Types of ours, and those of columns that others made, which take several of our
values for one."""


class PostgresTable:
    """A connection that is opened again when it was lost."""

    def __init__(
        self,
        sink: DatabaseSink,
        types: Mapping[str, str],
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise DatabaseError(f"PostgreSQL needs psycopg: {install_command('pipelines')}") from error
        self._psycopg: Any = psycopg
        self._sink = sink
        self._batch = batch_name(sink.table)
        self._types = dict(types)
        self._is_stopped = is_stopped
        self._applied: dict[tuple[str, str], int] = {}
        """The last micro-batch of each flow and query that this run applied, which a
        restored server may lack."""
        self._clock = clock
        self._wait = wait
        try:
            self._connection: Any = self._connect()
            with self._connection.transaction():
                self._prepare()
        except psycopg.Error as error:
            raise self._failure(error) from error

    def _connect(self) -> Any:
        return open_postgres(self._sink.url, **_LIMITS, autocommit=True)

    def _failure(self, error: Exception) -> DatabaseError:
        advice = f". {DROPPED_TABLE_ADVICE}" if isinstance(error, self._psycopg.errors.UndefinedTable) else ""
        advice += unique_advice(error, self._sink.table, self._sink.key)
        return DatabaseError(f"PostgreSQL, table {self._sink.table}: {postgres_reason(error, self._sink.url)}{advice}")

    def _prepare(self) -> None:
        # Two flows that start at once must not both make the tables.
        self._execute("SELECT pg_advisory_xact_lock(hashtext('barnabas'))")
        table = quoted(self._sink.table)
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (flow text NOT NULL, sink text NOT NULL, query text NOT NULL, "
            "epoch bigint NOT NULL, PRIMARY KEY (flow, sink))"
        )
        if self._execute("SELECT to_regclass(%s)", (table,)).fetchone()[0] is None:
            columns = ", ".join(
                f"{quoted(name)} {_postgres_type(type_name)}" for name, type_name in self._types.items()
            )
            key = ", ".join(map(quoted, self._sink.key))
            self._execute(f"CREATE TABLE {table} ({columns}, UNIQUE ({key}))")
            self._execute(delete_epochs_statement("%s"), (self._sink.table,))
        found = self._execute(f"SELECT * FROM {table} LIMIT 0").description  # noqa: S608  # quoted
        check_columns(self._sink.table, self._types, {column.name for column in found or ()})
        refuse_other_equality(self._sink.table, self._other_equality(table))

    def _other_equality(self, table: str) -> dict[str, str]:
        """Columns of the key which take several values for one, and how."""
        kinds = self._execute(
            "SELECT attname, format_type(atttypid, atttypmod), coalesce(collisdeterministic, true) FROM pg_attribute "
            "LEFT JOIN pg_collation ON pg_collation.oid = attcollation WHERE attrelid = to_regclass(%s) AND attnum > 0",
            (table,),
        ).fetchall()
        found = {}
        for name, kind, is_deterministic in kinds:
            if name not in self._sink.key:
                continue
            ours = _postgres_type(self._types[name])
            if ours == "text" and (kind.startswith("character(") or kind.endswith("citext")):
                found[name] = f"is of type {kind}, which compares texts without case or spaces"
            elif not is_deterministic:
                found[name] = "has a collation that is not deterministic"
            elif loses_digits(ours, kind) or kind in _ROUNDED.get(ours, ()):
                found[name] = f"is of type {kind}, to which values are rounded"
        return found

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement.encode(), values)

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        """Raises `DatabaseError` if the server refuses, or is away for a minute."""
        lost_at: float | None = None
        while True:
            try:
                if self._connection.closed:
                    self._connection = self._connect()
                is_new = self._apply(rows, flow, query, epoch)
                self._applied[flow, query] = max(epoch, self._applied.get((flow, query), -1))
                return is_new
            except self._psycopg.Error as error:
                if not self._connection.closed:
                    raise self._failure(error) from error
                if lost_at is None:
                    lost_at = self._clock()
                    logger.warning("%s. Trying again for %d s", self._failure(error), _PATIENCE_S)
                if self._is_stopped() or self._clock() > lost_at + _PATIENCE_S:
                    raise DatabaseError(
                        f"{self._failure(error)}. Start the flow again when the server is there: it goes on from its "
                        "checkpoint, and no row is lost or there twice"
                    ) from error
                self._wait(_PAUSE_S)

    def _apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        with self._connection.transaction():
            # The connection before may have been lost while the server committed: wait for
            # the end of its transaction. The note of a query's first batch is not there yet
            # and cannot be locked.
            self._execute("SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", (flow, self._sink.table))
            last = self._last_epoch(flow, query)
            if last < self._applied.get((flow, query), -1):
                raise DatabaseError(
                    f"PostgreSQL, table {self._sink.table}: it lacks rows of micro-batch {self._applied[flow, query]}, which it "
                    "had taken: the server came back with older data. Restore them, or rewind the flow"
                )
            if epoch <= last:
                return False
            kept, deleted = split_deleted(rows)
            if deleted.num_rows:
                # The other columns may be null where the table allows no nulls.
                self._load(deleted, self._sink.key)
                self._delete()
                self._execute(f"DROP TABLE {self._batch}")
            self._upsert(kept)
            self._execute(
                f"INSERT INTO {EPOCHS_TABLE} VALUES (%s, %s, %s, %s) ON CONFLICT (flow, sink) "  # noqa: S608  # a constant
                "DO UPDATE SET query = excluded.query, epoch = excluded.epoch",
                (flow, self._sink.table, query, epoch),
            )
        return True

    def last_epoch(self, flow: str, query: str) -> int | None:
        """As the note beside the rows says."""
        try:
            return self._last_epoch(flow, query)
        except self._psycopg.Error as error:
            raise self._failure(error) from error

    def _last_epoch(self, flow: str, query: str) -> int:
        noted = self._execute(
            select_epoch_statement("%s"),
            (flow, self._sink.table, query),
        ).fetchone()
        return int(noted[0]) if noted else -1

    def _load(self, rows: pa.Table, names: Sequence[str]) -> None:
        """These columns of the rows into a temporary table."""
        listed = ", ".join(map(quoted, names))
        self._execute(
            f"CREATE TEMPORARY TABLE {self._batch} ON COMMIT DROP AS SELECT {listed} FROM {quoted(self._sink.table)} LIMIT 0"  # noqa: S608
        )
        with self._connection.cursor().copy(f"COPY {self._batch} ({listed}) FROM STDIN".encode()) as copy:
            for row in tuples_of(_without_nul(rows.select(list(names)), self._sink.key), _postgres_value):
                copy.write_row(row)

    def _delete(self, condition: str = "TRUE") -> None:
        """The rows whose keys are in the temporary table."""
        table = quoted(self._sink.table)
        pairs = [(f"{table}.{quoted(name)}", f"{self._batch}.{quoted(name)}") for name in self._sink.key]
        same = " AND ".join(f"{mine} IS NOT DISTINCT FROM {its}" for mine, its in pairs)
        self._execute(f"DELETE FROM {table} USING {self._batch} WHERE ({condition}) AND {same}")  # noqa: S608  # quoted

    def _upsert(self, rows: pa.Table) -> None:
        self._load(rows, list(self._types))
        self._delete(" OR ".join(f"{self._batch}.{quoted(name)} IS NULL" for name in self._sink.key))
        source = f"SELECT {', '.join(map(quoted, self._types))} FROM {self._batch}"  # noqa: S608  # names are quoted
        self._execute(upsert_statement(self._sink.table, source, list(self._types), self._sink.key))

    def close(self) -> None:
        self._connection.close()


def inspect_postgres(sink: DatabaseSink, flow: str, query: str) -> TableState | None:
    """What the table holds; None if it is not there. Raises `BarnabasError`."""
    import psycopg

    try:
        with open_postgres(sink.url, connect_timeout=10) as connection:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                return connection.execute(statement.encode(), values).fetchall()

            if ask("SELECT to_regclass(%s)", [quoted(sink.table)])[0][0] is None:
                return None
            found = connection.execute(f"SELECT * FROM {quoted(sink.table)} LIMIT 0".encode()).description  # noqa: S608
            has_epochs = ask("SELECT to_regclass(%s)", [EPOCHS_TABLE])[0][0]
            columns = tuple(each.name for each in found or ())
            return TableState(columns, read_epoch(ask, "%s", has_epochs, flow, sink.table, query))
    except psycopg.Error as error:
        raise DatabaseError(f"PostgreSQL, table {sink.table}: {postgres_reason(error, sink.url)}") from error


def _postgres_type(type_name: str) -> str:
    known = {
        "tinyint": "smallint",
        "smallint": "smallint",
        "int": "integer",
        "bigint": "bigint",
        "boolean": "boolean",
        "float": "real",
        "double": "double precision",
        "binary": "bytea",
        "string": "text",
        "date": "date",
        "timestamp": "timestamptz",
        "timestamp_ntz": "timestamp",
    }
    if type_name.startswith("decimal"):
        return type_name.replace("decimal", "numeric")
    return known.get(type_name, "jsonb")


def _without_nul(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """PostgreSQL's texts cannot hold U+0000; one such record must not end a flow.

    Two keys must not become one either. A record with such a key is a bad row
    (`barnabas.pipelines.frames.keys`); raises `DatabaseError` for a key that was made of
    several records.
    """
    for number, field in enumerate(rows.schema):
        column = rows.column(number)
        is_nested = pa.types.is_nested(field.type)
        if field.name in key and is_nested:
            has_nul = any(_JSON_NUL.search(as_json(each)) for each in values_of(field.name, column) if each is not None)
        else:
            has_nul = pa.types.is_string(field.type) and pc.any(pc.match_substring(column, "\0")).as_py()
        if has_nul and field.name in key:
            raise DatabaseError(
                f"a key has the character U+0000 in column {field.name}, which PostgreSQL cannot hold: replace it in the flow, or leave "
                "such rows out"
            )
        if has_nul:
            rows = rows.set_column(number, field, pc.replace_substring(column, "\0", _NO_NUL))
    return rows


def _postgres_value(value: Any) -> Any:
    return _JSON_NUL.sub(rf"\1{_NO_NUL}", as_json(value)) if isinstance(value, list | dict) else value
