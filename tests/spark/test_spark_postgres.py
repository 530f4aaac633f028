"""PostgreSQL as a sink, against a server of this machine's: a batch counts once,
however often it comes."""

import contextlib
import datetime
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from support.needs import needs
from support.postgres_server import PostgresServer, running_postgres

pytestmark = [pytest.mark.spark, pytest.mark.interop, needs("initdb", "pg_ctl")]
pa = pytest.importorskip("pyarrow")
psycopg = pytest.importorskip("psycopg")

from barnabas.pipelines.outputs.postgres_table import PostgresTable  # noqa: E402
from barnabas.pipelines.outputs.sql import DatabaseError  # noqa: E402
from barnabas.pipelines.outputs.table import DELETION_MARK  # noqa: E402
from barnabas.pipelines.specification.spec import DatabaseSink  # noqa: E402
from support.databases import open_database  # noqa: E402

TYPES = {"at": "timestamp", "carrier": "string", "flights": "bigint", "tags": "array<string>", "share": "decimal(5,2)"}
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("flights", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("share", pa.decimal128(5, 2)),
    ]
)
DAY = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def url(server: PostgresServer) -> str:
    return server.url


@pytest.fixture
def sink(url: str) -> DatabaseSink:
    """A sink with a table of its own."""
    return DatabaseSink("postgresql", url, f"t{time.monotonic_ns()}", ("at", "carrier"))


def rows(*figures: tuple[str | None, int]) -> Any:
    values = [
        {"at": DAY, "carrier": name, "flights": n, "tags": ["x"], "share": Decimal("1.50")} for name, n in figures
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


def contents(sink: DatabaseSink) -> list[tuple[Any, ...]]:
    with psycopg.connect(sink.url) as connection:
        return list(connection.execute(f"SELECT * FROM {sink.table} ORDER BY carrier, flights"))


def test_rows_are_replaced_by_key_and_replays_change_nothing(sink: DatabaseSink) -> None:
    """Upserts in one transaction with the epoch; types come back as they went in."""
    database = open_database(sink, TYPES)
    assert database.apply(rows(("AA", 1), ("UA", 5)), "flow", "query", 0)
    assert database.apply(rows(("AA", 2)), "flow", "query", 1)
    assert not database.apply(rows(("AA", 9)), "flow", "query", 1)
    database.close()
    assert contents(sink) == [(DAY, "AA", 2, ["x"], Decimal("1.50")), (DAY, "UA", 5, ["x"], Decimal("1.50"))]


def test_a_reopened_database_knows_its_epochs(sink: DatabaseSink) -> None:
    """As after a crash of the driver."""
    first = open_database(sink, TYPES)
    first.apply(rows(("AA", 1)), "flow", "query", 3)
    first.close()
    second = open_database(sink, TYPES)
    assert not second.apply(rows(("AA", 9)), "flow", "query", 3)
    assert second.apply(rows(("AA", 9)), "flow", "another query", 0)
    second.close()
    assert [row[2] for row in contents(sink)] == [9]


def test_a_group_whose_key_is_null_has_one_row(sink: DatabaseSink) -> None:
    """SQL takes each NULL for different; a group by null is one group."""
    database = open_database(sink, TYPES)
    database.apply(rows((None, 1), ("AA", 1)), "flow", "query", 0)
    database.apply(rows((None, 2)), "flow", "query", 1)
    database.close()
    assert [(row[1], row[2]) for row in contents(sink)] == [("AA", 1), (None, 2)]


def test_a_row_that_is_marked_deletes_the_row_of_its_key(sink: DatabaseSink) -> None:
    """With the upserts in one transaction, and also a key with a null, though the table has a
    column that may not be null."""
    with psycopg.connect(sink.url) as connection:
        connection.execute(
            f"CREATE TABLE {sink.table} (at timestamptz, carrier text, flights bigint NOT NULL, tags jsonb, share numeric, "
            "UNIQUE (at, carrier))"
        )
    database = open_database(sink, TYPES)
    database.apply(rows(("AA", 1), ("UA", 5), (None, 7)), "flow", "query", 0)
    changes = rows(("AA", 0), ("UA", 6), (None, 0), ("ZZ", 0)).append_column(
        DELETION_MARK, pa.array([True, False, True, True])
    )
    changes = changes.set_column(2, "flights", pa.array([None, 6, None, None], pa.int64()))
    assert database.apply(changes, "flow", "query", 1)
    assert database.apply(rows(("ZZ", 0)).append_column(DELETION_MARK, pa.array([True])), "flow", "query", 2)
    database.close()
    assert [(row[1], row[2]) for row in contents(sink)] == [("UA", 6)]


def test_a_first_batch_that_the_lost_connection_commits_late_is_there_once(sink: DatabaseSink) -> None:
    """A row whose key has a null cannot conflict, so the batch that is sent again waits
    for the transaction before."""
    lost, again = PostgresTable(sink, TYPES), PostgresTable(sink, TYPES)
    found: list[bool] = []
    with lost._connection.transaction():
        lost._apply(rows((None, 1)), "flow", "query", 0)
        waiting = threading.Thread(target=lambda: found.append(again.apply(rows((None, 1)), "flow", "query", 0)))
        waiting.start()
        with psycopg.connect(sink.url, autocommit=True) as watching:
            while not watching.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]:
                assert waiting.is_alive(), "it does not wait"
    waiting.join(60)
    lost.close()
    again.close()
    assert found == [False]
    assert [row[1:3] for row in contents(sink)] == [(None, 1)]


