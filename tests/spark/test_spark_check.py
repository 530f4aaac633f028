"""``barnabas pipeline check`` finds in one run what Spark would refuse, with file,
line and field."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: E402, N812  # its name in every Spark program

from barnabas.pipelines.checks.analysis import analyse_flow, find_problems  # noqa: E402
from barnabas.pipelines.frames.plans import (  # noqa: E402
    expressions_of,
    implicit_casts,
    may_raise,
    stateful_operations,
)
from barnabas.pipelines.frames.transforms import record_schema  # noqa: E402
from barnabas.pipelines.frames.views import build_views  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
FLOW = """\
name = "weather"
checkpoint = "checkpoint"
[source]
bootstrap_servers = "localhost:9092"
topics = ["t"]
[source.format]
type = "json"
columns = {temp = "double", name = "string", at = "timestamp", day = "date"}
timestamp_format = "yyyy-MM-dd"
[transform]
derive = {warm = "temp > 20", wind = "warm and true"}
where = "temp > 0"
select = ["at", "name", "temp", "warm"]
[aggregate]
group_by = ["name"]
time = "at"
window = "10 minutes"
watermark = "1 minute"
compute = {total = "sum(temp)", n = "count(*)"}
[[sinks]]
type = "topic"
topic = "out"
"""

TABLE = """
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


def problems_of(spark: Any, *changes: tuple[str, str]) -> list[str]:
    """The lines that ``check`` prints for the flow after the changes."""
    text = FLOW
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    flow = spec.parse(text, file="f.toml")
    return [str(flow.places.error(each.field, each.message)) for each in find_problems(spark, flow)]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_every_example_passes(spark: Any, path: Path) -> None:
    """Expressions, types and patterns too."""
    assert find_problems(spark, spec.load(path)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"sum(temp)"', '"sum((temp)"', "f.toml:19: aggregate.compute.total: syntax error"),
        ('"sum(temp)"', '"smu(temp)"', "f.toml:19: aggregate.compute.total: there is no function smu; did you mean sum?"),
        ('"sum(temp)"', '"temp + 1"', 'f.toml:19: aggregate.compute.total: the non-aggregating expression "temp"'),
        ('"sum(temp)"', '"count( DISTINCT temp)"', "f.toml:19: aggregate.compute.total: counts distinct values, which streams cannot: take approx_c"),
        ('"temp > 20"', '"cast(name as array<int>)[0] > 1"', 'f.toml:11: transform.derive.warm: cannot resolve "name" due to data type mismatch: cannot cast "STRING" to "ARRAY<INT>". To read JSON from a text take from_json(text, \'ARRAY<INT>\'); split makes'),
        ('"temp > 20"', '"tmp > 20"', "f.toml:11: transform.derive.warm: there is no column tmp; did you mean temp?"),
        ('"temp > 20"', '"at + true"', 'f.toml:11: transform.derive.warm: cannot resolve "(at + true)"'),
        ('"temp > 0"', '"temp + 1"', "f.toml:12: transform.where: "),
        ('["at", "name", "temp", "warm"]', '["at", "name", "temp", "wram"]', "f.toml:13: transform.select: there is no column wram"),
        ('group_by = ["name"]', 'group_by = ["nome"]', "f.toml:15: aggregate.group_by: there is no column nome; did you mean name?"),
        ('time = "at"', 'time = "name"', 'f.toml:16: aggregate.time: the event time `name` has the invalid type "STRING"'),
        ('"yyyy-MM-dd"', '"qqqq"', "f.toml:9: source.format.timestamp_format: unrecognized datetime pattern: qqqq"),
        ('timestamp_format = "yyyy-MM-dd"', 'date_format = "qqqq"', "f.toml:9: source.format.date_format: unrecognized datetime pattern: qqqq"),
        ('temp = "double"', 'temp = "struct<a:doubel>"', "f.toml:8: source.format.columns.temp: unsupported data type"),
    ],
)  # fmt: skip
def test_what_spark_would_refuse_is_found_with_its_line_and_field(spark: Any, old: str, new: str, problem: str) -> None:
    """Syntax, functions, columns, types, patterns, and what exists for tables but
    not for streams."""
    assert problems_of(spark)[:1] == []
    found = problems_of(spark, (old, new))
    assert found
    assert found[0].startswith(problem)
    assert "SQLSTATE" not in found[0]


