"""Every type through every output, read back by a reader of others, in several zones,
against a plain Python model.

CI runs the session's zone with another one in Python and a third one in the JVM; ``make trials``
runs all combinations of the zones in `ZONES` (BARNABAS_ZONES=all).
"""

import base64
import contextlib
import datetime
import itertools
import json
import math
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from support.needs import missing
from support.opensearch_stand_in import running_stand_in
from support.postgres_server import running_postgres

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
psycopg = pytest.importorskip("psycopg")

from barnabas.pipelines.checks.trial import preview_rows  # noqa: E402
from barnabas.pipelines.dashboard.charts import draw_chart  # noqa: E402
from barnabas.pipelines.dashboard.results import ResultReader, readable_sinks  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.specification.charts import Chart  # noqa: E402
from barnabas.pipelines.values.texts import json_values  # noqa: E402

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")
COMBINATIONS = (
    list(itertools.product(ZONES, ZONES, ZONES))
    if os.environ.get("BARNABAS_ZONES") == "all"
    else [("Europe/Berlin", "America/St_Johns", "Asia/Kathmandu")]
)
"""The zones of the session, of Python, and of the JVM."""

INSTANTS = [
    "1800-01-01T00:00:00Z",  # local mean time: +00:53:28 in Berlin, -03:30:52 in St John's
    "1582-10-10T12:00:00Z",  # a day that the Julian calendar's end left out
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "1970-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999Z",
    "2026-03-29T00:59:59.999999Z",  # Berlin's clocks go forward
    "2026-03-29T01:00:00Z",
    "2026-10-25T00:30:00Z",  # and back: 02:30 twice
    "2026-10-25T01:30:00Z",
    "2026-03-08T05:30:00Z",  # St John's, whose clocks go forward at 05:30 in UTC
    "2026-11-01T04:00:00.000001Z",
    "2026-11-01T05:00:00Z",
    "1935-03-30T03:30:52Z",  # the end of local mean time in St John's
]
LOCAL = [
    "1800-01-01T00:00:00",
    "2026-03-29T02:30:00",  # which Berlin's clocks leave out
    "2026-10-25T02:30:00",  # which they show twice
    "2026-03-08T02:15:00",  # the same in St John's
    "2026-11-01T01:15:00",
    "1970-01-01T00:00:00",
    "0100-01-01T00:00:00.000001",
    "9999-12-30T00:00:00",
]
DECIMALS = ["0", "12345678901234567890.123456789012345678", "-0.000000000000000001", "0.1", "99999999999999999999"]
DOUBLES = [0.1, -0.0, 1e300, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 1e16, 123456789.0]
WHOLE = [2**63 - 1, -(2**63), 0, 2**53 + 1, -1]
TEXTS = ["", "a", "\u00e9\u0301\U0001f600", 'a"b\\c\n\t', "\u2028", "NaN", "null", "2026-01-01", "\\u0000", "{}", "12"]
BYTES = [b"", bytes(range(256)), b"\xff", b"a"]
KINDS = {
    "id": "int",
    "at": "timestamp",
    "here": "timestamp",
    "clock": "timestamp_ntz",
    "day": "date",
    "small": "decimal(10,2)",
    "wide": "decimal(38,18)",
    "d": "double",
    "f": "float",
    "tiny": "tinyint",
    "short": "smallint",
    "big": "bigint",
    "yes": "boolean",
    "bytes": "binary",
    "word": "string",
    "times": "array<timestamp>",
    "inner": "struct<at: timestamp, clock: timestamp_ntz, day: date, wide: decimal(38,18), d: double, bytes: binary, word: string>",
    "named": "map<string, timestamp>",
    "deep": "array<struct<day: date, amounts: map<string, decimal(10,2)>>>",
}
DERIVED = {
    "by_time": "if(at is null, null, map(at, id))",
    "by_day": "if(day is null, null, map(day, at))",
    "by_bytes": "if(bytes is null, null, map(bytes, id))",
    "by_clock": "if(clock is null, null, map(clock, array(map(day, id))))",
    "by_amount": "if(small is null, null, map(small, id))",
}
"""Maps with other keys than texts, which JSON does not have."""
Row = dict[str, Any]
WIDE = Context(prec=60)


