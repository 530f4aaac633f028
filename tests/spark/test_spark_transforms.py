"""What flows do to rows, on small frames and without a cluster."""

import datetime
import json
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, ArithmeticException, PySparkException  # noqa: E402
from pyspark.sql import DataFrame  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812  # its name in every Spark program

from barnabas.pipelines.frames import transforms  # noqa: E402
from barnabas.pipelines.frames.attempts import every_row  # noqa: E402
from barnabas.pipelines.frames.expectations import is_met  # noqa: E402
from barnabas.pipelines.frames.keys import whole_texts, with_equal_keys  # noqa: E402
from barnabas.pipelines.frames.uncomputable import mark_uncomputable  # noqa: E402
from barnabas.pipelines.outputs.declared import LakeSink  # noqa: E402
from barnabas.pipelines.specification.row_steps import RowStep  # noqa: E402
from barnabas.pipelines.specification.spec import Aggregate, DatabaseSink, Expectation, Format, Transform  # noqa: E402

CSV = Format("csv", {"carrier": "string", "delay": "int"}, null="NA", required=("carrier",))


def records(spark: Any, *texts: str | None) -> Any:
    """Records of one partition, with these values."""
    rows = [(None, None if text is None else text.encode(), "t", 0, offset) for offset, text in enumerate(texts)]
    return spark.createDataFrame(rows, transforms.RECORD_SCHEMA)


def test_rows_that_do_not_fit_are_bad_and_all_others_good(spark: Any) -> None:
    """Too few columns, too many, a wrong type, no value, a required null."""
    parsed = transforms.parse_records(records(spark, "AA,5", "UA,NA", "AA", "AA,1,2", "AA,x", None, "NA,1"), CSV)
    good = transforms.good_rows(parsed).orderBy("source_offset").collect()
    assert [(row.carrier, row.delay, row.source_offset) for row in good] == [("AA", 5, 0), ("UA", None, 1)]
    bad = transforms.bad_messages(parsed, "flow").collect()
    assert [None if row.value is None else bytes(row.value) for row in bad] == [
        b"AA",
        b"AA,1,2",
        b"AA,x",
        None,
        b"NA,1",
    ]
    reasons = [{header.key: bytes(header.value).decode() for header in row.headers} for row in bad]
    assert reasons[0] == {
        "barnabas.flow": "flow",
        "barnabas.reason": "the value is no line of 2 fields, but of 1",
        "barnabas.source": "t-0-2",
        "barnabas.error": "MALFORMED",
    }
    assert [each["barnabas.reason"] for each in reasons[2:]] == [
        "column delay is x, which is no int",
        "the record has no value",
        "the required column carrier is null",
    ]


def test_a_row_is_bad_if_its_record_has_a_time_that_no_calendar_holds(spark: Any) -> None:
    """The source has null for such a time, Spark's connector a year far away; null is right for
    a record without a time."""
    schema = f"{transforms.RECORD_SCHEMA}, timestamp timestamp, timestampType int"
    at = "timestamp_micros({0})".format
    times = [(at(5_000_000), 0), (None, -1), (None, 0), (at(1_764_201_600_000_000_000), 1), (at(-(2**62)), 0)]
    frames = [
        spark.createDataFrame([(None, b"AA,5", "t", 0, number, None, kind)], schema).withColumn(
            "timestamp", F.expr(time or "cast(null as timestamp)")
        )
        for number, (time, kind) in enumerate(times)
    ]
    parsed = transforms.parse_records(reduce(DataFrame.union, frames), CSV, ["timestamp"])
    good = transforms.good_rows(parsed).orderBy("source_offset").select("source_offset", "source_timestamp").collect()
    assert [(row.source_offset, row.source_timestamp and row.source_timestamp.timestamp()) for row in good] == [
        (0, 5),
        (1, None),
    ]
    bad = [
        (row._barnabas_error, row._barnabas_bad)
        for row in parsed.where("_barnabas_bad is not null").select("_barnabas_error", "_barnabas_bad").collect()
    ]
    reason = (
        "the record's time is beyond the years 1 to 9999 (records have times in milliseconds; `barnabas tail` shows it)"
    )
    assert bad == [("MALFORMED", reason)] * 3


