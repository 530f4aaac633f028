"""Values that JSON does not have, in documents that commands print."""

import datetime
import decimal
import json
from typing import Any

import pytest

from barnabas.pipelines.values.texts import json_values

AT = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (decimal.Decimal("0.10"), "0.10"),
        (AT, "2013-01-01T05:00:00.000000Z"),
        (AT.replace(tzinfo=None), "2013-01-01T05:00:00.000000"),
        (AT.date(), "2013-01-01"),
        (b"\xff", "/w=="),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (datetime.timedelta(days=1, seconds=1), "1 day, 0:00:01"),
        (datetime.time(1, 2), "01:02:00"),
        (None, None),
        (2**63, 2**63),
        (True, True),
    ],
)
def test_each_value_has_one_form_at_every_depth(value: Any, expected: Any) -> None:
    """In a row, in a list, in a struct and in a map with keys of other types, as
    outputs have them."""
    row = {"a": value, "list": [value], "struct": {"in": [{"b": value}]}, "map": {1: value, AT: value}}
    found = json.loads(json.dumps(json_values([row]), allow_nan=False))
    assert found == [
        {
            "a": expected,
            "list": [expected],
            "struct": {"in": [{"b": expected}]},
            "map": {"1": expected, "2013-01-01T05:00:00.000000Z": expected},
        }
    ]


def test_a_value_that_python_cannot_hold_hides_no_other_row() -> None:
    """A time beyond the year 9999, and a text that is not UTF-8."""
    pa = pytest.importorskip("pyarrow")
    from barnabas.pipelines.values.arrow_values import shown_rows

    text = pa.array([b"a\xff", b"b"], pa.binary()).view(pa.string())
    far = pa.array([2**60, 0], pa.timestamp("us"))
    rows = shown_rows(pa.table({"text": text, "far": far, "n": [1, 2]}))
    assert [row["n"] for row in rows] == [1, 2]
    assert (rows[0]["text"], rows[1]["text"]) == (r"\x61ff", "b")
    assert (rows[0]["far"], rows[1]["far"].year) == (f"{2**60} timestamp[us]", 1970)
