"""Which of several rows with an equal key is the last one: one rule for sinks,
deletions and tables of topics.

Kafka orders records within a partition only. So among rows of one partition the one with the higher
offset is the later one. Rows of a key that lies in several partitions, because partitions were
added or producers choose them otherwise, have an order only if a column says so:

- A sink's `order_by` names a column that grows with each change of a key. The row with the greatest
  value counts; null is the least; of equal values the one that was read last. What was applied is
  kept in ``versions.db`` beside the checkpoint, so an older row that comes in a later micro-batch,
  or after a rewind, changes nothing, and brings back no row that was deleted.
- Without it the row with the highest offset counts, whatever its partition, and the run
  counts such keys and warns.
- A topic that is a table takes the record's time: of the last records of each partition the one
  with the latest time, and of equal times the one of the highest partition. So does
  `pipeline verify` of a topic that is an output.

`barnabas.pipelines.frames.transforms.latest_per_key` does the first two within a micro-batch.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.errors import PipelineError

__all__ = ["RowVersions", "last_record", "newer_rows", "order_type_problem", "versions_file"]

Version = int | Decimal | float | None
_CHUNK = 500
_ORDERED = ("tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz")


def versions_file(checkpoint: Path) -> Path:
    """Where the values of `order_by` in the sinks are kept.

    The file stays when a flow is rewound or reset, like the sinks' rows."""
    return checkpoint / "versions.db"


def order_type_problem(kind: str) -> str:
    """Why a column of this type of Spark cannot order rows; "" if it can."""
    if kind in _ORDERED or kind.startswith("decimal"):
        return ""
    return f"is of type {kind}, but must be a number, a date or a timestamp"


def last_record(candidates: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The record that counts, of the last records of a key in each partition."""

    def rank(record: Mapping[str, Any]) -> tuple[bool, Any, int]:
        time = record["timestamp"]
        return time is not None, time, record["partition"]

    known = list(candidates)
    dated = [each for each in known if each["timestamp"] is not None]
    return max(dated or known, key=rank)


class RowVersions:
    """The greatest value of `order_by` that each key of each sink has had.

    One thread uses it at a time."""

    def __init__(self, path: Path) -> None:
        """Raises `PipelineError`."""
        self._path = path
        with self._named():
            # A micro-batch's thread is Spark's, and another each time; only one runs at once.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS versions (sink TEXT, key TEXT, version TEXT, PRIMARY KEY (sink, key)) WITHOUT ROWID"
            )

    def advance(self, sink: str, rows: Mapping[str, Version]) -> set[str]:
        """The keys whose values are not below what they had; these are kept as the new ones.

        A micro-batch that runs again gets the same answer.
        """
        keys = list(rows)
        with self._named():
            known: dict[str, Version] = {}
            for first in range(0, len(keys), _CHUNK):
                some = keys[first : first + _CHUNK]
                marks = ", ".join("?" * len(some))
                statement = f"SELECT key, version FROM versions WHERE sink = ? AND key IN ({marks})"  # noqa: S608  # marks
                known |= {key: _parsed(text) for key, text in self._connection.execute(statement, (sink, *some))}
            newer = {key for key in keys if key not in known or not _is_below(rows[key], known[key])}
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT OR REPLACE INTO versions VALUES (?, ?, ?)",
                [(sink, key, _text(rows[key])) for key in sorted(newer)],
            )
            self._connection.execute("COMMIT")
        return newer

    @contextlib.contextmanager
    def _named(self) -> Any:
        try:
            yield
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error, AttributeError):
                self._connection.execute("ROLLBACK")
            raise PipelineError(f"{self._path}, which keeps the values of order_by, cannot be used: {error}") from error

    def close(self) -> None:
        self._connection.close()


def newer_rows(
    rows: pa.Table, key: Sequence[str], order_by: str, advance: Callable[[Mapping[str, Version]], set[str]]
) -> pa.Table:
    """The rows, one for each key, that are not older than what their keys had.

    ``advance`` is as in `RowVersions`."""
    names = [_key_text(each) for each in zip(*(rows[name].to_pylist() for name in key), strict=True)]
    newer = advance(dict(zip(names, _versions(rows[order_by]), strict=True)))
    return rows.filter(pa.array([name in newer for name in names], pa.bool_()))


def _key_text(values: tuple[Any, ...]) -> str:
    """A key as text; `barnabas.pipelines.running.batch_sinks` gives equal keys in one form."""
    return repr(values)


def _versions(column: pa.ChunkedArray) -> list[Version]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_floating(column.type):  # NaN is greater than any number in Spark
        column = pc.if_else(pc.is_nan(column), float("inf"), column)
    found: list[Version] = column.to_pylist()
    return found


def _is_below(one: Version, other: Version) -> bool:
    if one is None or other is None:
        return one is None and other is not None
    return one < other


def _text(version: Version) -> str | None:
    return (
        None
        if version is None
        else f"{type(version).__name__}:{version!r}"
        if isinstance(version, float)
        else f"n:{version}"
    )


def _parsed(text: str | None) -> Version:
    if text is None:
        return None
    kind, _, number = text.partition(":")
    return Decimal(number) if kind == "n" else float(number)