def model(zone: str) -> list[Row]:
    """The rows as Python has them.

    A text without a zone is of the session's; of two instants it is the first one."""
    rows = []
    for number in range(len(INSTANTS)):
        at = datetime.datetime.fromisoformat(INSTANTS[number])
        local = datetime.datetime.fromisoformat(LOCAL[number % len(LOCAL)])
        row: Row = {
            "id": number,
            "at": at,
            "here": local.replace(tzinfo=ZoneInfo(zone)).astimezone(datetime.UTC),
            "clock": local,
            "day": at.date(),
            "small": Decimal(number - 5) + Decimal("0.10"),
            "wide": Decimal(DECIMALS[number % len(DECIMALS)]).quantize(Decimal("1e-18"), context=WIDE),
            "d": DOUBLES[number % len(DOUBLES)],
            "f": struct.unpack("f", struct.pack("f", number / 10))[0],
            "tiny": (127, -128)[number % 2],
            "short": (32767, -32768)[number % 2],
            "big": WHOLE[number % len(WHOLE)],
            "yes": number % 3 == 0,
            "bytes": BYTES[number % len(BYTES)],
            "word": TEXTS[number % len(TEXTS)],
            "times": [at, None, local.replace(tzinfo=datetime.UTC)],
            "named": {"": at, "b": None},
            "deep": [{"day": at.date(), "amounts": {"x": Decimal("1.50"), "y": None}}, None],
        }
        row["inner"] = {name: row[name] for name in ("at", "clock", "day", "wide", "d", "bytes", "word")}
        rows.append(row)
    empty = {**dict.fromkeys(KINDS), "id": len(rows)}
    hollow = {
        **empty,
        "id": len(rows) + 1,
        "times": [],
        "named": {},
        "deep": [],
        "inner": dict.fromkeys(rows[0]["inner"]),
    }
    for row in (*rows, empty, hollow):
        row["by_time"] = None if row["at"] is None else {row["at"]: row["id"]}
        row["by_day"] = None if row["day"] is None else {row["day"]: row["at"]}
        row["by_bytes"] = None if row["bytes"] is None else {row["bytes"]: row["id"]}
        row["by_clock"] = None if row["clock"] is None else {row["clock"]: [{row["day"]: row["id"]}]}
        row["by_amount"] = None if row["small"] is None else {row["small"]: row["id"]}
    return [*rows, empty, hollow]


def time_text(value: datetime.datetime) -> str:
    """As the reference has it."""
    text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
    return text if value.tzinfo is None else text + "Z"


def sent(value: Any) -> Any:
    """A value in a record's JSON."""
    if isinstance(value, datetime.datetime):
        return time_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.date | Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    if isinstance(value, dict):
        return {name: sent(each) for name, each in value.items()}
    return [sent(each) for each in value] if isinstance(value, list) else value


def record(row: Row, clock: datetime.datetime | None) -> bytes:
    """The row as a record; ``here`` is written without a zone."""
    value = {name: row[name] for name in KINDS} | {"here": clock}
    return json.dumps({name: sent(each) for name, each in value.items() if each is not None}).encode()


def in_json(value: Any, *, decimals: Callable[[Decimal], Any]) -> Any:
    """What a document holds: texts for times and bytes, base64; the keys of maps are texts."""
    if isinstance(value, Decimal):
        return decimals(value)
    if isinstance(value, dict):
        return {_key(name): in_json(each, decimals=decimals) for name, each in value.items()}
    if isinstance(value, list):
        return [in_json(each, decimals=decimals) for each in value]
    return sent(value)


def _key(value: Any) -> str:
    return str(sent(value))


def as_database(value: Any) -> Any:
    """A nested value as a JSON document; others have a type of the database's."""
    return in_json(value, decimals=str) if isinstance(value, list | dict) else value


def as_postgres(value: Any) -> Any:
    """The same; the numbers of ``jsonb`` have no -0.0."""
    return _without_negative_zero(as_database(value)) if isinstance(value, list | dict) else value


def _without_negative_zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_negative_zero(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_without_negative_zero, value))
    return value + 0.0 if isinstance(value, float) else value


def as_sqlite(value: Any) -> Any:
    """Times and decimals are texts, booleans whole numbers; SQLite has neither NaN nor -0.0."""
    if isinstance(value, float):
        return None if math.isnan(value) else value + 0.0
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, bytes) else in_json(value, decimals=str)


def same(found: Any, expected: Any) -> bool:
    """Equal in type and value: -0.0 is not 0.0, NaN is NaN, and an instant has a zone.

    ``jsonb`` orders names by length."""
    if isinstance(expected, dict):
        is_dict = isinstance(found, dict) and set(map(type, found)) == set(map(type, expected))
        return is_dict and found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in found)
    if isinstance(expected, list):
        is_list = isinstance(found, list) and len(found) == len(expected)
        return is_list and all(map(same, found, expected))
    if isinstance(expected, datetime.datetime) and isinstance(found, datetime.datetime):
        return found == expected and (found.tzinfo is None) == (expected.tzinfo is None)
    if isinstance(expected, float):
        return isinstance(found, float | int) and struct.pack("d", found) == struct.pack("d", expected)
    return type(found) is type(expected) and found == expected


