"""Rows of a table whose keys were written by an earlier rule of equality, which kept several keys
as one, or one as several.

`barnabas.pipelines.frames.keys` has the rule of today. Before it

- bytes that are not UTF-8, and in PostgreSQL U+0000, were kept as U+FFFD in texts: such a
  row may be of several keys;
- SQLite kept NaN as NULL;
- -0.0 was kept beside 0.0;
- Delta compared what stands behind a null in a key with nothing, so that a row with one
  may have replaced others.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from barnabas.pipelines.outputs.declared import DatabaseSink, LakeSink, OutputError, SearchSink, TableSink
from barnabas.pipelines.outputs.duckdb_access import open_duckdb
from barnabas.pipelines.outputs.postgres import open_postgres
from barnabas.pipelines.outputs.sql import quoted

__all__ = ["old_keys"]

_REPLACED = "has U+FFFD, as which bytes that are not UTF-8 were kept: a row may be of several keys"
_NAN = "is NULL, as which NaN was kept; it is a key of its own now, the text NaN"
_ZERO = "is -0.0, which is 0.0 now"
_MIXED = "is null in front of other columns of the key: such a row may have replaced others"
_NUMBERS = ("float", "double")


def old_keys(sink: TableSink, types: Mapping[str, str]) -> list[str]:
    """What is odd about rows of an output, for each column of the key and each oddity.

    ``types`` are Spark's of the rows' columns. Raises `OutputError` if the table cannot
    be read, or is not there.
    """
    try:
        return list(_old_keys(sink, types))
    except Exception as error:  # each output's library has its own
        raise OutputError(" ".join(str(error).split())) from error


def _old_keys(sink: TableSink, types: Mapping[str, str]) -> Iterator[str]:
    texts = [name for name in sink.key if types.get(name) == "string"]
    numbers = [name for name in sink.key if types.get(name) in _NUMBERS]
    match sink:
        case LakeSink(type="delta"):
            yield from _in_delta(sink, texts, numbers)
        case SearchSink() | DatabaseSink(type="sqlite"):
            found = {name: (f"instr({quoted(name)}, char(65533)) > 0", _REPLACED) for name in texts}
            found |= {name: (f"{quoted(name)} IS NULL", _NAN) for name in numbers}
            path = sink.path if isinstance(sink, SearchSink) else sink.url
            with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
                yield from _asked(connection, sink.table, found)
        case DatabaseSink(type="duckdb"):
            found = {name: (f"contains({quoted(name)}, chr(65533))", _REPLACED) for name in texts}
            found |= {name: (f"{quoted(name)} = 0 AND signbit({quoted(name)})", _ZERO) for name in numbers}
            with open_duckdb(sink.url, read_only=True) as connection:
                yield from _asked(connection, sink.table, found)
        case DatabaseSink(type="postgresql"):
            found = {name: (f"strpos({quoted(name)}, chr(65533)) > 0", _REPLACED) for name in texts}
            found |= {name: (f"{quoted(name)} = 0 AND {quoted(name)}::text = '-0'", _ZERO) for name in numbers}
            with open_postgres(sink.url, connect_timeout=10) as connection:
                yield from _asked(connection, sink.table, found)
        case _:  # had the rule of today from the start
            return


def _asked(connection: Any, table: str, conditions: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name, (condition, oddity) in conditions.items():
        statement = f"SELECT count(*) FROM {quoted(table)} WHERE {condition}"  # noqa: S608  # names are quoted
        ((count,),) = connection.execute(statement).fetchall()
        if count:
            yield _counted(count, name, oddity)


def _in_delta(sink: LakeSink, texts: list[str], numbers: list[str]) -> Iterator[str]:
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    counts: dict[tuple[str, str], int] = {}
    for batch in DeltaTable(sink.path).to_pyarrow_dataset().to_batches(columns=list(sink.key)):
        found = {(name, _REPLACED): pc.match_substring(batch[name], "\ufffd") for name in texts}
        for name in numbers:
            is_zero = pc.equal(batch[name], 0.0)
            found[name, _ZERO] = pc.and_(is_zero, pc.less(pc.divide(1.0, batch[name]), 0.0))
        found |= {(name, _MIXED): pc.is_null(batch[name]) for name in sink.key[:-1]}
        for which, matches in found.items():
            counts[which] = counts.get(which, 0) + (pc.sum(matches).as_py() or 0)
    for (name, oddity), count in counts.items():
        if count:
            yield _counted(count, name, oddity)


def _counted(count: int, name: str, oddity: str) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'} whose {name} {oddity}"
