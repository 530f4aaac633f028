"""Outputs of flows: each takes a batch again without harm, and all give the same
times and figures."""

import datetime
import json
import shutil
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")
import pyarrow.dataset as ds  # noqa: E402

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.dashboard.results import ResultReader  # noqa: E402
from barnabas.pipelines.outputs.declared import LakeSink, OutputError, SearchSink  # noqa: E402
from barnabas.pipelines.outputs.registry import inspect_output, open_output  # noqa: E402
from barnabas.pipelines.outputs.search import search_index  # noqa: E402
from barnabas.pipelines.outputs.sql import DatabaseError  # noqa: E402
from barnabas.pipelines.outputs.table import DELETION_MARK, OutputTable  # noqa: E402
from barnabas.pipelines.specification.spec import POSITION, DatabaseSink  # noqa: E402
from barnabas.pipelines.values.arrow_values import ValueOutOfRangeError, require_texts, values_of  # noqa: E402
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
DAY = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
TEXT = "2013-01-01T05:00:00.000000Z"
KEY = ("at", "carrier")


def rows(*figures: tuple[str | None, int]) -> Any:
    values = [
        {"at": DAY, "carrier": name, "flights": n, "tags": ["x"], "share": Decimal("1.50")} for name, n in figures
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


class Keyed:
    """An output whose rows are replaced by key, and how its rows are read back."""

    def __init__(self, sink: Any, read: Callable[[], list[tuple[Any, ...]]]) -> None:
        self.sink = sink
        self.read = read

    def open(self) -> OutputTable:
        return open_output(self.sink, TYPES, SCHEMA, rows_change=True)


@pytest.fixture(params=["sqlite", "duckdb", "delta", "search"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Keyed:
    """Every output of this machine that replaces rows by key."""
    path = str(tmp_path / "out")
    sql = "SELECT carrier, flights FROM t ORDER BY carrier, flights"

    def from_sqlite() -> list[tuple[Any, ...]]:
        with sqlite3.connect(path) as connection:
            found = connection.execute(sql).fetchall()
        connection.close()
        return found

    def from_duckdb() -> list[tuple[Any, ...]]:
        with duckdb.connect(path, read_only=True) as connection:
            return list(connection.execute(sql).fetchall())

    def from_delta() -> list[tuple[Any, ...]]:
        found = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        return [(each["carrier"], each["flights"]) for each in found]

    return {
        "sqlite": Keyed(DatabaseSink("sqlite", path, "t", KEY), from_sqlite),
        "duckdb": Keyed(DatabaseSink("duckdb", path, "t", KEY), from_duckdb),
        "delta": Keyed(LakeSink("delta", path, KEY), from_delta),
        "search": Keyed(SearchSink(path, "t", ("carrier",), KEY), from_sqlite),
    }[request.param]


def test_rows_of_an_equal_key_are_replaced_and_replays_change_nothing(output: Keyed) -> None:
    """Also after the output was opened again, as after a crash."""
    opened = output.open()
    assert opened.apply(rows(("AA", 1), ("UA", 5)), "flow", "query", 0)
    assert opened.apply(rows(("AA", 2)), "flow", "query", 1)
    assert not opened.apply(rows(("AA", 9)), "flow", "query", 1)
    opened.close()
    opened = output.open()
    assert not opened.apply(rows(("AA", 9)), "flow", "query", 1)
    assert opened.apply(rows(("DL", 3)), "flow", "query", 2)
    opened.close()
    assert sorted(output.read()) == [("AA", 2), ("DL", 3), ("UA", 5)]


def test_epochs_begin_again_with_a_new_query(output: Keyed) -> None:
    """A new checkpoint counts its batches from 0, and its rows replace those of equal key."""
    opened = output.open()
    opened.apply(rows(("AA", 1), ("UA", 5)), "flow", "query", 7)
    assert opened.apply(rows(("AA", 3)), "flow", "another", 0)
    opened.close()
    assert sorted(output.read()) == [("AA", 3), ("UA", 5)]


def test_rows_that_are_marked_are_deleted_with_their_batch(output: Keyed) -> None:
    """Also by a null in the key, what is not there, and again after a crash."""

    def batch(*figures: tuple[str | None, int], deleted: set[str | None]) -> Any:
        marks = pa.array([name in deleted for name, _ in figures], pa.bool_())
        return rows(*figures).append_column(DELETION_MARK, marks)

    opened = output.open()
    opened.apply(batch(("AA", 1), ("UA", 5), (None, 7), deleted=set()), "flow", "query", 0)
    opened.apply(batch(("AA", 2), ("DL", 3), (None, 8), deleted={"AA", None}), "flow", "query", 1)
    assert opened.apply(batch(("XX", 2), deleted={"XX"}), "flow", "query", 2)
    assert opened.last_epoch("flow", "query") == 2
    assert not opened.apply(batch(("UA", 2), deleted={"UA"}), "flow", "query", 2)
    assert opened.apply(batch(deleted=set()), "flow", "query", 3)
    assert opened.last_epoch("flow", "query") == 3
    opened.close()
    assert sorted(output.read()) == [("DL", 3), ("UA", 5)]
    if isinstance(output.sink, SearchSink):
        assert [hit.row["carrier"] for hit in search_index(output.sink, "AA OR DL")] == ["DL"]


def test_a_group_whose_key_is_null_has_one_row(output: Keyed) -> None:
    """SQL takes each NULL for different; a group by null is one group."""
    opened = output.open()
    opened.apply(rows((None, 1), ("AA", 1)), "flow", "query", 0)
    opened.apply(rows((None, 2)), "flow", "query", 1)
    opened.close()
    assert sorted(output.read(), key=str) == [("AA", 1), (None, 2)]


def test_an_empty_batch_is_taken(output: Keyed) -> None:
    """Spark runs batches without rows, too."""
    opened = output.open()
    assert opened.apply(rows(), "flow", "query", 0)
    assert not opened.apply(rows(("AA", 1)), "flow", "query", 0)
    opened.close()
    assert output.read() == []


def test_an_output_that_was_deleted_and_made_again_holds_no_batches(output: Keyed) -> None:
    """So a flow notices that its rows are gone, though a table of that name is there."""
    opened = output.open()
    opened.apply(rows(("AA", 1)), "flow", "query", 7)
    assert (opened.last_epoch("flow", "query"), opened.last_epoch("flow", "another")) == (7, -1)
    opened.close()
    place = Path(getattr(output.sink, "path", "") or output.sink.url)
    if place.is_dir():
        shutil.rmtree(place)
    else:
        connect = duckdb.connect if output.sink.type == "duckdb" else sqlite3.connect
        connection = connect(str(place))
        connection.execute("DROP TABLE t")
        connection.close()
    opened = output.open()
    assert opened.last_epoch("flow", "query") == -1
    opened.close()
    opened = output.open()
    assert opened.last_epoch("flow", "query") == -1
    opened.close()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_table_that_is_dropped_while_a_flow_runs_ends_it_with_what_to_do(kind: str, tmp_path: Path) -> None:
    """Nothing is written to a table that lacks what was before."""
    path = str(tmp_path / "out")
    opened = open_database(DatabaseSink(kind, path, "t", KEY), TYPES)
    opened.apply(rows(("AA", 1)), "flow", "query", 0)
    connection = duckdb.connect(path) if kind == "duckdb" else sqlite3.connect(path)
    connection.execute("DROP TABLE t")
    connection.close()
    with pytest.raises(DatabaseError, match="table t: .*Restore it, .*pipeline rewind FILE --to earliest"):
        opened.apply(rows(("AA", 1)), "flow", "query", 1)
    opened.close()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "search", "parquet", "delta"])
def test_a_file_or_folder_that_is_deleted_while_a_flow_runs_ends_it_with_what_to_do(kind: str, tmp_path: Path) -> None:
    """Also at the next start: what holds later rows only would look like the whole."""
    place = tmp_path / "out # 1?"
    sinks = {
        "search": SearchSink(str(place), "t", ("carrier",), KEY),
        "parquet": LakeSink(kind, str(place), KEY),
        "delta": LakeSink(kind, str(place), KEY),
    }
    sink = sinks.get(kind, DatabaseSink(kind, str(place), "t", KEY))
    opened = open_output(sink, TYPES, SCHEMA, rows_change=kind != "parquet")
    opened.apply(rows(("AA", 1)), "flow", "query", 0)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    for _ in range(2):
        with pytest.raises(
            BarnabasError, match="Restore it.*let the flow fill it again.*rewind FILE --to earliest --yes"
        ):
            opened.apply(rows(("UA", 2)), "flow", "query", 1)
    opened.close()
    again = open_output(sink, TYPES, SCHEMA, rows_change=kind != "parquet")
    assert again.last_epoch("flow", "query") == -1
    again.close()


def test_the_same_time_is_read_from_every_output(tmp_path: Path) -> None:
    """As an instant where the output has a type for it, and in one form of text where not."""
    kept = {}
    for kind in ("sqlite", "duckdb"):
        path = str(tmp_path / kind)
        database = open_database(DatabaseSink(kind, path, "t", KEY), TYPES)
        database.apply(rows(("AA", 1)), "flow", "query", 0)
        database.close()
        connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)
        kept[kind] = connection.execute('SELECT "at", tags, share FROM t').fetchone()
        connection.close()
    assert kept["sqlite"] == (TEXT, '["x"]', "1.50")
    assert kept["duckdb"] == (DAY, '["x"]', Decimal("1.50"))
    for kind in ("parquet", "delta"):
        path = str(tmp_path / kind)
        lake = open_output(
            LakeSink(kind, path, POSITION), {**TYPES, **dict.fromkeys(POSITION, "x")}, SCHEMA, rows_change=False
        )
        lake.apply(rows(("AA", 1)), "flow", "query", 0)
        stored = ds.dataset(path) if kind == "parquet" else deltalake.DeltaTable(path)
        table = stored.to_table() if kind == "parquet" else stored.to_pyarrow_table()
        assert table["at"].to_pylist() == [DAY]


