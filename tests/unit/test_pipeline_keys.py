"""Equality of keys in all outputs of this machine, for every type of key.

Servers are in tests/spark/test_spark_keys.py."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")

from barnabas.pipelines.outputs.declared import LakeSink, SearchSink  # noqa: E402
from barnabas.pipelines.outputs.registry import open_output  # noqa: E402
from barnabas.pipelines.outputs.sql import DatabaseError  # noqa: E402
from barnabas.pipelines.outputs.table import OutputTable  # noqa: E402
from barnabas.pipelines.specification.spec import DatabaseSink  # noqa: E402
from barnabas.pipelines.values.texts import text_of_bytes  # noqa: E402
from support.databases import open_database  # noqa: E402
from support.key_matrix import (  # noqa: E402
    KEY_TYPES,
    STEPS,
    TRIED_KEYS,
    KeyType,
    Place,
    as_native,
    as_sqlite,
    run_cells,
    schema_of,
    types_of,
)


@pytest.fixture(params=["sqlite", "duckdb", "delta", "partitioned delta", "search"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Every output of this machine that replaces rows by key."""
    name = request.param
    path = str(tmp_path / "out")

    def open_place(kind: KeyType, key: tuple[str, ...]) -> OutputTable:
        parts = tuple(each for each in key if each == "o") if name == "partitioned delta" else ()
        sinks: dict[str, Any] = {
            "search": SearchSink(path, "t", ("v",), key),
            "delta": LakeSink("delta", path, key),
            "partitioned delta": LakeSink("delta", path, key, parts),
        }
        sink = sinks.get(name, DatabaseSink(name, path, "t", key))
        return open_output(sink, types_of(kind, key), schema_of(kind, key), rows_change=True)

    def read(key: tuple[str, ...]) -> list[tuple[Any, ...]]:
        names = ", ".join((*key, "v"))
        if name in ("sqlite", "search"):
            with closing(sqlite3.connect(path)) as connection:
                return connection.execute(f"SELECT {names} FROM t").fetchall()
        if name == "duckdb":
            with duckdb.connect(path, read_only=True) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                return list(connection.execute(f"SELECT {names} FROM t").fetchall())
        found = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        return [tuple(each[column] for column in (*key, "v")) for each in found]

    return Place(open_place, read, as_sqlite if name in ("sqlite", "search") else as_native)


@pytest.mark.parametrize("name", KEY_TYPES)
@pytest.mark.parametrize("key", TRIED_KEYS, ids="-".join)
def test_rows_of_equal_keys_are_one_row_and_others_are_not(place: Place, name: str, key: tuple[str, ...]) -> None:
    """Inserted, applied again, updated, deleted, and by a second run."""
    steps = []
    for step, found, expected in run_cells(place, KEY_TYPES[name], key):
        assert found == expected, step
        steps.append(step)
    assert tuple(steps) == STEPS


@pytest.mark.parametrize(
    ("kind", "spark", "declared", "reason"),
    [
        ("sqlite", "string", "k TEXT COLLATE NOCASE UNIQUE", "is compared by NOCASE"),
        ("sqlite", "string", "k INTEGER UNIQUE", "is of type INTEGER, of which SQLite makes numbers"),
        ("sqlite", "decimal(9,2)", "k NUMERIC UNIQUE", "is of type NUMERIC"),
        ("sqlite", "string", "k VARCHAR(9) UNIQUE", ""),
        ("sqlite", "bigint", "k INTEGER UNIQUE", ""),
        ("duckdb", "decimal(9,3)", "k DECIMAL(9,2) UNIQUE", r"is of type DECIMAL\(9,2\), to which values are rounded"),
        ("duckdb", "double", "k FLOAT UNIQUE", "is of type FLOAT"),
        ("duckdb", "timestamp", "k DATE UNIQUE", "is of type DATE"),
        ("duckdb", "decimal(9,3)", "k DECIMAL(18,3) UNIQUE", ""),
        ("duckdb", "int", "k BIGINT UNIQUE", ""),
    ],
)
def test_a_table_of_others_that_compares_keys_by_other_rules_is_refused(
    tmp_path: Path, kind: str, spark: str, declared: str, reason: str
) -> None:
    """Rows of several keys would replace each other."""
    path = str(tmp_path / "out")
    connection: Any = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)
    connection.execute(f"CREATE TABLE t ({declared}, v BIGINT)")
    connection.close()
    sink = DatabaseSink(kind, path, "t", ("k",))
    if reason:
        with pytest.raises(
            DatabaseError, match=f"table t is there already, and its column k, a part of the key, {reason}"
        ):
            open_database(sink, {"k": spark, "v": "bigint"})
    else:
        open_database(sink, {"k": spark, "v": "bigint"}).close()


def test_different_bytes_are_different_texts() -> None:
    """What is not UTF-8 shows its digits."""
    assert [text_of_bytes(each) for each in (b"a", b"", b"\xc3\xa9", b"\x80", b"\x81")] == [
        "a",
        "",
        "é",
        "\\x80",
        "\\x81",
    ]