def test_what_may_end_a_flow_and_texts_that_are_taken_for_numbers_are_warned_about(spark: Any) -> None:
    """With line and field; not for texts that fit, for casts that are written, and
    for what is tried."""

    def warnings_of(*changes: tuple[str, str]) -> list[str]:
        text = FLOW
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        flow = spec.parse(text, file="f.toml")
        analysis = analyse_flow(spark, flow)
        assert analysis.problems == []
        return [str(flow.places.error(each.field, each.message)) for each in analysis.warnings]

    assert warnings_of() == []
    assert warnings_of(
        ('"temp > 0"', "\"temp > 'abc' or at > '2026-01-01' or cast(name as int) > 1 or 1 / temp > 2\"")
    ) == [
        "f.toml:12: transform.where: takes the text 'abc' for a value of the type double, which it is not: it cannot be computed"
    ]
    (taken,) = warnings_of(('"temp > 20"', '"name > 20"'))
    assert taken.startswith("f.toml:11: transform.derive.warm: takes texts, name, for values of the type ")
    step = '[[steps]]\nname = "s"\n%s\n[aggregate]'
    of_record = step % 'derive = { p = "1 / temp" }'
    assert warnings_of(("[aggregate]", of_record), ("sum(temp)", "sum(temp / temp)")) == []
    query = (
        step % 'sql = "select *, 1 / temp as p, try_divide(1, temp) q, temp / 2 as h, to_timestamp(name) t from source"'
    )
    found = warnings_of(("[aggregate]", query), ("sum(temp)", "sum(temp / temp)"))
    assert [each.partition(" cannot be computed")[0] for each in found] == [
        "f.toml:16: steps[0].sql: ends the flow with the first row for which (1 / source.temp)",
        "f.toml:16: steps[0].sql: ends the flow with the first row for which to_timestamp(source.name)",
        "f.toml:22: aggregate.compute.total: ends the flow with the first row for which (source.temp / source.temp)",
    ]


def test_what_spark_adds_and_what_may_raise_is_known_of_each_way_to_write_it(spark: Any) -> None:
    """Casts as functions are written; functions that parse dates are asked in each
    PySpark; constants are computed."""
    rows = spark.createDataFrame([], "s string, n int, t timestamp, parts array<string>")

    def found(*texts: str) -> list[str]:
        expressions = expressions_of(rows.select(*[F.expr(text).alias(f"c{at}") for at, text in enumerate(texts)]))
        return [each.text for each in implicit_casts(expressions)] + [f"! {each}" for each in may_raise(expressions)]

    casts = ["int(s)", "double(s)", "date(s)", "timestamp(s)", "s::int", "cast(s as int)", "to_date(s)"]
    assert [found(text)[0][0] for text in casts] == ["!"] * len(casts), "an implicit cast comes first"
    assert found("int(s) + (s)") == ["s", "! CAST(s AS INT)", "! CAST(s AS BIGINT)"]
    assert found("nullif(s, 1)", "transform(parts, x -> x + 1)")[:2] == ["s", "x"]
    assert found("transform(parts, x -> 1 / int(x))") == ["! 1 / int(x)", "! int(x)"]
    assert found("n / (1 + 1)", "n / 2", "n % 3L", "n / 0.50", "n / cast(null as int)") == []
    assert [len(found(text)) for text in ("n / 0.00", "n / (1 - 1)", "n / n", "n / (1 / 0)")] == [1, 1, 1, 2]
    may_fail = ["to_date(s)", "to_date(s, 'yyyy')", "to_timestamp(s)", "to_timestamp(s, 'yyyy')", "unix_timestamp(s)"]
    may_fail += ["to_unix_timestamp(s)", "to_number(s, '9')", "parts[0]", "element_at(parts, 1)", "make_date(n, 1, 1)"]
    may_fail += ["make_timestamp(n, 1, 1, 1, 1, 1)"]
    assert [text for text in may_fail if not found(text)] == []
    tried = ["try_to_timestamp(s)", "try_to_number(s, '9')", "get(parts, 0)", "try_element_at(parts, 1)"]
    assert found(*tried, "to_date(t)", "to_timestamp(t)", "unix_timestamp(t)", "unix_timestamp()") == []
    assert found("explode(sequence(1, 10 div n))") == ["! (10 div n)"]