def test_a_line_that_does_not_fit_is_bad_whatever_the_delimiter(spark: Any) -> None:
    """Also one that means something else in a regular expression."""
    delimiters = "^\\[."
    formats = [Format("csv", {"a": "int", "b": "int"}, delimiter=each) for each in delimiters]
    parsed = [
        transforms.parse_records(records(spark, f"1{each.delimiter}2", f"1{each.delimiter}2{each.delimiter}3"), each)
        for each in formats
    ]
    rows = reduce(DataFrame.union, parsed).collect()
    assert [row._barnabas_bad or row.b for row in rows] == [2, "the value is no line of 2 fields, but of 3"] * 4


def test_counts_of_bad_rows_follow_no_text_of_the_records(spark: Any) -> None:
    """A record's name that reads as a reason counts once, as what it is."""
    how = Format("json", {"a": "int", "b": "int"})
    values = ['{"x is no JSON object, column a is 5": 1}', "[1]", '{"b": "x"}']
    parsed = transforms.parse_records(records(spark, *values), how)
    (counts,) = parsed.agg(*transforms.bad_counts(how)).collect()
    names = ("MALFORMED", "MALFORMED, no JSON object", "MALFORMED, no known column", "WRONG_TYPE")
    assert [counts[f"error:{name}"] for name in names] == [2, 1, 1, 1]
    assert (counts["column:a"], counts["column:b"]) == (0, 1)


def test_rows_for_which_an_expression_raises_are_bad(spark: Any) -> None:
    """In derived columns and the filter, where they share parts and give a column another value;
    what is after explode raises."""
    how = Format("json", {"id": "int", "price": "double", "text": "string"})
    values = [
        {"id": 2, "price": 8, "text": "3"},
        {"id": 0, "price": 1},
        {"id": 1, "price": 4, "text": "x"},
        {"id": 4, "price": 0},
    ]
    parsed = transforms.parse_records(records(spark, *map(json.dumps, values), "no JSON"), how)
    derive = {"Price": "price / id", "twice": "price * 2", "other": "price / id + 1", "number": "cast(text as int)"}
    shape = Transform(derive, where="1 / price > 0")
    marked = mark_uncomputable(parsed, [[RowStep("transform", shape)]])
    assert marked.schema == parsed.schema
    found = {row.source_offset: (row._barnabas_error, row._barnabas_bad) for row in marked.collect()}
    assert found == {
        0: (None, None),
        1: ("EXPRESSION", "the column Price cannot be computed: price / id"),
        2: ("EXPRESSION", "the column number cannot be computed: cast(text as int)"),
        3: ("EXPRESSION", "where cannot be computed: 1 / price > 0"),
        4: ("MALFORMED", "the value is no JSON object"),
    }
    assert marked.agg(*transforms.bad_counts(how)).collect()[0]["error:EXPRESSION"] == 3
    (row,) = transforms.shape_rows(transforms.good_rows(marked), shape).collect()
    assert (row.Price, row.twice, row.other, row.number) == (4, 8, 3, 3)
    exploding = Transform({"each": "explode(sequence(1, id))", "q": "1 / id"})
    assert mark_uncomputable(parsed, [[RowStep("transform", exploding)]]) is parsed
    check = [Expectation("dear", "price / id > 1", "source", "quarantine"), Expectation("e", "1 / id > 0", "source")]
    marked = transforms.mark_unexpected(parsed, check, "source")
    unmet = [row.source_offset for row in marked.where("_barnabas_error = 'NOT_EXPECTED'").collect()]
    assert unmet == [1, 3], "without a value, and with one that is too small"
    good = transforms.good_rows(parsed)
    assert [row.source_offset for row in good.where(is_met(check[1], every_row(good))).collect()] == [0, 2, 3]