def test_a_table_of_duckdb_of_another_shape_is_refused(tmp_path: Path) -> None:
    """Better before the first batch than in its midst."""
    path = str(tmp_path / "out")
    with duckdb.connect(path) as connection:
        connection.execute('CREATE TABLE t ("at" TIMESTAMPTZ, carrier VARCHAR)')
    with pytest.raises(DatabaseError, match="no column flights"):
        open_database(DatabaseSink("duckdb", path, "t", KEY), TYPES)


def test_an_empty_text_is_no_folder_of_a_delta_table(tmp_path: Path) -> None:
    """Delta would take it for null, and replace that row."""
    table = open_output(LakeSink("delta", str(tmp_path / "d"), KEY, ("carrier",)), TYPES, SCHEMA, rows_change=True)
    with pytest.raises(OutputError, match="column carrier is empty, which Delta takes for null in partition_by"):
        table.apply(rows(("", 1), (None, 2)), "flow", "query", 0)
    assert table.apply(rows(("A", 1), (None, 2)), "flow", "query", 0)


# Parquet


def parquet(path: Path, *partition_by: str) -> OutputTable:
    sink = LakeSink("parquet", str(path), POSITION, partition_by)
    return open_output(sink, {**TYPES, **dict.fromkeys(POSITION, "bigint")}, SCHEMA, rows_change=False)