def test_what_may_raise_behind_an_explode_is_warned_about(spark: Any) -> None:
    """Its rows cannot be tried, in that step and in later ones."""
    steps = """[[steps]]
name = "words"
derive = {early = "1 / temp", word = "explode(split(name, ' '))", late = "2 / temp"}
[[steps]]
name = "long"
where = "3 / temp > 1"
[aggregate]"""
    flow = spec.parse(FLOW.replace("[aggregate]", steps).replace("sum(temp)", "sum(4 / temp)"), file="f.toml")
    analysis = analyse_flow(spark, flow)
    assert analysis.problems == []
    assert [each.field for each in analysis.warnings if "ends the flow" in each.message] == [
        "steps[0].derive.late",
        "steps[1].where",
        "aggregate.compute.total",
    ]


def test_types_that_tables_cannot_hold_are_found_before_the_run(spark: Any) -> None:
    """The difference of two times is an interval, and a null alone has no type."""
    text = FLOW.partition("[aggregate]")[0] + TABLE
    text = text.replace('timestamp_format = "yyyy-MM-dd"\n', "").replace(', wind = "warm and true"', "")
    text = text.replace('"temp > 20"', '"at - timestamp_seconds(0)"').replace(
        '"name", "temp"', '"name", "null as temp"'
    )
    flow = spec.parse(text, file="f.toml")
    found = [each.message for each in find_problems(spark, flow)]
    assert [each.partition(",")[0] for each in found] == ["cannot hold temp", "cannot hold warm"]
    assert "timestampdiff(SECOND, begin, end)" in found[1]


def test_all_problems_are_found_in_one_run_and_a_wrong_column_is_reported_once(spark: Any) -> None:
    """``wind`` uses ``warm``, which is wrong: only ``warm`` is reported."""
    found = problems_of(spark, ('"temp > 20"', '"tmp > 20"'), ('"sum(temp)"', '"smu(temp)"'))
    assert [line.split(": ")[1] for line in found] == ["transform.derive.warm", "aggregate.compute.total"]


def test_the_command_reports_problems_for_people_and_for_programs(tmp_path: Path) -> None:
    """Exit status 1, one line for each problem after those of progress, no stack trace of
    Spark's; the same as JSON."""
    path = tmp_path / "flow.toml"
    path.write_text(FLOW.replace("sum(temp)", "sum((temp)"))
    command = [sys.executable, "-m", "barnabas", "pipeline", "check", str(path)]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (plain.returncode, plain.stdout) == (1, "")
    *progress, problem = plain.stderr.splitlines()
    assert progress == ["starting Spark", "checking types and expressions"]
    assert problem.startswith(f"{path}:19: aggregate.compute.total: syntax error")
    found = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, timeout=120, check=False)
    report = json.loads(found.stdout)
    assert (report["valid"], report["problems"][0]["line"]) == (False, 19)
    assert report["problems"][0]["field"] == "aggregate.compute.total"


def test_keys_and_folders_of_types_that_cannot_be_compared_are_refused(spark: Any) -> None:
    """A map, a text that is compared by other rules than outputs', and bytes in the
    name of a folder."""
    head, _ = FLOW.replace(
        '["at", "name", "temp", "warm"]',
        '["array(map(name, temp)) as m", "name collate unicode_ci as c", "binary(name) as b"]',
    ).split("[aggregate]")
    flow = f"""{head}[[sinks]]
type = "delta"
path = "d"
key = ["m", "b"]
partition_by = ["b"]
[[sinks]]
type = "topic"
topic = "out"
key = ["c"]
"""
    found = [f"{each.field}: {each.message}" for each in find_problems(spark, spec.parse(flow))]
    assert found == [
        "sinks[0].partition_by: names b, which is of type binary, whose values do not come back from the names of folders: take a text, a whole "
        "number or a date",
        "sinks[0].key: names m, which is of type map<string,double>, whose values have no equality",
        "sinks[1].key: names c, which is a text of the collation UNICODE_CI, which outputs do not have: take `COLLATE UTF8_BINARY`",
    ]