def test_rows_for_which_an_expression_of_a_later_step_raises_are_bad(spark: Any) -> None:
    """As far as filters and expectations let them come: in derived columns, choices of columns, and
    what figures are made of."""
    how = Format("json", {"id": "int", "n": "int", "text": "string"})
    values = [
        {"id": 0, "n": 1, "text": "4"},  # good
        {"id": 1, "n": -1, "text": "x"},  # left out by the first step's filter
        # A bad column of the first step, which comes before its filter.
        {"id": 6, "n": 0, "text": "4"},
        {"id": 2, "n": 2, "text": "x"},  # a bad figure
        {"id": 3, "n": 3, "text": "7"},  # left out by an expectation
        {"id": 4, "n": 4, "text": "4"},  # a bad column of the second step
        {"id": 5, "n": 5, "text": "5"},  # bad in the other branch
    ]
    parsed = transforms.parse_records(records(spark, *map(json.dumps, values)), how)
    first = RowStep("transform", Transform({"n": "n * 10"}))
    second = RowStep("steps[0]", Transform({"r": "1000 / n"}, "n > 0"), (Expectation("e", "n <> 30", "a"),))
    third = RowStep("steps[1]", Transform(select=("text as id", "1 / (id - 4) as n", "*")))
    figures = Aggregate({"s": "round(sum(cast(id as int)), 1)", "c": "count(*) filter (where id > 0)"}, ("n",))
    other = RowStep("steps[2]", Transform(where="1 / (id - 5) < 9"))
    chains = [[first, second, third, RowStep("", aggregate=figures)], [first, second, other]]
    marked = mark_uncomputable(parsed, chains)
    assert marked.schema == parsed.schema
    assert marked.drop("_barnabas_bad", "_barnabas_error").collect() == (
        parsed.drop("_barnabas_bad", "_barnabas_error").collect()
    )
    found = {row.id: row._barnabas_bad for row in marked.where("_barnabas_error = 'EXPRESSION'").collect()}
    assert found == {
        2: "aggregate.compute.s cannot be computed: round(sum(cast(id as int)), 1)",
        4: "steps[1].select cannot be computed: 1 / (id - 4) as n",
        5: "steps[2].where cannot be computed: 1 / (id - 5) < 9",
        6: "steps[0].derive.r cannot be computed: 1000 / n",
    }
    figure = "sum(1 / (n - 4)) filter (where n <> 4)"
    for other, bad in (("count(*)", []), ("count(*) filter (where 1 / (n - 5) > 0)", [4, 5])):
        guarded = RowStep("", aggregate=Aggregate({"s": figure, "c": other}))
        marked = mark_uncomputable(parsed, [[guarded]])
        assert [row.id for row in marked.where("_barnabas_error = 'EXPRESSION'").orderBy("id").collect()] == bad, other
        assert transforms.aggregate_rows(transforms.good_rows(marked), guarded.aggregate).collect()
    harmless = [[RowStep("steps[0]", Transform({"a": "upper(text)", "b": "id"}, "n > 1.5 and text is not null"))]]
    assert mark_uncomputable(parsed, harmless) is parsed


@pytest.mark.parametrize("first", [{"select": ("explode(parts) as part",)}, {"derive": {"part": "explode(parts)"}}])
def test_a_filter_that_raises_behind_an_explode_ends_the_query(spark: Any, first: dict[str, Any]) -> None:
    """Its rows are not tried: one that was left out would be in no figure of bad rows."""
    how = Format("json", {"parts": "array<int>"})
    parsed = transforms.parse_records(records(spark, '{"parts": [1, 0]}'), how)
    steps = [RowStep("transform", Transform(**first)), RowStep("steps[0]", Transform(where="1 / part > 0"))]
    rows = transforms.good_rows(mark_uncomputable(parsed, [steps]))
    for step in steps:
        rows = transforms.shape_rows(rows, step.transform)
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        rows.collect()


