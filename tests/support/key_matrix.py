"""Keys of all types in all outputs, beside a dictionary of Python's that says what must be there.

A cell is an output x a type of key x the key's columns x what happens to the rows (`STEPS`). Values
that are equal by the rule of `barnabas.pipelines.frames.keys` reach outputs in one form; the flows
of tests/spark/test_spark_keys.py bring them in several.
"""

import base64
import datetime
import json
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from barnabas.pipelines.outputs.table import DELETION_MARK, OutputTable

UTC = datetime.UTC
IS_WHOLE = os.environ.get("BARNABAS_KEYS") == "all"
"""Whether all cells are tried, and not a sample of them."""
LONG = "x" * 1500
RANDOM = "".join(chr(random.Random(1).randrange(0x4E00, 0x9FFF)) for _ in range(800))
"""No database makes it shorter."""


@dataclass(frozen=True)
class KeyType:
    """A type of key: its names in Spark and Arrow, and values that are different."""

    spark: str
    arrow: pa.DataType
    values: tuple[Any, ...]


KEY_TYPES = {
    "null, NaN, -0.0": KeyType(
        "double", pa.float64(), (None, math.nan, 0.0, 1.5, 5e-324, 0.1, math.inf, -math.inf, 1e16)
    ),
    "float": KeyType("float", pa.float32(), (None, math.nan, 0.0, 0.5, -math.inf)),
    "empty text, long text": KeyType(
        "string",
        pa.string(),
        (
            None,
            "",
            " ",
            "a",
            "A",
            "a ",
            "\u00e9",
            "e\u0301",
            "NaN",
            "null",
            "1",
            "01",
            LONG,
            LONG + "y",
            RANDOM,
            "\\x80",
        ),
    ),
    "U+0000": KeyType("string", pa.string(), ("a", "a\0", "a\0b", "\0", "\0\0", "\ufffd", "a\ufffd", "")),
    "binary": KeyType(
        "binary", pa.binary(), (None, b"", b"a", b"\x80", b"\x81", b"\xc2\x80", b"\0", b"\0\0", b"\xff" * 100)
    ),
    "decimal": KeyType(
        "decimal(20,3)",
        pa.decimal128(20, 3),
        (None, *map(Decimal, ("0.000", "1.500", "-1.500", "0.001", "99999999999999999.000"))),
    ),
    "timestamp": KeyType(
        "timestamp",
        pa.timestamp("us", "UTC"),
        (
            None,
            datetime.datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
            datetime.datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
            datetime.datetime(1800, 1, 1, tzinfo=UTC),
            datetime.datetime(1, 1, 1, tzinfo=UTC),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime.datetime(2026, 10, 25, 1, 30, 0, 1, tzinfo=UTC),
        ),
    ),
    "timestamp_ntz": KeyType(
        "timestamp_ntz",
        pa.timestamp("us"),
        (None, datetime.datetime(2026, 3, 29, 2, 30), datetime.datetime(1800, 1, 1)),  # noqa: DTZ001
    ),
    "date": KeyType("date", pa.date32(), (None, datetime.date(2026, 1, 1), datetime.date(1, 1, 1))),
    "boolean": KeyType("boolean", pa.bool_(), (None, True, False)),
    "bigint": KeyType("bigint", pa.int64(), (None, 0, -1, 2**63 - 1, -(2**63), 2**53 + 1)),
}
KEYS = (("k",), ("k", "o"), ("o", "k"))
"""The columns of keys; with a second one, a boolean, a null may stand before and
behind other values."""
TRIED_KEYS = KEYS if IS_WHOLE else (KEYS[0], KEYS[2])
OTHERS = (None, True, False)
STEPS = ("insert", "again", "update", "delete", "two runs")
Model = dict[tuple[str, ...], int]


def schema_of(kind: KeyType, key: tuple[str, ...]) -> pa.Schema:
    """The columns of rows: the key, and a figure."""
    types = {"k": kind.arrow, "o": pa.bool_()}
    return pa.schema([*((name, types[name]) for name in key), ("v", pa.int64())])


def types_of(kind: KeyType, key: tuple[str, ...]) -> dict[str, str]:
    """The same for Spark."""
    types = {"k": kind.spark, "o": "boolean"}
    return {**{name: types[name] for name in key}, "v": "bigint"}


