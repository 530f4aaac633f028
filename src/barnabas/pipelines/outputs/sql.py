"""What the SQL databases among the sinks share: quoting, upserts, and batches as rows."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.errors import REFILL_ADVICE
from barnabas.pipelines.outputs.epochs import EPOCHS_TABLE
from barnabas.pipelines.values.arrow_values import ValueOutOfRangeError, values_of

__all__ = [
    "DROPPED_TABLE_ADVICE",
    "DatabaseError",
    "batch_name",
    "check_columns",
    "loses_digits",
    "quoted",
    "refuse_other_equality",
    "split_by_null",
    "tuples_of",
    "unique_advice",
    "upsert_statement",
]

BATCH = "barnabas_batch"
_DECIMAL = re.compile(r"\((\d+),\s*(\d+)\)")
DROPPED_TABLE_ADVICE = f"It was there when the flow began. Restore it, together with {EPOCHS_TABLE}; or {REFILL_ADVICE}"
"""What to do about a table that was dropped."""


class DatabaseError(BarnabasError):
    """The database refused, or its table does not fit the flow."""


def quoted(name: str) -> str:
    """A name, or names with dots, for a statement."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def batch_name(table: str) -> str:
    """A name for a batch's rows beside the table that takes them, which may be named
    as they are."""
    return f"{BATCH}_rows" if table.rpartition(".")[2].lower() == BATCH else BATCH


def upsert_statement(table: str, source: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Rows of ``source`` into the table; rows of an equal key are replaced."""
    names = ", ".join(map(quoted, columns))
    rest = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name not in key)
    action = f"UPDATE SET {rest}" if rest else "NOTHING"
    on = ", ".join(map(quoted, key))
    # The alias: a table may be named excluded, too.
    # Names are quoted.
    return f"INSERT INTO {quoted(table)} AS kept ({names}) {source} ON CONFLICT ({on}) DO {action}"


def unique_advice(error: Exception, table: str, key: Sequence[str]) -> str:
    """What to add to a database's refusal of an upsert into a table whose key is not unique."""
    if "ON CONFLICT" not in str(error) or "second time" in str(error):
        return ""
    names = ", ".join(map(quoted, key))
    return (
        f". The table is there already, without a unique key: CREATE UNIQUE INDEX ... ON {quoted(table)} ({names}), "
        "or let the flow make it"
    )


def split_by_null(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Rows with a whole key, and those with a null in it."""
    import pyarrow.compute as pc

    has_null = pa.array([False] * rows.num_rows, pa.bool_())
    for name in key:
        has_null = pc.or_(has_null, pc.is_null(rows[name]))
    return rows.filter(pc.invert(has_null)), rows.filter(has_null)


def tuples_of(rows: pa.Table, convert: Callable[[Any], Any] | None = None) -> Iterator[tuple[Any, ...]]:
    """The rows; ``convert`` is called with each value that is no number and no text."""
    for batch in rows.to_batches(max_chunksize=10_000):
        columns = [_values(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        if convert:
            columns = [
                column if _is_plain(field.type) else [convert(value) for value in column]
                for column, field in zip(columns, batch.schema, strict=True)
            ]
        yield from zip(*columns, strict=True)


def _values(name: str, column: pa.Array) -> list[Any]:
    try:
        return values_of(name, column)
    except ValueOutOfRangeError as error:
        raise DatabaseError(str(error)) from error


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind))


def refuse_other_equality(table: str, problems: Mapping[str, str]) -> None:
    """Raise `DatabaseError` for a table, made by others, whose columns of the key
    hold several keys as one.

    ``problems`` says of such columns how they do.
    """
    for name, problem in problems.items():
        raise DatabaseError(
            f"table {table} is there already, and its column {name}, a part of the key, {problem}: keys that differ would be one. "
            "Change its type, or give the sink another table"
        )


def loses_digits(ours: str, found: str) -> bool:
    """Whether a database rounds numbers of our type to those of a column's, as
    DECIMAL(9,3) to DECIMAL(9,2)."""
    places = [int(each[2]) if (each := _DECIMAL.search(text)) else None for text in (ours, found)]
    if places[1] is None:
        return False
    return places[0] is None or places[1] < places[0]


def check_columns(table: str, types: Mapping[str, str], found: set[str]) -> None:
    """Raise `DatabaseError` if the table that was found lacks columns of the flow."""
    missing = [name for name in types if name not in found]
    if missing:
        raise DatabaseError(
            f"table {table} is there already and has no column {', '.join(missing)}; "
            "add it, drop the table, or give the sink another table"
        )