def test_filters_of_later_steps_are_not_computed_for_bad_rows(spark: Any) -> None:
    """Also where all columns but some are chosen before, and derived columns and the
    filters have parts in common."""
    how = Format("json", {"id": "int", "n": "int", "text": "string"})
    values = [{"id": 1, "n": 2, "text": "3"}, {"id": 2, "n": 0, "text": "3"}, {"id": 3, "n": 2, "text": "x"}]
    parsed = transforms.parse_records(records(spark, *map(json.dumps, values)), how)
    steps = [
        RowStep("transform", Transform({"q": "8 / n", "number": "cast(text as int)"}, "8 / n > 1 and q > 0")),
        RowStep("steps[0]", Transform(select=("* except (id)",))),
        RowStep("steps[1]", Transform(where="q / n > 1 and 9 / n > 1 and cast(text as int) = 3", select=("q", "n"))),
    ]
    marked = mark_uncomputable(parsed, [steps, [*steps[:2], RowStep("steps[2]", Transform(where="1 / (n - 2) < 0"))]])
    found = [row._barnabas_bad for row in marked.orderBy("source_offset").collect()]
    assert found == [
        "steps[2].where cannot be computed: 1 / (n - 2) < 0",
        "the column q cannot be computed: 8 / n",
        "the column number cannot be computed: cast(text as int)",
    ]
    rows = transforms.good_rows(mark_uncomputable(parsed, [steps]))
    for step in steps:
        rows = transforms.shape_rows(rows, step.transform)
    with pytest.raises(AnalysisException, match="not a boolean"):
        transforms.shape_rows(transforms.good_rows(parsed), Transform(where="text"))
    codegen = "spark.sql.codegen.wholeStage"  # which Spark does without for wide formats
    for is_whole in ("true", "false"):
        spark.conf.set(codegen, is_whole)
        try:
            # A frame is planned once.
            assert [(row.q, row.n, row.source_offset) for row in rows.select("*").collect()] == [(4, 2, 0)]
        finally:
            spark.conf.unset(codegen)


def test_a_check_that_cannot_be_computed_is_not_met_though_it_shares_parts_with_others(spark: Any) -> None:
    """Spark computes a part that comes twice, in one check or in two, before both of them:
    it must not end the query."""
    how = Format("json", {"id": "int", "price": "double"})
    values = [{"id": 2, "price": 8}, {"id": 0, "price": 1}, {"id": 1, "price": 4}, {"id": 4, "price": 0}]
    rows = transforms.good_rows(transforms.parse_records(records(spark, *map(json.dumps, values)), how))
    checks = ["price / id > 1 and price / id < 5", "price / id > 3"]
    met = [is_met(Expectation(each, each, "source"), every_row(rows)) for each in checks]
    assert [row.source_offset for row in rows.where(met[0]).where(met[1]).collect()] == [0, 2]
    (counts,) = rows.agg(*[F.count_if(~each) for each in met]).collect()
    assert tuple(counts) == (2, 2)


def test_bad_rows_are_counted(spark: Any) -> None:
    """The figures that progress reports carry: by class of error, by column, with an example."""
    parsed = transforms.parse_records(records(spark, "AA,5", "AA", "AA,x"), CSV)
    counts = parsed.agg(*transforms.bad_counts(CSV)).collect()[0].asDict()
    assert {name: counts[name] for name in ("rows", "bad_rows", "error:MALFORMED", "error:WRONG_TYPE")} == {
        "rows": 3,
        "bad_rows": 2,
        "error:MALFORMED": 1,
        "error:WRONG_TYPE": 1,
    }
    assert (counts["column:carrier"], counts["column:delay"]) == (0, 1)
    assert counts["example"] == "column delay is x, which is no int (t-0-2)"
    assert counts["example:column delay"] == counts["example"]
    assert counts["example:MALFORMED"] == "the value is no line of 2 fields, but of 1 (t-0-1)"
    assert counts["error:MALFORMED, number of fields"] == 1
    assert counts["example:column carrier"] is None


def test_json_becomes_typed_columns(spark: Any) -> None:
    """Nested types too; text that is no JSON is bad."""
    how = Format("json", {"id": "bigint", "tags": "array<string>"})
    parsed = transforms.parse_records(records(spark, '{"id": 1, "tags": ["a"], "more": 0}', "{", '{"id": "x"}'), how)
    assert [(row.id, row.tags) for row in transforms.good_rows(parsed).collect()] == [(1, ["a"])]
    bad = transforms.bad_messages(parsed, "f").collect()
    assert [bytes(row.headers[1].value).decode() for row in bad] == [
        "the value is no JSON object",
        "column id is x, which is no bigint but a text",
    ]


