"""Equality of keys in outputs that are servers, and in whole flows, for every type of key.

tests/unit/test_pipeline_keys.py has the outputs of this machine.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.interop]
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")
psycopg = pytest.importorskip("psycopg")
pytest.importorskip("pyspark")

from barnabas.pipelines.flows import declare, fields, topic  # noqa: E402
from barnabas.pipelines.frames.transforms import RECORD_SCHEMA  # noqa: E402
from barnabas.pipelines.frames.views import build_views  # noqa: E402
from barnabas.pipelines.outputs.registry import open_output  # noqa: E402
from barnabas.pipelines.outputs.sql import DatabaseError  # noqa: E402
from barnabas.pipelines.outputs.table import OutputTable  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification.spec import DatabaseSink  # noqa: E402
from support.databases import open_database  # noqa: E402
from support.key_matrix import (  # noqa: E402
    IS_WHOLE,
    KEY_TYPES,
    KEYS,
    STEPS,
    TRIED_KEYS,
    KeyType,
    Place,
    as_native,
    as_sqlite,
    canonical,
    keys_of,
    of_document,
    run_cells,
    schema_of,
    spellings,
    types_of,
)
from support.needs import needs  # noqa: E402
from support.postgres_server import PostgresServer, running_postgres  # noqa: E402


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A running server."""
    with running_postgres() as running:
        yield running


class Outputs:
    """Sinks of one flow, and what they hold."""

    def __init__(
        self, folder: Path, kind: KeyType, key: tuple[str, ...], cluster: Any, postgres: PostgresServer | None
    ) -> None:
        self._folder, self._kind, self._key, self._cluster, self._postgres = folder, kind, key, cluster, postgres
        self._names = ", ".join((*key, "v"))
        self._copy = cluster.topic(1)
        sinks: list[dict[str, Any]] = [
            {"type": "sqlite", "path": str(folder / "sqlite"), "table": "t"},
            {"type": "duckdb", "path": str(folder / "duckdb"), "table": "t"},
            {"type": "delta", "path": str(folder / "delta")},
            {"type": "search", "path": str(folder / "search"), "table": "t", "text": ["v"]},
            {"type": "topic", "topic": self._copy},
        ]
        if postgres:
            sinks.append({"type": "postgresql", "url": postgres.url, "table": "of_flow"})
        self.sinks = [{**each, "key": list(key), "delete_when": "v is null"} for each in sinks]

    def found(self) -> dict[str, tuple[Callable[[Any], Any], list[tuple[Any, ...]]]]:
        """For each output the form of its keys, and its rows."""
        with duckdb.connect(str(self._folder / "duckdb"), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            of_duckdb = connection.execute(f"SELECT {self._names} FROM t").fetchall()
        delta = deltalake.DeltaTable(str(self._folder / "delta")).to_pyarrow_table().to_pylist()
        rows: dict[str, Any] = {
            "sqlite": (as_sqlite, self._of_sqlite("sqlite")),
            "search": (as_sqlite, self._of_sqlite("search")),
            "duckdb": (as_native, of_duckdb),
            "delta": (as_native, [tuple(each[name] for name in (*self._key, "v")) for each in delta]),
            "topic": (as_native, self._of_topic()),
        }
        if self._postgres:
            with psycopg.connect(self._postgres.url) as database:
                rows["postgresql"] = (as_native, database.execute(f"SELECT {self._names} FROM of_flow").fetchall())
        return rows

    def _of_sqlite(self, name: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._folder / name)) as connection:
            return connection.execute(f"SELECT {self._names} FROM t").fetchall()

    def _of_topic(self) -> list[tuple[Any, ...]]:
        """As compaction leaves it: keys are equal by their bytes."""
        last = {message.key(): message.value() for message in self._cluster.read(self._copy)}
        found = []
        for key, value in last.items():
            if value is not None:
                parts = json.loads(key, parse_float=str)
                values = [of_document(parts[name], self._kind) if name == "k" else parts[name] for name in self._key]
                found.append((*values, json.loads(value)["v"]))
        return found