def test_a_refusal_is_reported_and_leaves_nothing(sink: DatabaseSink) -> None:
    """A constraint of the user's, say."""
    database = open_database(sink, TYPES)
    with psycopg.connect(sink.url) as connection:
        connection.execute(f"ALTER TABLE {sink.table} ADD CHECK (flights < 100)")
    with pytest.raises(DatabaseError, match=f"table {sink.table}: .*violates check constraint"):
        database.apply(rows(("AA", 1), ("UA", 100)), "flow", "query", 0)
    assert contents(sink) == []
    assert database.apply(rows(("AA", 1)), "flow", "query", 0)
    database.close()


def test_a_crashed_server_is_waited_for_and_each_row_is_there_once(server: PostgresServer, sink: DatabaseSink) -> None:
    """It crashes before a batch, and after a commit whose answer is lost; the second
    time it stays away."""
    waits: list[float] = []

    def start_again(seconds: float) -> None:
        if not waits:
            server.start()
        waits.append(seconds)

    database = PostgresTable(sink, TYPES, wait=start_again)
    assert database.apply(rows(("AA", 1)), "flow", "query", 0)
    server.crash()
    assert database.apply(rows(("AA", 2), ("UA", 5)), "flow", "query", 1)
    assert waits
    assert not database.apply(rows(("AA", 2), ("UA", 5)), "flow", "query", 1), "as after a commit with a lost answer"
    now = iter(range(0, 1000, 50))
    impatient = PostgresTable(sink, TYPES, clock=lambda: next(now), wait=lambda _: None)
    server.crash()
    with pytest.raises(DatabaseError, match="Start the flow again when the server is there"):
        impatient.apply(rows(("DL", 9)), "flow", "query", 2)
    server.start()
    assert database.apply(rows(("DL", 9)), "flow", "query", 2)
    database.close()
    assert [row[1:3] for row in contents(sink)] == [("AA", 2), ("DL", 9), ("UA", 5)]


def test_a_dropped_table_ends_a_batch_with_what_to_do_and_holds_none_when_it_is_made_again(sink: DatabaseSink) -> None:
    """So that the flow refuses to go on with half of its rows."""
    database = open_database(sink, TYPES)
    database.apply(rows(("AA", 1)), "flow", "query", 3)
    assert database.last_epoch("flow", "query") == 3
    with psycopg.connect(sink.url) as connection:
        connection.execute(f"DROP TABLE {sink.table}")
    with pytest.raises(DatabaseError, match="does not exist.*Restore it, .*pipeline rewind FILE --to earliest"):
        database.apply(rows(("AA", 1)), "flow", "query", 4)
    database.close()
    again = open_database(sink, TYPES)
    assert again.last_epoch("flow", "query") == -1
    again.close()


def test_texts_that_postgresql_cannot_hold_do_not_end_a_flow(sink: DatabaseSink) -> None:
    """U+0000 becomes U+FFFD, in JSON too; what looks like its escape stays, and NaN
    in JSON is a text."""
    database = open_database(sink, {**TYPES, "shares": "array<double>"})
    tags = ["a\0b", "\\u0000", "\\\0"]
    table = rows(("AA", 1)).set_column(3, "tags", pa.array([tags]))
    table = table.append_column("shares", pa.array([[1.5, float("nan"), float("-inf")]]))
    assert database.apply(table, "flow", "query", 0)
    database.close()
    ((_, carrier, _, found, _, shares),) = contents(sink)
    assert (carrier, found) == ("AA", ["a\ufffdb", "\\u0000", "\\\ufffd"])
    assert shares == [1.5, "NaN", "-Infinity"]


def test_a_key_with_a_character_that_postgresql_cannot_hold_is_refused(sink: DatabaseSink) -> None:
    """With another one in its place it would be another key."""
    database = open_database(sink, TYPES)
    with pytest.raises(DatabaseError, match=r"U\+0000 in column carrier, which PostgreSQL cannot hold"):
        database.apply(rows(("A\0", 1), ("A\ufffd", 2), ("B", 3)), "flow", "query", 0)
    database.close()
    assert contents(sink) == []


def test_a_server_that_came_back_without_a_batch_that_it_had_taken_is_refused(sink: DatabaseSink) -> None:
    """A standby that lagged has taken over: the next batch would hide the loss."""
    database = open_database(sink, TYPES)
    database.apply(rows(("AA", 1)), "flow", "query", 0)
    database.apply(rows(("UA", 1)), "flow", "query", 1)
    with psycopg.connect(sink.url) as connection:
        connection.execute(f"DELETE FROM {sink.table} WHERE carrier = 'UA'")
        connection.execute("UPDATE barnabas_epochs SET epoch = 0 WHERE sink = %s", (sink.table,))
    with pytest.raises(DatabaseError, match="lacks rows of micro-batch 1.*rewind"):
        database.apply(rows(("DL", 1)), "flow", "query", 2)
    database.close()
    assert [row[1] for row in contents(sink)] == ["AA"]


@pytest.mark.parametrize("name", ["barnabas_batch", "public.barnabas_batch", "excluded", "kept", "select"])
def test_a_table_may_have_any_name(url: str, name: str) -> None:
    """Also one that statements use for something else."""
    sink = DatabaseSink("postgresql", url, name, ("at", "carrier"))
    with contextlib.closing(open_database(sink, TYPES)) as database:
        database.apply(rows(("AA", 1), (None, 2), ("UA", 3)), "flow", f"query of {name}", 0)
        database.apply(rows(("AA", 4), (None, 5)), "flow", f"query of {name}", 1)
        database.apply(rows(("UA", 3)).append_column(DELETION_MARK, pa.array([True])), "flow", f"query of {name}", 2)
    with psycopg.connect(url) as connection:
        table = ".".join(f'"{each}"' for each in name.split("."))
        found = connection.execute(f"SELECT carrier, flights FROM {table} ORDER BY carrier").fetchall()
        connection.execute(f"DROP TABLE {table}")
    assert found == [("AA", 4), (None, 5)]