def read_parquet(path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        query = f"SELECT carrier, flights FROM read_parquet('{path}/**/*.parquet', hive_partitioning = true)"
        return sorted(connection.execute(query).fetchall(), key=str)


def test_a_parquet_batch_that_runs_again_replaces_its_files(tmp_path: Path) -> None:
    """DuckDB reads each row once, from the plain folder."""
    folder = parquet(tmp_path / "lake")
    folder.apply(rows(("AA", 1), ("UA", 5)), "flow", "query", 0)
    folder.apply(rows(("DL", 2)), "flow", "query", 1)
    folder = parquet(tmp_path / "lake")
    folder.apply(rows(("DL", 2)), "flow", "query", 1)
    assert read_parquet(tmp_path / "lake") == [("AA", 1), ("DL", 2), ("UA", 5)]


def test_parquet_is_partitioned_as_hive_does(tmp_path: Path) -> None:
    """Null has a folder, too, and odd characters are escaped."""
    folder = parquet(tmp_path / "lake", "carrier")
    folder.apply(rows(("AA", 1), (None, 3), ("a/b", 5), ("AA", 2)), "flow", "query", 0)
    assert sorted(each.name for each in (tmp_path / "lake").iterdir()) == [
        "_barnabas",
        "carrier=AA",
        "carrier=__HIVE_DEFAULT_PARTITION__",
        "carrier=a%2Fb",
    ]
    assert read_parquet(tmp_path / "lake") == [("AA", 1), ("AA", 2), ("a/b", 5), (None, 3)]


def test_parquet_refuses_a_second_query_of_a_flow(tmp_path: Path) -> None:
    """It would add all rows again; another flow may share the folder."""
    folder = parquet(tmp_path / "lake")
    folder.apply(rows(("AA", 1)), "flow", "query", 0)
    with pytest.raises(OutputError, match="from another checkpoint"):
        folder.apply(rows(("AA", 1)), "flow", "another", 0)
    assert (folder.last_epoch("flow", "query"), folder.last_epoch("another flow", "another")) == (None, -1)
    folder.apply(rows(("UA", 1)), "another flow", "another", 0)
    assert read_parquet(tmp_path / "lake") == [("AA", 1), ("UA", 1)]


def test_parquet_of_other_types_is_refused(tmp_path: Path) -> None:
    """Readers could not read such a folder."""
    parquet(tmp_path / "lake").apply(rows(("AA", 1)), "flow", "query", 0)
    changed = SCHEMA.set(2, pa.field("flights", pa.string()))
    with pytest.raises(OutputError, match="other columns or types than the flow: flights"):
        open_output(
            LakeSink("parquet", str(tmp_path / "lake"), POSITION),
            {**TYPES, **dict.fromkeys(POSITION, "bigint")},
            changed,
            rows_change=False,
        )


# Delta


def test_rows_keyed_by_their_position_are_appended_until_a_new_query_comes(tmp_path: Path) -> None:
    """A new checkpoint reads the topics again: from then on rows are merged on their key."""
    schema = SCHEMA.append(pa.field("source_offset", pa.int64()))
    sink = LakeSink("delta", str(tmp_path / "t"), ("source_offset",), compact_every=2)

    def batch(*offsets: int) -> Any:
        return rows(*(("AA", each) for each in offsets)).append_column("source_offset", pa.array(offsets, pa.int64()))

    types = {**TYPES, "source_offset": "bigint"}
    table = open_output(sink, types, schema, rows_change=False)
    for epoch in range(5):
        table.apply(batch(2 * epoch, 2 * epoch + 1), "flow", "query", epoch)
    operations = {each["operation"] for each in deltalake.DeltaTable(sink.path).history()}
    assert "MERGE" not in operations
    assert "OPTIMIZE" in operations
    table = open_output(sink, types, schema, rows_change=False)
    table.apply(batch(*range(12)), "flow", "another", 0)
    stored = deltalake.DeltaTable(sink.path).to_pyarrow_table()
    assert sorted(stored["source_offset"].to_pylist()) == list(range(12))


# Search


def test_an_index_finds_rows_at_once_and_forgets_what_they_were(tmp_path: Path) -> None:
    """Prefixes, phrases, words without accents, and what is no query of FTS5."""
    sink = SearchSink(str(tmp_path / "out"), "t", ("carrier",), ("flights",))
    index = open_output(sink, TYPES, SCHEMA, rows_change=True)
    index.apply(rows(("disk failure on /dev/sda", 1), ("Café closed, disk fine", 2)), "flow", "query", 0)
    assert [hit.row["flights"] for hit in search_index(sink, "disk")] == [2, 1]
    assert search_index(sink, "fail*")[0].snippet == "disk [failure] on /dev/sda"
    assert [hit.row["flights"] for hit in search_index(sink, "cafe")] == [2]
    assert [hit.row["flights"] for hit in search_index(sink, "/dev/sda")] == [1]
    index.apply(rows(("all is well", 1)), "flow", "query", 1)
    assert [hit.row["flights"] for hit in search_index(sink, "disk")] == [2]
    assert search_index(sink, '"all is well"')[0].row["at"] == TEXT
    index.close()


def test_the_index_survives_a_vacuum(tmp_path: Path) -> None:
    """SQLite may number rows differently afterwards; the index does not refer to those numbers."""
    sink = SearchSink(str(tmp_path / "out"), "t", ("carrier",), ("flights",))
    index = open_output(sink, TYPES, SCHEMA, rows_change=True)
    index.apply(rows(("one", 1), ("two", 2), ("three", 3)), "flow", "query", 0)
    with sqlite3.connect(sink.path) as connection:
        connection.execute("DELETE FROM t WHERE flights = 1")
        connection.commit()
        connection.execute("VACUUM")
    connection.close()
    assert [hit.row["flights"] for hit in search_index(sink, "three")] == [3]
    assert search_index(sink, "one") == []
    index.close()


def test_json_of_nested_values_has_the_same_times() -> None:
    """As Spark's to_json gives them with our options."""
    from barnabas.pipelines.values.texts import as_json

    assert json.loads(as_json([{"at": DAY}, {"at": DAY.replace(tzinfo=None)}])) == [{"at": TEXT}, {"at": TEXT[:-1]}]


def test_an_index_whose_table_was_dropped_or_that_covers_other_columns_begins_again(tmp_path: Path) -> None:
    """The old index stays in the file, and would find rows that are gone."""
    sink = SearchSink(str(tmp_path / "out"), "t", ("carrier",), ("flights",))
    index = open_output(sink, TYPES, SCHEMA, rows_change=True)
    index.apply(rows(("disk failure", 1)), "flow", "query", 0)
    index.close()
    connection = sqlite3.connect(sink.path)
    connection.execute("DROP TABLE t")
    connection.close()
    index = open_output(sink, TYPES, SCHEMA, rows_change=True)
    index.apply(rows(("all is well", 1)), "flow", "query", 0)
    assert search_index(sink, "disk") == []
    assert [hit.row["flights"] for hit in search_index(sink, "well")] == [1]
    index.close()
    wider = SearchSink(sink.path, "t", ("carrier", "tags"), ("flights",))
    index = open_output(wider, TYPES, SCHEMA, rows_change=True)
    assert [hit.row["flights"] for hit in search_index(wider, "tags: x")] == [1]
    index.apply(rows(("fine", 1)), "flow", "query", 1)
    assert search_index(wider, "well") == []
    index.close()


def test_a_folder_with_the_note_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """It was a file that held the query."""
    sink = LakeSink("parquet", str(tmp_path / "lake"), KEY)
    (tmp_path / "lake" / "_barnabas").mkdir(parents=True)
    (tmp_path / "lake" / "_barnabas" / "flow").write_text("query\n")
    folder = open_output(sink, TYPES, SCHEMA, rows_change=False)
    assert folder.last_epoch("flow", "query") is None
    assert folder.apply(rows(("AA", 1)), "flow", "query", 3)
    with pytest.raises(OutputError, match="from another checkpoint"):
        folder.apply(rows(("AA", 1)), "flow", "another", 0)


def test_a_delta_table_that_cannot_be_made_says_why_in_plain_words(tmp_path: Path) -> None:
    """The library reports the operating system's error in Rust's notation."""
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError) as refused:
        open_output(LakeSink("delta", str(tmp_path / "file" / "t"), KEY), TYPES, SCHEMA, rows_change=True)
    assert str(refused.value) == f"the Delta table at {tmp_path / 'file' / 't'}: Not a directory"


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "delta", "search", "parquet"])
def test_what_an_output_holds_is_seen_without_changing_it(kind: str, tmp_path: Path) -> None:
    """Nothing before it is made; then its columns, and the last micro-batch if the
    output keeps that."""
    path = str(tmp_path / "out")
    sinks: dict[str, Any] = {
        "sqlite": DatabaseSink("sqlite", path, "t", KEY),
        "duckdb": DatabaseSink("duckdb", path, "t", KEY),
        "delta": LakeSink("delta", path, KEY),
        "search": SearchSink(path, "t", ("carrier",), KEY),
        "parquet": LakeSink("parquet", path, KEY),
    }
    sink = sinks[kind]
    assert inspect_output(sink, "flow", "query") is None
    assert not Path(path).exists()
    opened = open_output(sink, TYPES, SCHEMA, rows_change=kind != "parquet")
    opened.apply(rows(("AA", 1)), "flow", "query", 4)
    opened.close()
    state = inspect_output(sink, "flow", "query")
    assert state is not None
    assert set(TYPES) <= set(state.columns or ())
    assert state.last_epoch == (None if kind == "parquet" else 4)
    another = inspect_output(sink, "flow", "another")
    assert another is not None
    assert another.last_epoch == -1