FLOW = """
name = "matrix"
checkpoint = "{folder}/state"

[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
bad_rows_topic = "{bad}"

[source.format]
type = "json"
columns = {{ {columns} }}

[transform]
derive = {{ {derived} }}
"""


def sinks(folder: Path, topic: str, opensearch: str, postgres: str | None) -> str:
    """All outputs of rows."""
    kinds = {
        "sqlite": f'path = "{folder}/sqlite"\ntable = "t"',
        "search": f'path = "{folder}/search"\ntable = "t"\ntext = ["word"]',
        "duckdb": f'path = "{folder}/duckdb"\ntable = "t"',
        "parquet": f'path = "{folder}/parquet"',
        "delta": f'path = "{folder}/delta"',
        "topic": f'topic = "{topic}"',
        "opensearch": f'url = "{opensearch}"\nindex = "t"',
    }
    if postgres:
        kinds["postgresql"] = f'url = "{postgres}"\ntable = "t"'
    return "".join(f'\n[[sinks]]\ntype = "{kind}"\n{fields}\n' for kind, fields in kinds.items())


def flow_text(folder: Path, bootstrap: str, topic: str, bad: str) -> str:
    columns = ", ".join(f'{name} = "{kind}"' for name, kind in KINDS.items())
    derived = ", ".join(f'{name} = "{text}"' for name, text in DERIVED.items())
    return FLOW.format(folder=folder, bootstrap=bootstrap, topic=topic, bad=bad, columns=columns, derived=derived)


def by_id(names: list[str], rows: Any) -> dict[int, Row]:
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return {row["id"]: row for row in found}


def of_arrow(table: Any) -> dict[int, Row]:
    return {row["id"]: row for row in table.to_pylist(maps_as_pydicts="strict")}


def of_sqlite(path: Path) -> dict[int, Row]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT * FROM t")
        return by_id([each[0] for each in found.description], found)


def with_documents(found: dict[int, Row]) -> dict[int, Row]:
    """The rows with what stands in columns of JSON."""
    nested = [name for name, kind in KINDS.items() if "<" in kind] + list(DERIVED)
    return {
        number: {**row, **{name: None if row[name] is None else json.loads(row[name]) for name in nested}}
        for number, row in found.items()
    }


def of_duckdb(path: Path) -> dict[int, Row]:
    with duckdb.connect(str(path), read_only=True) as connection:
        # Python has no time of the year 10000 in another zone.
        connection.execute("SET TimeZone = 'UTC'")
        return with_documents(of_arrow(connection.sql("SELECT * FROM t").to_arrow_table()))


def of_postgres(url: str) -> dict[int, Row]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        # Psycopg shortens floats of 32 bits.
        found = connection.execute("SELECT *, f::float8 AS f FROM t")
        return by_id([each.name for each in found.description], found)


def of_topic(messages: list[Any]) -> dict[int, Row]:
    rows = [json.loads(each.value(), parse_float=Exact) for each in messages]
    return {row["id"]: row for row in rows}


class Exact(Decimal):
    """A number of JSON with a point or an exponent, with its digits."""


def is_in_topic(found: Any, expected: Any) -> bool:
    """As `same`, for a topic's value: its numbers are JSON's."""
    if isinstance(expected, dict | list):
        pairs = zip(found, expected, strict=True) if isinstance(expected, list) else ()
        if isinstance(expected, dict):
            return list(found) == list(map(_key, expected)) and all(map(is_in_topic, found.values(), expected.values()))
        return isinstance(found, list) and all(is_in_topic(a, b) for a, b in pairs)
    if isinstance(expected, Decimal):
        return isinstance(found, Decimal | int) and Decimal(found) == expected
    if isinstance(expected, float) and math.isfinite(expected):
        return isinstance(found, Decimal) and (same(float(found), expected) or same(_of_32_bits(found), expected))
    return same(found, sent(expected))


def _of_32_bits(value: Decimal) -> float:
    """The nearest number of the type float, whose shortest text a topic has."""
    with contextlib.suppress(OverflowError):
        return float(struct.unpack("f", struct.pack("f", value))[0])
    return math.inf


