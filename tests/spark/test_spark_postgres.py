"""PostgreSQL as a sink, against a server of this machine's: a batch counts once, however often it comes."""

import datetime
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.needs import needs, program

pytestmark = [pytest.mark.spark, pytest.mark.interop, needs("initdb", "pg_ctl")]
pa = pytest.importorskip("pyarrow")
psycopg = pytest.importorskip("psycopg")

from barnabas.pipelines.database import open_database  # noqa: E402
from barnabas.pipelines.spec import DatabaseSink  # noqa: E402
from barnabas.pipelines.sql import DatabaseError  # noqa: E402

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
def url() -> Iterator[str]:
    """A server that listens on a socket in a folder of its own."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        extra: dict[str, Any] = {}
        if os.geteuid() == 0:  # which PostgreSQL refuses
            owner = next((each for each in ("postgres", "nobody") if _has_user(each)), None)
            if owner is None:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
            shutil.chown(folder, owner)
            extra = {"user": owner, "extra_groups": []}
        quiet = {"stdout": subprocess.DEVNULL, "check": True, "cwd": folder, **extra}
        subprocess.run([initdb, "-D", folder / "data", "-A", "trust", "-U", "tests"], **quiet)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        subprocess.run([pg_ctl, "-D", folder / "data", "-o", options, "-l", folder / "log", "-w", "start"], **quiet)
        try:
            yield f"postgresql://tests@/postgres?host={folder}"
        finally:
            subprocess.run([pg_ctl, "-D", folder / "data", "-m", "fast", "-w", "stop"], **quiet)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


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