def test_every_wrong_column_of_a_row_is_named_with_its_value(spark: Any) -> None:
    """Numbers, times, nested values and texts that are too long to show."""
    how = Format("json", {"id": "int", "at": "timestamp", "tags": "array<int>", "name": "string"})
    values = ['{"id": 3.5, "at": "noon", "tags": [1], "name": "a"}', '{"tags": {"a": 1}}', '{"id": "%s"}' % ("x" * 300)]
    bad = transforms.bad_messages(transforms.parse_records(records(spark, *values), how), "f").collect()
    assert [bytes(row.headers[1].value).decode() for row in bad] == [
        "column id is 3.5, which is no int; column at is noon, which is no timestamp",
        'column tags is {"a":1}, which is no array<int> but an object',
        f"column id is {'x' * 100}, which is no int but a text",
    ]


def test_times_beyond_the_years_that_outputs_have_are_bad(spark: Any) -> None:
    """Milliseconds in a column of times are taken for seconds; one such row would move the
    watermark 50,000 years on."""
    how = Format("json", {"at": "timestamp", "day": "date", "local": "timestamp_ntz"})
    values = (
        '{"at": 1767225600000}',
        '{"at": 1767225600, "day": "9999-12-31", "local": "0001-01-01T00:00:00"}',
        '{"at": "9999-12-31T23:59:59.999999Z"}',
        '{"day": "+12026-01-01"}',
    )
    parsed = transforms.parse_records(records(spark, *values), how)
    good = transforms.good_rows(parsed).orderBy("source_offset").collect()
    assert [(row.source_offset, row.at.year) for row in good] == [(1, 2026), (2, 9999)]
    bad = transforms.bad_reasons(parsed).collect()
    assert sorted(row.reason.partition("(")[0] for row in bad) == [
        "column at is +57971-02-25 00:00:00, which is beyond the years 1 to 9999 ",
        "column day is +12026-01-01, which is beyond the years 1 to 9999 ",
    ]


def test_derived_columns_see_those_before_them(spark: Any) -> None:
    """Then the filter, then the choice; the position stays with the row."""
    rows = transforms.good_rows(transforms.parse_records(records(spark, "AA,5", "AA,50"), CSV))
    how = Transform({"twice": "delay * 2", "late": "twice > 20"}, "late", ("carrier", "twice + 1 as more"))
    (row,) = transforms.shape_rows(rows, how).collect()
    assert row.asDict() == {
        "carrier": "AA",
        "more": 101,
        "source_topic": "t",
        "source_partition": 0,
        "source_offset": 1,
    }


def test_windows_and_groups_make_one_row_each(spark: Any) -> None:
    """Keys first, then the figures."""
    frame = spark.sql(
        "select * from values ('AA', timestamp'2013-01-01 01:00', 1), ('AA', timestamp'2013-01-01 23:00', 3), "
        "('AA', timestamp'2013-01-02 00:00', 5) as t(carrier, at, delay)"
    )
    how = Aggregate({"flights": "count(*)", "mean": "avg(delay)"}, ("carrier",), "at", "1 day", None, "1 hour")
    result = transforms.visible_columns(transforms.aggregate_rows(frame, how)).orderBy("window_start")
    assert result.columns == ["window_start", "window_end", "carrier", "flights", "mean"]
    first = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    starts = [row.window_start.astimezone(datetime.UTC) for row in result.collect()]
    assert starts == [first, first + datetime.timedelta(days=1)]
    assert [(row.carrier, row.flights, row.mean) for row in result.collect()] == [("AA", 2, 2.0), ("AA", 1, 5.0)]


def test_of_rows_with_an_equal_key_the_last_stays(spark: Any) -> None:
    """By offset; the position goes, for it is no column of the result."""
    rows = transforms.good_rows(transforms.parse_records(records(spark, "AA,1", "UA,2", "AA,3"), CSV))
    kept = transforms.latest_per_key(rows, ["carrier"]).orderBy("carrier").collect()
    assert [row.asDict() for row in kept] == [{"carrier": "AA", "delay": 3}, {"carrier": "UA", "delay": 2}]