@pytest.fixture(scope="module")
def postgres() -> Iterator[str | None]:
    if missing(("initdb", "pg_ctl")):
        yield None
        return
    with running_postgres() as server:
        yield server.url


@pytest.fixture
def in_zones(spark: Any) -> Iterator[Callable[[str, str, str], None]]:
    """Sets the zone of the session, of Python, and of the JVM, until the end of the test."""
    zones = spark._jvm.java.util.TimeZone
    before = os.environ.get("TZ"), zones.getDefault()

    def set_zones(session: str, python: str, java: str) -> None:
        spark.conf.set("spark.sql.session.timeZone", session)
        os.environ["TZ"] = python
        time.tzset()
        zones.setDefault(zones.getTimeZone(java))

    yield set_zones
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    if before[0] is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before[0]
    time.tzset()
    zones.setDefault(before[1])


def differing(
    output: str,
    found: dict[int, Row],
    rows: list[Row],
    expected: Callable[[Any], Any],
    equal: Callable[..., bool] = same,
) -> list[str]:
    """The cells that hold another value than the model."""
    assert sorted(found) == [row["id"] for row in rows], (output, sorted(found))
    return [
        f"{output}, {KINDS.get(name, 'map')} {name}, row {row['id']}: {found[row['id']][name]!r}, not {wanted!r}"
        for row in rows
        for name in (*KINDS, *DERIVED)
        for wanted in [expected(row[name])]
        if not equal(found[row["id"]][name], wanted)
    ]


@pytest.mark.parametrize("zones", COMBINATIONS, ids=lambda zones: ", ".join(zones))
def test_every_output_holds_every_value_whatever_the_zones_are(
    cluster: Any,
    spark: Any,
    tmp_path: Path,
    postgres: str | None,
    in_zones: Callable[[str, str, str], None],
    record_property: Callable[[str, Any], None],
    zones: tuple[str, str, str],
) -> None:
    """Instants are the same in all zones; only a text without a zone is of the session's."""
    in_zones(*zones)
    rows = model(zones[0])
    source, target, bad = cluster.topic(1), cluster.topic(1), cluster.topic(1)
    clocks = [datetime.datetime.fromisoformat(LOCAL[n % len(LOCAL)]) for n in range(len(INSTANTS))] + [None, None]
    cluster.produce(source, [(None, record(row, clock)) for row, clock in zip(rows, clocks, strict=True)])
    text = flow_text(tmp_path, cluster.bootstrap, source, bad)
    with running_stand_in() as opensearch:
        flow = spec.parse(text + sinks(tmp_path, target, opensearch.url, postgres), file=str(tmp_path / "flow.toml"))
        summary = run_on(spark, flow)
        documents = {each["id"]: each for each in opensearch.documents.values()}
    assert (summary["rows"], summary["bad_rows"]) == (len(rows), 0), summary
    previewed = preview_rows(spark, flow, "results", 100)
    exact: list[tuple[str, dict[int, Row], Callable[[Any], Any]]] = [
        ("sqlite", with_documents(of_sqlite(tmp_path / "sqlite")), as_sqlite),
        ("search", with_documents(of_sqlite(tmp_path / "search")), as_sqlite),
        ("duckdb", of_duckdb(tmp_path / "duckdb"), as_database),
        ("parquet", of_arrow(pq.read_table(tmp_path / "parquet")), lambda value: value),
        ("delta", of_arrow(deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()), lambda value: value),
        ("opensearch", documents, lambda value: in_json(value, decimals=str)),
        ("preview", {row["id"]: row for row in json_values(previewed)}, lambda value: in_json(value, decimals=str)),
    ]
    if postgres:
        exact.append(("postgresql", of_postgres(postgres), as_postgres))
    differences = [each for output in exact for each in differing(*output[:2], rows, output[2])]
    differences += differing("topic", of_topic(cluster.read(target)), rows, lambda value: value, is_in_topic)
    results = {row["id"]: row["at"] for row in rows}
    for number, sink in readable_sinks(flow.sinks):  # as a dashboard reads and draws them
        table = ResultReader(sink).read()
        read = dict(zip(table["id"].to_pylist(), table["at"].cast(pa.timestamp("us", "UTC")).to_pylist(), strict=True))
        differences += [
            f"results of sink {number}: {read[each]!r}" for each in read if not same(read[each], results[each])
        ]
        json.dumps(draw_chart(Chart("Rows", "table", "", ()), table), allow_nan=False)
    assert not differences, "\n".join(differences[:40])
    record_property("cells", (len(exact) + 1) * len(rows) * (len(KINDS) + len(DERIVED)))
