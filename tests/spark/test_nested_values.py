"""The walks over nested values: what changes in structs, arrays and maps, and what stays null."""

from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from pyspark.sql import Column  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812  # its name in every Spark program
from pyspark.sql.types import DataType, IntegerType  # noqa: E402

from barnabas.pipelines.values.json_documents import json_document  # noqa: E402
from barnabas.pipelines.values.nested import has_part, rewritten  # noqa: E402

TYPES = """s struct<n: int, t: string>, a array<struct<n: int>>, m map<string, array<int>>, t string,
           deep struct<m: map<string, struct<n: int>>>"""
ROW = ({"n": 1, "t": "x"}, [{"n": 2}, None], {"k": [3, None]}, "x", {"m": {"k": {"n": 4}}})
NULLS = (None, None, None, None, None)


def plus_ten(value: Column, kind: DataType) -> Column | None:
    return value + 10 if isinstance(kind, IntegerType) else None


def is_above_three(columns: Any, kinds: Any, _: str | None) -> Column | None:
    return columns[0] > 3 if isinstance(kinds[0], IntegerType) else None


def test_leaves_change_in_structs_arrays_and_maps_and_nulls_stay(spark: Any) -> None:
    """A column without such a leaf is not touched at all."""
    rows = spark.createDataFrame([ROW, NULLS], TYPES)
    new = {each.name: rewritten(F.col(each.name), each.dataType, plus_ten) for each in rows.schema}
    assert new["t"] is None
    changed = rows.withColumns({name: each for name, each in new.items() if each is not None})
    assert changed.schema.simpleString() == rows.schema.simpleString()
    first, second = (row.asDict(recursive=True) for row in changed.collect())
    assert first == {
        "s": {"n": 11, "t": "x"},
        "a": [{"n": 12}, None],
        "m": {"k": [13, None]},
        "t": "x",
        "deep": {"m": {"k": {"n": 14}}},
    }
    assert set(second.values()) == {None}


def test_a_part_is_found_at_any_depth_and_a_null_has_none(spark: Any) -> None:
    """Only the struct's map has a number above three; a text cannot have one."""
    rows = spark.createDataFrame([ROW, NULLS], TYPES)
    found = {each.name: has_part([F.col(each.name)], [each.dataType], is_above_three) for each in rows.schema}
    assert found["t"] is None
    asked = [F.coalesce(each, F.lit(False)).alias(name) for name, each in found.items() if each is not None]
    first, second = (row.asDict() for row in rows.select(*asked).collect())
    assert first == {"s": False, "a": False, "m": False, "deep": True}
    assert set(second.values()) == {False}


def test_keys_of_maps_are_texts_in_documents_at_any_depth(spark: Any) -> None:
    """A date is a date's text, not its number of days, inside of lists and of other maps too."""
    rows = spark.sql(
        "SELECT array(map(DATE'2026-01-02', 1)) AS a, map('k', map(TIMESTAMP_NTZ'2026-01-02 10:00:00', 2)) AS m, map(5, 6) AS n"
    )
    document = rows.select(json_document(["a", "m", "n"], rows.schema).alias("value")).collect()[0]["value"]
    assert document == '{"a":[{"2026-01-02":1}],"m":{"k":{"2026-01-02T10:00:00.000000":2}},"n":{"5":6}}'