def test_maps_are_objects_in_json_whatever_their_keys_are() -> None:
    """As Spark's to_json writes them."""
    from barnabas.pipelines.values.texts import as_json

    maps = pa.array([[(1, "x")], [(2, "y")]], pa.map_(pa.int32(), pa.string()))
    assert [as_json(value) for value in values_of("m", maps)] == ['{"1":"x"}', '{"2":"y"}']
    assert as_json({DAY: 1.5, True: float("nan")}) == '{"' + TEXT + '":1.5,"true":"NaN"}'


def test_rows_with_a_text_that_is_not_utf8_reach_no_output() -> None:
    """Some would take it, and their readers make another text of it; within lists, too."""
    damaged = pa.array([b"a", b"caf\xe9"], pa.binary()).view(pa.string())
    require_texts(pa.table({"n": [1, 2], "b": [b"\xe9", None], "s": ["é", "b"]}))
    with pytest.raises(ValueOutOfRangeError, match=r"column s has the text caf\\xe9, which is not UTF-8"):
        require_texts(pa.table({"n": [1, 2], "s": damaged}))
    with pytest.raises(ValueOutOfRangeError, match=r"column l has a text, which is not UTF-8"):
        require_texts(pa.table({"l": pa.ListArray.from_arrays([0, 2], damaged)}))


