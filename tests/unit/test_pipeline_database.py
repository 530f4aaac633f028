"""SQLite as a sink: a batch counts once, however often it comes."""

import contextlib
import dataclasses
import datetime
import importlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from barnabas.pipelines.errors import with_advice  # noqa: E402
from barnabas.pipelines.outputs.declared import OutputError  # noqa: E402
from barnabas.pipelines.outputs.sql import DatabaseError  # noqa: E402
from barnabas.pipelines.outputs.sqlite_table import SqliteTable  # noqa: E402
from barnabas.pipelines.outputs.table import DELETION_MARK, OutputTable  # noqa: E402
from barnabas.pipelines.specification.spec import DatabaseSink  # noqa: E402
from support.databases import open_database  # noqa: E402

TYPES = {"window_start": "timestamp", "carrier": "string", "flights": "bigint"}
DAY = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)


def sink(path: Path, table: str = "t") -> DatabaseSink:
    return DatabaseSink("sqlite", str(path / "out.db"), table, ("window_start", "carrier"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[OutputTable]:
    opened = open_database(sink(tmp_path), TYPES)
    yield opened
    opened.close()


def rows(*figures: tuple[str | None, int]) -> "pa.Table":
    schema = pa.schema([("window_start", pa.timestamp("us", "UTC")), ("carrier", pa.string()), ("flights", pa.int64())])
    return pa.table([[DAY] * len(figures), [each[0] for each in figures], [each[1] for each in figures]], schema=schema)


def contents(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path / "out.db")
    try:
        return connection.execute("SELECT * FROM t ORDER BY carrier, flights").fetchall()
    finally:
        connection.close()


def test_rows_of_an_equal_key_are_replaced(database: OutputTable, tmp_path: Path) -> None:
    """A window that grows has one row."""
    assert database.apply(rows(("AA", 1), ("UA", 5)), "flow", "query", 0)
    assert database.apply(rows(("AA", 2)), "flow", "query", 1)
    assert contents(tmp_path) == [("2013-01-01T00:00:00.000000Z", "AA", 2), ("2013-01-01T00:00:00.000000Z", "UA", 5)]


def test_a_replayed_epoch_changes_nothing(database: OutputTable, tmp_path: Path) -> None:
    """Even if it came with other figures, which it does not."""
    database.apply(rows(("AA", 1)), "flow", "query", 7)
    assert not database.apply(rows(("AA", 9)), "flow", "query", 7)
    assert not database.apply(rows(("AA", 9)), "flow", "query", 6)
    assert [row[2] for row in contents(tmp_path)] == [1]


def test_epochs_begin_again_with_a_new_query(database: OutputTable, tmp_path: Path) -> None:
    """A new checkpoint counts its batches from 0, and they are not repetitions."""
    database.apply(rows(("AA", 1)), "flow", "query", 7)
    assert database.apply(rows(("AA", 3)), "flow", "another", 0)
    assert [row[2] for row in contents(tmp_path)] == [3]


def test_a_group_whose_key_is_null_has_one_row(database: OutputTable, tmp_path: Path) -> None:
    """SQL takes each NULL for different; a group by null is one group."""
    database.apply(rows((None, 1), ("AA", 1)), "flow", "query", 0)
    database.apply(rows((None, 2)), "flow", "query", 1)
    assert [(row[1], row[2]) for row in contents(tmp_path)] == [(None, 2), ("AA", 1)]


def test_an_empty_batch_only_notes_its_epoch(database: OutputTable, tmp_path: Path) -> None:
    """Spark runs batches without rows, too."""
    assert database.apply(rows(), "flow", "query", 0)
    assert not database.apply(rows(), "flow", "query", 0)
    assert contents(tmp_path) == []


def test_a_batch_that_fails_leaves_neither_rows_nor_epoch(database: OutputTable, tmp_path: Path) -> None:
    """Rows and epoch are one transaction."""
    connection = sqlite3.connect(tmp_path / "out.db")
    connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON t WHEN new.carrier = 'ZZ' BEGIN SELECT RAISE(FAIL, 'full'); END"
    )
    connection.commit()
    with pytest.raises(DatabaseError, match="full"):
        database.apply(rows(("AA", 1), ("ZZ", 1)), "flow", "query", 0)
    assert contents(tmp_path) == []
    connection.execute("DROP TRIGGER full")
    connection.close()
    assert database.apply(rows(("AA", 1), ("ZZ", 1)), "flow", "query", 0)
    assert len(contents(tmp_path)) == 2


def test_a_file_that_cannot_be_opened_comes_with_what_to_look_at(tmp_path: Path) -> None:
    """SQLite only says that it is unable to."""
    (tmp_path / "out.db").mkdir()
    with pytest.raises(DatabaseError, match=f"unable to open database file; may this user write in {tmp_path}"):
        SqliteTable(dataclasses.replace(sink(tmp_path), url=str(tmp_path / "out.db")), TYPES)


def test_a_full_disk_is_the_reason_and_the_batch_can_come_again(tmp_path: Path) -> None:
    """SQLite rolls back by itself then: nothing is left to roll back, and that is
    not the error to report."""
    database = SqliteTable(sink(tmp_path), TYPES)
    database._connection.execute("PRAGMA cache_size = 1")
    (pages,) = database._connection.execute("PRAGMA page_count").fetchone()
    database._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    many = rows(*((f"carrier {number}", number) for number in range(2000)))
    with pytest.raises(DatabaseError, match="database or disk is full") as full:
        database.apply(many, "flow", "query", 0)
    assert "free some for" in str(with_advice(full.value, tmp_path))
    assert contents(tmp_path) == []
    database._connection.execute("PRAGMA max_page_count = 10000")
    assert database.apply(many, "flow", "query", 0)
    assert len(contents(tmp_path)) == 2000
    database.close()


def test_a_table_of_another_shape_is_refused_when_the_flow_starts(tmp_path: Path) -> None:
    """Better before the first batch than in its midst."""
    connection = sqlite3.connect(tmp_path / "out.db")
    connection.execute("CREATE TABLE t (window_start TEXT, carrier TEXT)")
    connection.close()
    with pytest.raises(DatabaseError, match="no column flights"):
        open_database(sink(tmp_path), TYPES)


def test_a_key_that_is_no_column_is_refused(tmp_path: Path) -> None:
    """The message lists the columns there are."""
    wrong = DatabaseSink("sqlite", str(tmp_path / "out.db"), "t", ("nothing",))
    with pytest.raises(OutputError, match="but the rows have window_start, carrier, flights"):
        open_database(wrong, TYPES)


def test_a_time_that_no_output_holds_is_reported_with_its_column(database: OutputTable) -> None:
    """The end of Python's times is not that of Spark's."""
    table = rows(("AA", 1)).set_column(
        0, "window_start", pa.array([10**18], pa.int64()).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    )
    with pytest.raises(DatabaseError, match="column window_start has a time beyond the years 1 to 9999"):
        database.apply(table, "flow", "query", 0)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_row_that_is_marked_deletes_the_row_of_its_key_once(tmp_path: Path, kind: str) -> None:
    """Also one with a null in its key; a key that is not there is none to delete, and a
    repeated batch deletes nothing."""
    if kind == "duckdb":
        pytest.importorskip("duckdb")
    there = dataclasses.replace(sink(tmp_path), type=kind)
    database = open_database(there, TYPES)
    database.apply(rows(("AA", 1), ("UA", 5), (None, 7), ("DL", 2)), "flow", "query", 0)
    marks = pa.array([True, False, True, True])
    changes = rows(("AA", 0), ("UA", 6), (None, 0), ("ZZ", 0)).append_column(DELETION_MARK, marks)
    assert database.apply(changes, "flow", "query", 1)
    assert database.apply(rows(("AA", 3)).append_column(DELETION_MARK, pa.array([False])), "flow", "query", 2)
    assert not database.apply(changes, "flow", "query", 1)
    database.close()
    with contextlib.closing(
        importlib.import_module({"sqlite": "sqlite3"}.get(kind, kind)).connect(there.url)
    ) as connection:
        found = connection.execute("SELECT carrier, flights FROM t ORDER BY carrier").fetchall()
    assert found == [("AA", 3), ("DL", 2), ("UA", 6)]
