"""Lake tables as Polars and DuckDB read them, without Spark.

Polars is not in the lock file: ``other_pyspark.py polars``."""

import datetime
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

from barnabas.pipelines.outputs.declared import LakeSink  # noqa: E402
from barnabas.pipelines.outputs.registry import open_output  # noqa: E402
from barnabas.pipelines.specification.spec import POSITION  # noqa: E402

AT = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("carrier", pa.string()), ("price", pa.decimal128(8, 2))]
)
TYPES = {"id": "bigint", "at": "timestamp", "carrier": "string", "price": "decimal(8,2)"}


def rows(*figures: tuple[int, str | None, str]) -> Any:
    values = [{"id": number, "at": AT, "carrier": carrier, "price": price} for number, carrier, price in figures]
    values = [{**each, "price": pa.scalar(each["price"]).cast(pa.decimal128(8, 2)).as_py()} for each in values]
    return pa.Table.from_pylist(values, schema=SCHEMA)


EXPECTED = [(1, AT, "AA", 1.5), (2, AT, "b/c", 2.25), (3, AT, None, 0.0)]


def shown(frame: Any) -> list[tuple[Any, ...]]:
    """The rows of a frame of Polars or a table of Arrow, by id."""
    table = frame.to_arrow() if hasattr(frame, "to_arrow") else frame
    return sorted((row["id"], row["at"], row["carrier"], float(row["price"])) for row in table.to_pylist())


def test_polars_and_duckdb_read_a_partitioned_folder_of_parquet(tmp_path: Path) -> None:
    """Also after a batch that ran twice."""
    sink = LakeSink("parquet", str(tmp_path / "lake"), POSITION, ("carrier",))
    folder = open_output(sink, {**TYPES, **dict.fromkeys(POSITION, "bigint")}, SCHEMA, rows_change=False)
    for epoch, figures in (
        (0, [(1, "AA", "1.50"), (2, "b/c", "2.25")]),
        (1, [(3, None, "0.00")]),
        (1, [(3, None, "0.00")]),
    ):
        folder.apply(rows(*figures), "flow", "query", epoch)
    assert shown(pl.read_parquet(tmp_path / "lake", hive_partitioning=True)) == EXPECTED
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT * FROM read_parquet('{tmp_path}/lake/**/*.parquet', hive_partitioning = true)"
        assert shown(connection.sql(query).to_arrow_table()) == EXPECTED


def test_polars_and_duckdb_read_a_delta_table_whose_rows_were_replaced(tmp_path: Path) -> None:
    """DuckDB through the table's files as an Arrow dataset: its own extension would be
    fetched from the network."""
    sink = LakeSink("delta", str(tmp_path / "table"), ("id",))
    table = open_output(sink, TYPES, SCHEMA, rows_change=True)
    table.apply(rows((1, "AA", "9.99"), (2, "b/c", "2.25")), "flow", "query", 0)
    table.apply(rows((1, "AA", "1.50"), (3, None, "0.00")), "flow", "query", 1)
    assert shown(pl.read_delta(str(tmp_path / "table"))) == EXPECTED
    dataset = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("flights", dataset)
        assert shown(connection.sql("SELECT * FROM flights").to_arrow_table()) == EXPECTED