def test_outputs_models_and_charts_name_columns_that_there_are(spark: Any) -> None:
    """The score is a column of sinks and charts, but not of what is learned from."""
    more = """
[[sinks]]
type = "opensearch"
url = "http://h"
index = "i"
text = ["nam"]
[[sinks]]
type = "delta"
path = "d"
partition_by = ["city"]
[model]
path = "m"
type = "linear_regression"
label = "totl > 1"
numbers = ["n", "score"]
test = "n +"
[[charts]]
title = "c"
x = "window_start"
y = ["score", "m"]
"""
    found = problems_of(spark, ('topic = "out"\n', 'topic = "out"\n' + more))
    shown = [line.split(": ", 1)[1] for line in found]
    assert shown[:2] == [
        "model.numbers: names score, which is no column of the results; there are window_start, window_end, name, total, n",
        "model.label: there is no column totl; did you mean total?",
    ]
    assert shown[2].startswith("model.test: ")
    assert shown[3] == "sinks[1].text: names nam, which is no column of the results; did you mean name?"
    assert shown[4].startswith("sinks[2].partition_by: names city, which is no column of the results")
    assert shown[5].startswith("charts[0].y: names m, which is no column of the results")
    assert len(shown) == 6


STATE = """
name = "state"
checkpoint = "state"
[sources.orders]
bootstrap_servers = "localhost:9092"
topics = ["orders"]
watermark = { time = "at", delay = "1 hour" }
format = { type = "json", columns = { id = "bigint", at = "timestamp", country = "string", city = "string", price = "double" } }
[sources.payments]
topics = ["payments"]
watermark = { time = "paid_at", delay = "1 hour" }
format = { type = "csv", columns = { order_id = "bigint", paid_at = "timestamp", other_id = "bigint" } }
[transform]
derive = { place = "upper(country)", big = "price > 100" }
where = "price > 0"
[[steps]]
name = "once"
from = "orders"
deduplicate = ["id"]
[[steps]]
name = "paid"
sql = "select o.*, p.paid_at from once o join payments p on p.order_id = o.id and p.paid_at between o.at and o.at + interval 1 hour"
[[steps]]
name = "places"
sql = "select place, window.start as since, sum(price) as total from paid group by place, window(at, '1 hour')"
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
key = ["place"]
"""


def test_changes_of_what_the_state_means_are_distinguished_from_others(spark: Any, tmp_path: Path) -> None:
    """Spark compares types only: of other groups of equal types it would mix old and new."""

    def operations(*change: str) -> list[str]:
        text = STATE.replace(*change) if change else STATE
        assert not change or STATE.count(change[0]) == 1

        def read(source: spec.Source) -> Any:
            return spark.readStream.schema(record_schema(source)).format("parquet").load(str(tmp_path))

        return stateful_operations(build_views(spark, spec.parse(text), read).results)

    before = operations()
    assert [each.split(" ")[0] for each in before] == ["Aggregate", "Join", "DeduplicateWithinWatermark"]
    same = [
        ('delay = "1 hour" }\nformat = { type = "json"', 'delay = "3 hours" }\nformat = { type = "json"'),
        ('where = "price > 0"', 'where = "price > 5"'),
        ('big = "price > 100"', 'big = "price > 200"'),
        ('price = "double"', 'price = "double", note = "string"'),
        ("sum(price) as total", "sum(price) as revenue"),
    ]
    assert all(operations(*change) == before for change in same)
    other = [
        ("upper(country)", "upper(city)"),
        ("by place, window(at, '1 hour')", "by place, window(at, '2 hours')"),
        ("sum(price)", "max(price)"),
        ("p.order_id = o.id", "p.other_id = o.id"),
        ('deduplicate = ["id"]', 'deduplicate = ["city"]'),
    ]
    assert [operations(*change) == before for change in other] == [False] * len(other)


def test_a_watermark_of_another_source_does_not_count(spark: Any) -> None:
    """A column of the same name is another time; without a watermark of its own
    state would grow for ever."""
    windows = (
        'from = "payments"\nderive = { at = "paid_at" }\n'
        'aggregate = { time = "at", window = "1 hour", compute = { n = "count(*)" } }\n'
    )
    text = (
        STATE[: STATE.index("[[steps]]")] + f'[[steps]]\nname = "hours"\n{windows}' + STATE[STATE.index("[[sinks]]") :]
    )
    text = text.replace('key = ["place"]', "")
    lacks = text.replace(
        'topics = ["payments"]\nwatermark = { time = "paid_at", delay = "1 hour" }', 'topics = ["payments"]'
    )
    assert find_problems(spark, spec.parse(text)) == []
    (problem,) = find_problems(spark, spec.parse(lacks))
    assert (problem.field, problem.message[:42]) == (
        "steps[0].aggregate.watermark",
        "is missing: at has none in these rows, onl",
    )