def test_result_records_are_the_same_in_every_run(spark: Any) -> None:
    """Key and value are JSON with nulls written out; the epoch is in the headers."""
    rows = spark.sql("select 'AA' carrier, timestamp'2013-01-01 00:00:00' at, cast(null as int) n")
    (message,) = transforms.as_messages(rows, ["carrier", "at"], "flow", 7).collect()
    assert message.key == '{"carrier":"AA","at":"2013-01-01T00:00:00.000000Z"}'
    assert message.value == '{"carrier":"AA","at":"2013-01-01T00:00:00.000000Z","n":null}'
    assert [(each.key, bytes(each.value)) for each in message.headers] == [
        ("barnabas.flow", b"flow"),
        ("barnabas.epoch", b"7"),
    ]


def reasons(parsed: Any) -> list[str | None]:
    """Why each row is bad, in their order."""
    found = parsed.orderBy("source_offset").select("_barnabas_bad").collect()
    return [row._barnabas_bad for row in found]


def test_a_value_with_more_than_one_row_is_bad_and_not_cut(spark: Any) -> None:
    """Spark would read the first object or line, and leave out the rest in silence."""
    how = Format("json", {"id": "int", "s": "string", "n": "struct<a:int>"})
    good = ['{"id": 1}', ' {"id": 2, "n": {"a": 1}}\n', '{"id": 3, "s": "} {"}']
    wrong = [
        '[{"id": 4}, {"id": 5}]',
        '{"id": 6}{"id": 7}',
        '{"id": 8}\n{"id": 9}',
        '{"id": 10} more',
        '{"id": 1}, {"id": 2}',
    ]
    parsed = transforms.parse_records(records(spark, *good, *wrong, '{"id": "11"}'), how)
    no_object = "the value is no JSON object"
    assert reasons(parsed) == [None] * 3 + [no_object] * 5 + ["column id is 11, which is no int but a text"]
    lines = ["AA,1\r\n", '"say ""hi"", please",2', "AA,1\nUA,2", "", "AA;1", "Carrier,delay", '"AA,1', "AA"]
    parsed = transforms.parse_records(records(spark, *lines), CSV)
    no_line = "the value is no line of 2 fields"
    assert reasons(parsed)[:4] == [None, None, f"{no_line}, but of 3", f"{no_line}, it is empty"]
    assert reasons(parsed)[4:] == [
        f"{no_line}, unless they are divided by ';'",
        "the value has the names of the columns, as the first line of a file",
        f"{no_line} with the quotes that it has",
        f"{no_line}, but of 1",
    ]
    counts = parsed.agg(*transforms.bad_counts(CSV)).collect()[0].asDict()
    kinds = {name: counts[name] for name in counts if name.startswith("error:MALFORMED, ")}
    assert list(kinds.values()) == [1, 1, 2, 1], kinds
    found = [(row.carrier, row.delay) for row in transforms.good_rows(parsed).orderBy("source_offset").collect()]
    assert found == [("AA", 1), ('say "hi", please', 2)]


def test_the_filter_for_good_rows_of_a_wide_format_does_not_hold_its_parser_again_and_again(spark: Any) -> None:
    """Spark would put the whole reason in the place of its name: with 19 columns a plan
    of a million characters."""
    how = Format("csv", {f"c{number}": "double" for number in range(19)})
    parsed = transforms.parse_records(records(spark, "1"), how)
    marked = mark_uncomputable(parsed, [[RowStep("transform", Transform({"d": "c1 / c2", "e": "d / c3"}))]])
    plan = transforms.good_rows(marked)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_csv") == 2
    assert len(plan) < 50_000