def keys_of(kind: KeyType, key: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """All keys of a type."""
    if key == ("k",):
        return [(value,) for value in kind.values]
    pairs = [(value, other) for value in kind.values for other in OTHERS]
    return pairs if key == ("k", "o") else [(other, value) for value, other in pairs]


def canonical(value: Any) -> str:
    """A value as a text that is equal for equal values only; -0.0 is not what must be stored."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"bytes {bytes(value).hex()}"
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, Decimal):
        return f"decimal {value.normalize() + 0:f}"
    if isinstance(value, datetime.datetime):
        return f"time {value.astimezone(UTC) if value.tzinfo else value}"
    return f"{type(value).__name__} {value}"


def as_native(value: Any) -> Any:
    """A key in outputs with Arrow's types."""
    return value


def as_sqlite(value: Any) -> Any:
    """A key in SQLite: times and decimals are texts, booleans numbers, and NaN is a text."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if value.tzinfo else text
    return str(value) if isinstance(value, datetime.date | Decimal) else value


def of_document(value: Any, kind: KeyType) -> Any:
    """What a value of a JSON document stands for."""
    if value is None or pa.types.is_string(kind.arrow) or pa.types.is_integer(kind.arrow):
        return value
    if pa.types.is_binary(kind.arrow):
        return base64.b64decode(value)
    if pa.types.is_floating(kind.arrow):
        return float(value)
    if pa.types.is_decimal(kind.arrow):
        return Decimal(value)
    if pa.types.is_timestamp(kind.arrow):
        return datetime.datetime.fromisoformat(value)
    return datetime.date.fromisoformat(value) if pa.types.is_date(kind.arrow) else value


def spellings(value: Any) -> list[str]:
    """JSON of equal values: zeros with and without a sign, decimals with and without zeros,
    one instant in two zones."""
    if isinstance(value, float) and not math.isfinite(value):
        return [json.dumps("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")]
    if isinstance(value, float):
        return ["0.0", "-0.0"] if value == 0 else [repr(value)]
    if isinstance(value, Decimal):
        return [f"{value.normalize() + 0:f}", f"{value:f}"]
    if isinstance(value, datetime.datetime) and value.tzinfo:
        zones = (UTC, datetime.timezone(datetime.timedelta(hours=2)))
        far = value.year in (1, 9999)
        return [json.dumps(value.astimezone(zone).isoformat()) for zone in (zones[:1] if far else zones)]
    if isinstance(value, bytes):
        return [json.dumps(base64.b64encode(value).decode())]
    if isinstance(value, datetime.date):
        return [json.dumps(value.isoformat())]
    return [json.dumps(value)]


@dataclass
class Place:
    """An output of the matrix, how its rows are read back, and the form of its keys."""

    open: Callable[[KeyType, tuple[str, ...]], OutputTable]
    read: Callable[[tuple[str, ...]], list[tuple[Any, ...]]]
    """The rows: the key's columns, then the figure."""
    form: Callable[[Any], Any]


def run_cells(place: Place, kind: KeyType, key: tuple[str, ...]) -> Iterator[tuple[str, Model, Model]]:
    """For each step what is there after it, and what must be there."""
    model: Model = {}
    keys = keys_of(kind, key)
    schema = schema_of(kind, key).append(pa.field(DELETION_MARK, pa.bool_()))
    epoch, query = 0, "query"

    def apply(opened: OutputTable, changes: list[tuple[tuple[Any, ...], int | None]]) -> None:
        nonlocal epoch
        rows = [
            {**dict(zip(key, each, strict=True)), "v": figure or 0, DELETION_MARK: figure is None}
            for each, figure in changes
        ]
        opened.apply(pa.Table.from_pylist(rows, schema), "flow", query, epoch)
        epoch += 1
        for each, figure in changes:
            name = tuple(canonical(place.form(value)) for value in each)
            if figure is None:
                model.pop(name, None)
            else:
                model[name] = figure

    def found() -> Model:
        rows = place.read(key)
        there = {tuple(map(canonical, row[:-1])): row[-1] for row in rows}
        assert len(there) == len(rows), f"rows of one key: {rows}"
        return there

    opened = place.open(kind, key)
    apply(opened, [(each, 1) for each in keys])
    yield "insert", found(), model
    epoch -= 1
    apply(opened, [(each, 1) for each in keys])
    query = "that of a new checkpoint"
    apply(opened, [(each, 2) for each in keys])
    yield "again", found(), model
    for number in range(3):
        apply(opened, [(each, 10 + number) for each in keys[number::3]])
    yield "update", found(), model
    for number in range(2):
        apply(opened, [(each, None if at % 2 else 20) for at, each in enumerate(keys) if at % 4 // 2 == number])
    yield "delete", found(), model
    opened.close()
    opened = place.open(kind, key)
    apply(opened, [(each, 30) for each in keys[::-1]])
    apply(opened, [(each, None) for each in keys[::3]])
    opened.close()
    yield "two runs", found(), model