def record(key: tuple[str, ...], values: tuple[Any, ...], figure: int | None, number: int) -> bytes:
    """A row as a value of JSON; equal values are written differently from record to record."""
    texts = [spellings(value) for value in values]
    fields = [f'"{name}": {text[number % len(text)]}' for name, text in zip(key, texts, strict=True)]
    return ", ".join(["{" + fields[0], *fields[1:], f'"v": {json.dumps(figure)}}}']).encode()


FLOWS = [(name, key) for name in KEY_TYPES for key in KEYS]
SAMPLE = [("null, NaN, -0.0", ("o", "k")), ("U+0000", ("k",))]


@needs("initdb", "pg_ctl")
@pytest.mark.parametrize(("name", "key"), FLOWS if IS_WHOLE else SAMPLE, ids=str)
def test_a_flow_gives_all_outputs_the_same_rows(
    spark: Any, cluster: Any, tmp_path: Path, postgres: PostgresServer, name: str, key: tuple[str, ...]
) -> None:
    """Rows are inserted, come again in other spellings, are updated and deleted, and
    a second run goes on."""
    kind, keys, records = KEY_TYPES[name], keys_of(KEY_TYPES[name], key), cluster.topic(1)
    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP TABLE IF EXISTS of_flow")
    outputs = Outputs(tmp_path, kind, key, cluster, None if name == "U+0000" else postgres)
    flow = declare(
        records,
        checkpoint=str(tmp_path / "state"),
        source=topic(
            records,
            bootstrap_servers=cluster.bootstrap,
            max_offsets_per_trigger=max(2, len(keys) * 3 // 2),  # so that steps share micro-batches
            format=fields("json", **types_of(kind, key)),
        ),
        sinks=outputs.sinks,
    )
    model: dict[tuple[Any, ...], int] = {}
    steps: dict[str, list[tuple[tuple[Any, ...], int | None]]] = {
        "insert": [(each, 1) for each in keys],
        "again": [(each, 1) for each in keys * 2],
        "update": [(each, 2) for each in keys[::2]],
        "delete": [(each, None) for each in keys[1::3]],
        "two runs": [*((each, 3) for each in keys[::-1]), *((each, None) for each in keys[::3])],
    }
    assert tuple(steps) == STEPS
    for step, changes in steps.items():
        for values, figure in changes:
            model[values] = figure if figure is not None else 0
        gone = {values for values, figure in changes if figure is None}
        model = {values: figure for values, figure in model.items() if values not in gone}
        cluster.produce(
            records, [(b"", record(key, values, figure, at)) for at, (values, figure) in enumerate(changes)]
        )
        if not IS_WHOLE and step not in ("delete", "two runs"):
            continue
        assert run_on(spark, flow)["bad_rows"] == 0
        for output, (form, rows) in outputs.found().items():
            there = sorted((*map(canonical, row[:-1]), row[-1]) for row in rows)
            wanted = sorted((*(canonical(form(value)) for value in values), figure) for values, figure in model.items())
            assert there == wanted, (output, step)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_record_whose_key_an_output_of_the_flow_cannot_hold_is_a_bad_row(spark: Any, is_grouped: bool) -> None:
    """As a key of rows and of groups; the other output of the flow does not get it either."""
    key = {} if is_grouped else {"key": ["name"]}
    how: dict[str, Any] = {"aggregate": {"group_by": ["name"], "compute": {"n": "count(*)"}}} if is_grouped else {}
    flow = declare(
        "f",
        checkpoint="c",
        source=topic("t", bootstrap_servers="localhost:9092", format=fields("json", name="string")),
        sinks=[
            {"type": "postgresql", "url": "postgresql://u@h/d", "table": "t", **key},
            {"type": "topic", "topic": "out", **key},
        ],
        **how,
    )
    values = [b'{"name": "a"}', rb'{"name": "a\u0000"}', b'{"name": "%s"}' % (b"x" * 2501), b'{"name": null}']
    frame = spark.createDataFrame([(None, value, "t", 0, at) for at, value in enumerate(values)], RECORD_SCHEMA)
    (parsed,) = build_views(spark, flow, lambda _: frame).parsed.values()
    found = parsed.orderBy("source_offset").select("_barnabas_error", "_barnabas_bad").collect()
    assert [row[0] for row in found] == [None, "KEY", "KEY", None]
    assert found[1][1] == "column name is a\ufffd with the character U+0000, which PostgreSQL cannot hold"


def test_deduplication_and_joins_with_tables_have_the_same_equality(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Across micro-batches; the row that stays has the form of all that are equal."""
    records = cluster.topic(1)
    (tmp_path / "t.csv").write_text("k,label\n-0.0,zero\nNaN,no number\n-,nothing\n")
    flow = declare(
        records,
        checkpoint=str(tmp_path / "state"),
        source=topic(
            records,
            bootstrap_servers=cluster.bootstrap,
            max_offsets_per_trigger=3,
            watermark={"time": "at", "delay": "1 hour"},
            format=fields("json", k="double", at="timestamp"),
        ),
        tables={
            "names": {
                "type": "csv",
                "path": str(tmp_path / "t.csv"),
                "null": "-",
                "columns": {"k": "double", "label": "string"},
            }
        },
        steps=[
            {"name": "firsts", "deduplicate": ["k"]},
            {"name": "named", "sql": "SELECT firsts.*, label FROM firsts LEFT JOIN names ON firsts.k <=> names.k"},
        ],
        sinks=[{"type": "duckdb", "path": str(tmp_path / "out"), "table": "t"}],
    )
    values = ["-0.0", '"NaN"', "null", "0.0", "1.5", '"NaN"', "null", "0.0", "1.5"]
    cluster.produce(records, [(b"", f'{{"k": {each}, "at": "2026-01-01T00:00:00Z"}}'.encode()) for each in values])
    assert run_on(spark, flow)["bad_rows"] == 0
    with duckdb.connect(str(tmp_path / "out"), read_only=True) as connection:
        found = connection.execute("SELECT source_offset, k, label FROM t ORDER BY 1").fetchall()
    assert repr(found) == "[(0, 0.0, 'zero'), (1, nan, 'no number'), (2, None, 'nothing'), (4, 1.5, None)]"


@needs("initdb", "pg_ctl")
@pytest.mark.parametrize(
    ("spark", "declared", "reason"),
    [
        ("string", "k char(9)", r"is of type character\(9\), which compares texts without case or spaces"),
        ("decimal(9,3)", "k numeric(9,2)", r"is of type numeric\(9,2\), to which values are rounded"),
        ("double", "k real", "is of type real"),
        ("timestamp", "k timestamptz(3)", r"is of type timestamp\(3\) with time zone"),
        ("string", "k varchar(9)", ""),
        ("decimal(9,3)", "k numeric", ""),
    ],
)
def test_a_table_of_others_that_compares_keys_by_other_rules_is_refused(
    postgres: PostgresServer, spark: str, declared: str, reason: str
) -> None:
    """As in SQLite and DuckDB."""
    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP TABLE IF EXISTS others")
        connection.execute(f"CREATE TABLE others ({declared} UNIQUE, v bigint)".encode())
    sink, types = DatabaseSink("postgresql", postgres.url, "others", ("k",)), {"k": spark, "v": "bigint"}
    if reason:
        with pytest.raises(DatabaseError, match=f"its column k, a part of the key, {reason}"):
            open_database(sink, types)
    else:
        open_database(sink, types).close()


@needs("initdb", "pg_ctl")
@pytest.mark.parametrize("name", [each for each in KEY_TYPES if each != "U+0000"])
@pytest.mark.parametrize("key", TRIED_KEYS, ids="-".join)
def test_rows_of_equal_keys_are_one_row_in_postgresql(
    postgres: PostgresServer, name: str, key: tuple[str, ...]
) -> None:
    """As in the outputs of this machine."""

    def open_place(kind: KeyType, key: tuple[str, ...]) -> OutputTable:
        sink = DatabaseSink("postgresql", postgres.url, "t", key)
        return open_output(sink, types_of(kind, key), schema_of(kind, key), rows_change=True)

    def read(key: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.url) as connection:
            return connection.execute(f"SELECT {', '.join((*key, 'v'))} FROM t").fetchall()

    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
    steps = []
    for step, found, expected in run_cells(Place(open_place, read, as_native), KEY_TYPES[name], key):
        assert found == expected, step
        steps.append(step)
    assert tuple(steps) == STEPS