def test_times_within_values_are_bad_where_outputs_cannot_hold_them(spark: Any) -> None:
    """In structs, arrays and maps."""
    how = Format("json", {"a": "struct<at:timestamp>", "b": "array<date>", "c": "map<string,array<timestamp>>"})
    values = ['{"a": {"at": 1}, "b": ["2026-01-01", null], "c": {"x": [1]}}', '{"a": {"at": 99999999999999}}']
    values += ['{"b": ["+12026-01-01"]}', '{"c": {"x": [1, 99999999999999]}}']
    found = reasons(transforms.parse_records(records(spark, *values), how))
    assert found[0] is None
    assert [each.split(" is ")[0] for each in found[1:] if each] == ["column a", "column b", "column c"]


@pytest.mark.parametrize("kind", ["text", "json", "csv", "logfmt"])
def test_a_value_that_is_not_utf8_is_a_bad_row(spark: Any, kind: str) -> None:
    """Two such values would become one text, with the replacement character in both."""
    columns = {"value" if kind == "text" else "id": "string"}
    value = {"json": b'{"id": "%s"}', "logfmt": b"id=%s"}.get(kind, b"%s")
    rows = [(None, value % each, "t", 0, at) for at, each in enumerate((b"caf\xe9", b"caf\xea", "caf\u00e9".encode()))]
    parsed = transforms.parse_records(spark.createDataFrame(rows, transforms.RECORD_SCHEMA), Format(kind, columns))
    found = reasons(parsed)
    assert [(each or "good").partition("caf\ufffd")[0][:24] for each in found] == ["the value is not UTF-8: "] * 2 + [
        "good"
    ]
    assert [next(iter(row)) for row in transforms.good_rows(parsed).collect()] == ["caf\u00e9"]


def test_keys_and_headers_of_different_bytes_are_different_texts(spark: Any) -> None:
    """Bytes that are not UTF-8 show their digits; a text that reads like them is a
    bad row, a deletion too."""
    keys = [b"\0\x7f", b"\0\x80", b"\0\x81", b"", b"\\x41", b"\\x80", b"\\x0080", b"\\X0080", None]
    rows = [
        *[(key, b'{"n": 1}', "t", 0, at, [("a", b"\xff"), ("b", b"x")]) for at, key in enumerate(keys)],
        (b"\\x0081", None, "t", 0, 10, None),
        (b"k", b'{"n": 1}', "t", 0, 11, [("a", b"\\xff")]),
    ]
    schema = f"{transforms.RECORD_SCHEMA}, headers array<struct<key: string, value: binary>>"
    how = Format("json", {"n": "int"}, no_value="row")
    parsed = transforms.parse_records(spark.createDataFrame(rows, schema), how, ("key", "key_bytes", "headers"))
    good = transforms.good_rows(parsed).orderBy("source_offset").collect()
    assert [row.source_key for row in good] == ["\0\x7f", "\\x0080", "\\x0081", "", "\\x41", "\\X0080", None]
    assert [row.source_key_bytes for row in good] == [
        bytearray(each) if each is not None else None for each in (*keys[:5], *keys[7:])
    ]
    assert good[0].source_headers == {"a": "\\xff", "b": "x"}
    bad = parsed.where(F.col("_barnabas_bad").isNotNull()).orderBy("source_offset").collect()
    assert [(row.source_offset, row._barnabas_error) for row in bad] == [
        (5, "WRONG_TYPE"),
        (6, "WRONG_TYPE"),
        (10, "WRONG_TYPE"),
        (11, "WRONG_TYPE"),
    ]
    text = "column source_key is the text \\x80, as which bytes are shown that are not UTF-8; take record_columns = "
    assert bad[0]._barnabas_bad == f'{text}["key_bytes"]'


def test_equal_numbers_in_keys_have_one_form(spark: Any) -> None:
    """In structs and arrays, too; other columns keep what they have."""
    rows = spark.createDataFrame([(0.0,), (-0.0,), (float("nan"),)], "k double").select(
        "k", F.array("k").alias("a"), F.struct(F.col("k").cast("float").alias("f")).alias("s"), F.col("k").alias("v")
    )
    found = with_equal_keys(rows, ["k", "a", "s"]).collect()
    assert [repr((row.k, row.a[0], row.s.f)) for row in found] == ["(0.0, 0.0, 0.0)"] * 2 + ["(nan, nan, nan)"]
    assert [repr(row.v) for row in found] == ["0.0", "-0.0", "nan"]
    assert transforms.deduplicate_rows(rows, ["k"]).count() == 2