def test_a_text_that_is_not_utf8_is_reported_as_one() -> None:
    """And not as a time out of range."""
    damaged = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    with pytest.raises(ValueOutOfRangeError, match=r"column s has the text caf\\xe9, which is not UTF-8: take hex"):
        values_of("s", damaged)


NAMES = ("barnabas_batch", "Barnabas_Batch", "excluded", "kept", "source", "target", "select", "results")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in ("sqlite", "duckdb", "search", "delta") for name in NAMES),
        ("duckdb", "main.barnabas_batch"),
    ],
)
def test_a_table_may_have_any_name(kind: str, name: str, tmp_path: Path) -> None:
    """Also one that statements use for something else: rows are inserted, replaced, deleted, and
    those with a null in the key, too."""
    sinks = {
        "delta": LakeSink("delta", str(tmp_path / name), ("kept",)),
        "search": SearchSink(str(tmp_path / "out"), name, ("text",), ("kept",)),
    }
    sink = sinks.get(kind, DatabaseSink(kind, str(tmp_path / "out"), name, ("kept",)))
    types = {"kept": "string", "text": "string", "excluded": "bigint"}
    schema = pa.schema([("kept", pa.string()), ("text", pa.string()), ("excluded", pa.int64())])
    opened = open_output(sink, types, schema, rows_change=True)

    def rows(*values: tuple[str | None, str, int]) -> Any:
        return pa.Table.from_pylist([dict(zip(types, each, strict=True)) for each in values], schema=schema)

    opened.apply(rows(("a", "x", 1), (None, "y", 2), ("b", "z", 3)), "flow", "query", 0)
    opened.apply(rows(("a", "w", 4), (None, "v", 5)), "flow", "query", 1)
    marked = rows(("b", "z", 3)).append_column(DELETION_MARK, pa.array([True]))
    opened.apply(marked, "flow", "query", 2)
    assert opened.last_epoch("flow", "query") == 2
    opened.close()
    found = ResultReader(sink).read().select(["kept", "text", "excluded"]).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, rows(("a", "w", 4), (None, "v", 5)).to_pylist()))