def test_a_text_that_is_not_utf8_does_not_reach_a_topic(spark: Any) -> None:
    """Spark's JSON has the replacement character for it, and one key for two."""
    rows = spark.sql("SELECT cast(b as string) AS s, 1 AS n FROM VALUES (X'61'), (X'FF'), (NULL) AS t(b)")
    assert [row.s for row in whole_texts(rows.where("s IS NULL OR s = 'a'")).collect()] == ["a", None]
    with pytest.raises(PySparkException, match="column s is \ufffd, which is not UTF-8"):
        whole_texts(rows).collect()


def test_a_row_whose_key_an_output_cannot_hold_is_bad_if_it_is_of_one_record(spark: Any) -> None:
    """U+0000 and long texts in PostgreSQL, texts that are not UTF-8 everywhere; of
    groups as well."""
    values = ["a", "a\0b", "x" * 2501, None]
    rows = [(each and each.encode(), b"v", "t", 0, at) for at, each in enumerate(values)]
    frame = spark.createDataFrame([*rows, (b"\xff", b"v", "t", 0, 9)], transforms.RECORD_SCHEMA)
    parsed = transforms.parse_records(frame, Format("text", {"value": "string"}), ("key", "key_bytes"))
    steps = [RowStep("transform", Transform({"k": "source_key", "b": "cast(source_key_bytes as string)"}), key=("k",))]
    postgres, sqlite = (DatabaseSink(kind, "u", "t", ("k",)) for kind in ("postgresql", "sqlite"))

    def found(sink: DatabaseSink, key: str) -> list[str | None]:
        chain = [replace(steps[0], key=(key,))]
        marked = mark_uncomputable(parsed, [chain], (), [sink])
        return [row[0] for row in marked.orderBy("source_offset").select("_barnabas_bad").collect()]

    nul = "column k is a\ufffdb with the character U+0000, which PostgreSQL cannot hold"
    assert found(postgres, "k") == [None, nul, "the key (k) has 2501 bytes, and PostgreSQL takes 2,500", None, None]
    assert found(sqlite, "k") == [None] * 5
    delta = LakeSink("delta", "p", ("k",), ("k",))
    empty = transforms.parse_records(
        spark.createDataFrame(
            [(b"", b"v", "t", 0, 0), ("\u00e9".encode() * 50, b"v", "t", 0, 1)], transforms.RECORD_SCHEMA
        ),
        Format("text", {"value": "string"}),
        ("key", "key_bytes"),
    )
    marked = mark_uncomputable(empty, [steps], (), [delta]).orderBy("source_offset")
    assert [row[0] for row in marked.select("_barnabas_bad").collect()] == [
        "column k is empty, which Delta takes for null in partition_by",
        "column k is longer than a folder's name may be, which partition_by makes of it",
    ]
    text = "column b is \ufffd, which is not UTF-8: take hex(...) or base64(...) of its bytes"
    assert found(sqlite, "b") == [None] * 4 + [text]


def test_rows_get_the_key_time_and_headers_of_their_record(spark: Any) -> None:
    """Of headers with one name the last counts."""
    at = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001  # as Spark gives it, in the session's zone
    pairs = [("trace", b"1"), ("user", b"x"), ("trace", b"2")]
    rows = [(b"k", b"v", "t", 0, 0, at, pairs), (None, b"w", "t", 0, 1, at, None)]
    schema = f"{transforms.RECORD_SCHEMA}, timestamp timestamp, headers array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(rows, schema)
    names = ("key", "timestamp", "headers")
    parsed = transforms.parse_records(frame, Format("text", {"value": "string"}), names)
    first, second = transforms.good_rows(parsed).orderBy("source_offset").collect()
    assert (first.source_key, first.source_timestamp, first.source_headers) == ("k", at, {"trace": "2", "user": "x"})
    assert (second.source_key, second.source_headers) == (None, {})
