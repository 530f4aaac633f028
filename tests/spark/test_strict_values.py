"""What does not fit is no value: every type, in every format that has texts, against
what is right for it."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from barnabas.pipelines.formats.declared import Format  # noqa: E402
from barnabas.pipelines.frames import transforms  # noqa: E402
from barnabas.pipelines.frames.lookup import open_lookup  # noqa: E402
from barnabas.pipelines.specification.spec import Lookup  # noqa: E402

NOON = datetime.datetime(2026, 1, 2, 12, 0, tzinfo=datetime.UTC)
FITS: dict[str, dict[str, Any]] = {
    "int": {"12": 12, "-7": -7, "+5": 5, "007": 7, "2147483647": 2147483647},
    "bigint": {"9223372036854775807": 9223372036854775807},
    "double": {"1.5": 1.5, "1e2": 100.0, "-.5": -0.5, "NaN": "nan", "-Infinity": "-inf", "1e-400": 0.0},
    "decimal(10,2)": {"12.34": Decimal("12.34"), "5": Decimal("5.00"), "-1.500": Decimal("-1.50"), "1e2": Decimal(100)},
    "decimal(38,0)": {
        "12345678901234567890123456789012345678": Decimal(12345678901234567890123456789012345678),
        "1.5e1": Decimal(15),
        "150e-1": Decimal(15),
        "0e-30": Decimal(0),
    },
    "decimal(38,18)": {"5e-18": Decimal("5e-18"), "1.23456789012E-7": Decimal("1.23456789012E-7")},
    "decimal(38,2)": {"1.00" + "0" * 40: Decimal(1)},
    "boolean": {"true": True, "FALSE": False},
    "date": {"2026-01-02": NOON.date(), "2026-1-2": NOON.date()},
    "timestamp": {
        "2026-01-02T12:00:00Z": NOON,
        "2026-01-02 12:00": NOON,
        "2026-01-02T13:00:00.000000000+01:00": NOON,
        "2026-01-02": NOON.replace(hour=0),
    },
    "timestamp_ntz": {"2026-01-02T12:00:00": NOON.replace(tzinfo=None)},
    "decimal(20,2)": {},
}
MISFITS: dict[str, list[str]] = {
    "int": ["1.5", "1_000", "1,5", " 5", "2147483648", "0x10", "x", "\u0661\u0662"],
    "double": ["1,5", "\uff11", "1d", "0x1p3", "1e400", " 5", "inf.", "1_000"],
    "decimal(10,2)": ["12,34", "1.234,56", "1.005", "1e-3", "123456789.00", " 5", "NaN"],
    "decimal(38,0)": ["1.5", "1.50e0", "15e-1", "1e38"],
    "decimal(38,2)": ["1.005", "1005e-3"],
    "decimal(38,18)": ["5e-19", "1.234567890123456789E-7"],
    "decimal(20,2)": ["1.0000000000000000000000005", "0.000000000000000000001e1"],
    "boolean": ["yes", "1", "t"],
    "date": ["2020", "2020-01", "12:30", "2026-02-30", "2026-01-02Tx", "2026-01-02T12:00:00Z", "5"],
    "timestamp": [
        "12:30",
        "T12:30",
        "2020",
        "2020-01",
        "2026-01-02 10",
        "2026-02-30",
        "2026-01-02T25:00:00",
        "now",
        "20260102",
    ],
    "timestamp_ntz": ["12:30", "2020", "2026-01-02T12:00:00Z"],
}
TEXT_ONLY = ("date", "timestamp", "timestamp_ntz", *(each for each in FITS if each.startswith("decimal")))
"""Types for which a text of JSON may stand; numbers and booleans have their own there."""


def parsed(spark: Any, how: Format, values: list[bytes]) -> list[tuple[Any, str | None]]:
    """Each value's first column, and the reason of a bad row."""
    rows = [(None, value, "t", 0, number) for number, value in enumerate(values)]
    found = transforms.parse_records(spark.createDataFrame(rows, transforms.RECORD_SCHEMA), how)
    name = next(iter(how.columns))
    collected = found.orderBy("source_offset").toArrow().to_pylist()
    return [(None if row["_barnabas_bad"] else row[name], row["_barnabas_bad"]) for row in collected]


def value_of(text: str, kind: str) -> bytes:
    return {"json": f'{{"v":"{text}"}}', "csv": f"{text};x", "logfmt": f'v="{text}"'}[kind].encode()


def format_of(kind: str, type_name: str, **more: Any) -> Format:
    columns = {"v": type_name, "w": "string"} if kind == "csv" else {"v": type_name}
    return Format(kind, columns, delimiter=";", **more)


def same(value: Any) -> Any:
    return str(value) if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


@pytest.mark.parametrize("kind", ["csv", "json", "logfmt"])
def test_a_text_is_a_value_of_its_type_or_makes_a_bad_row(spark: Any, kind: str) -> None:
    """No comma is left out, no digit rounded away, no day added: the same today and tomorrow."""
    for type_name, texts in FITS.items():
        wrong = MISFITS.get(type_name, [])
        if kind == "json" and type_name not in TEXT_ONLY:
            texts = {"NaN": "nan", "-Infinity": "-inf"} if type_name == "double" else {}
        found = parsed(spark, format_of(kind, type_name), [value_of(text, kind) for text in (*texts, *wrong)])
        assert [same(value) for value, _ in found[: len(texts)]] == list(texts.values()), (type_name, found)
        for text, (value, reason) in zip(wrong, found[len(texts) :], strict=True):
            assert value is None
            assert reason is not None
            assert reason.startswith(f"column v is {text}, which is no {type_name}"), (type_name, reason)


def test_numbers_of_json_are_values_of_their_columns_or_make_bad_rows(spark: Any) -> None:
    """Exactly: also with more digits than a double has, and in parts of values."""
    for type_name, number, value in (
        ("decimal(10,2)", "12.34", Decimal("12.34")),
        ("decimal(30,2)", "12345678901234567890.12", Decimal("12345678901234567890.12")),
        ("decimal(10,2)", "1e2", Decimal(100)),
        ("decimal(10,2)", "1.005", None),
        ("double", "1e400", None),
        ("float", "1e39", None),
        ("double", "1e40", 1e40),
        ("timestamp", "1767355200", NOON),
        ("timestamp", "1767355200.5", None),
        ("date", "20000", None),
        ("boolean", "1", None),
        ("array<decimal(4,2)>", '[1.25,"2,5"]', None),
        ("array<decimal(4,2)>", '[1.25,"2.5",null]', [Decimal("1.25"), Decimal("2.50"), None]),
        ("struct<at:timestamp>", '{"at":"12:30"}', None),
        ("struct<at:timestamp>", '{"at":"2026-01-02T12:00:00Z"}', {"at": NOON}),
        ("struct<at:timestamp>", "null", None),
        ("array<double>", "[1e400]", None),
        ("map<string,date>", '{"a":"2026"}', None),
    ):
        ((found, reason),) = parsed(spark, Format("json", {"v": type_name}), [f'{{"v":{number}}}'.encode()])
        assert found == value, (type_name, number, reason)
        assert (reason is None) == (value is not None or number == "null"), (type_name, number, reason)


LOST = "exact as a text in quotes only"
INFINITE = "column x is Infinity, which is no double"


@pytest.mark.parametrize(
    ("columns", "text", "value", "reason"),
    [
        ({"x": "decimal(38,18)"}, '{"x":12345678901234567890.1234567890123456789}', None, LOST),
        ({"x": "decimal(38,18)"}, '{"x":1.2345678901234567E-1,"id":"1"}', None, LOST),
        ({"x": "decimal(38,18)"}, '{"x":1.5E-7,"id":"12345678901234567e"}', Decimal("1.5e-7"), None),
        ({"x": "array<decimal(38,18)>"}, '{"x":[1,1.23456789012345678E-1]}', None, "a part of another type"),
        ({"x": "double", "note": "string"}, '{"note":"Information","x":1e400}', None, INFINITE),
        ({"x": "double", "note": "string"}, r'{"note":"\"x\":Infinity,","x":1e400}', None, INFINITE),
        ({"x": "double", "y": "double"}, '{"y":Infinity,"x":1e400}', None, INFINITE),
        ({"x": "double", "y": "double"}, '{"y":1e40,"x":-INF}', float("-inf"), None),
        ({"x": "array<double>"}, '{"x":[Infinity,1e400]}', None, "no JSON object"),
        ({"x": "array<double>"}, '{"x":[1.5,Infinity]}', [1.5, float("inf")], None),
    ],
)
def test_a_number_of_json_that_a_double_cannot_hold_makes_a_bad_row(
    spark: Any, columns: dict[str, str], text: str, value: Any, reason: str | None
) -> None:
    """Neither digits nor the size are lost, whatever else the record says."""
    ((found, why),) = parsed(spark, Format("json", columns), [text.encode()])
    assert found == value, why
    assert (reason is None) == (why is None)
    assert (reason or "") in (why or "")


RESPELLED = "but a number that is written in another way: only a text in quotes keeps its digits as they are"


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("string", "1.1", "1.1"),
        ("string", "1.10", None),
        ("string", '"1.10"', "1.10"),
        ("string", "12345678901234567890.12", None),
        ("string", "12345678901234567890", "12345678901234567890"),
        ("string", "1e5", None),
        ("string", '"1E5"', "1E5"),
        ("string", "-0", None),
        ("string", "0", "0"),
        ("string", '"1.10,1.1"', "1.10,1.1"),
        ("string", '{"a": [1.5, "x"]}', '{"a":[1.5,"x"]}'),
        ("string", '{"a": 1.50}', None),
        ("string", "true", "true"),
        ("array<string>", '["1.10", 2.5]', ["1.10", "2.5"]),
        ("array<string>", "[2.50]", None),
        ("struct<w: string>", '{"w": 2.50}', None),
        ("struct<w: string>", '{"w": 2.5}', {"w": "2.5"}),
        ("map<string,string>", '{"w": 1e-7}', None),
    ],
)
def test_a_number_of_json_in_a_text_keeps_its_digits_or_makes_a_bad_row(
    spark: Any, kind: str, value: str, found: Any
) -> None:
    """Spark writes 1.10 as 1.1, and 20 digits with a point as 17.

    The record has the text elsewhere, too."""
    how = Format("json", {"v": kind, "x": "double"})
    ((got, reason),) = parsed(spark, how, [f'{{"x":1.1,"v": {value}}}'.encode()])
    assert (got if found is None else dict(got) if isinstance(got, list) and isinstance(found, dict) else got) == found
    assert (reason is None) == (found is not None), reason
    if kind.startswith(("string", "struct")) and found is None:
        assert RESPELLED in (reason or "")


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("struct<at:timestamp>", '{"at":"%s"}', {"at": NOON}),
        ("array<timestamp>", '["%s"]', [NOON]),
        ("map<string,timestamp>", '{"at":"%s"}', [("at", NOON)]),
    ],
)
def test_times_in_parts_of_values_have_the_form_that_is_declared(spark: Any, kind: str, value: str, found: Any) -> None:
    """Others make bad rows."""
    how = Format("json", {"e": kind}, timestamp_format="dd.MM.yyyy HH:mm")
    texts = [f'{{"e":{value % each}}}'.encode() for each in ("02.01.2026 12:00", "2026-01-02T12:00:00Z")]
    (good, why), (_, reason) = parsed(spark, how, texts)
    assert (good, why) == (found, None)
    assert reason is not None


def test_a_reason_names_the_column_what_is_expected_and_what_was_found(spark: Any) -> None:
    """In parts of objects, too; what cannot be printed is not printed, and a mark that no
    editor shows has a name."""
    columns = {
        "id": "bigint",
        "b": "boolean",
        "n": "struct<y:int,z:struct<at:date>>",
        "m": "map<string,int>",
        "xs": "array<int>",
    }
    how = Format("json", columns)
    values = {
        '{"id":1,"n":{"y":"z"}}': "column n.y is z, which is no int but a text",
        '{"id":1,"n":{"y":true,"z":{"at":"2026"}}}': "column n.y is true, which is no int but a boolean; "
        "column n.z.at is 2026, which is no date",
        '{"id":1,"n":5}': "column n is 5, which is no struct<y:int,z:struct<at:date>> but a number",
        '{"id":1,"b":1}': "column b is 1, which is no boolean but a number",
        '{"id":"7"}': "column id is 7, which is no bigint but a text",
        '{"id":[1]}': "column id is [1], which is no bigint but a list",
        '{"id":1.5}': "column id is 1.5, which is no bigint",
        '{"id":1,"xs":[1,"a"]}': 'column xs is [1,"a"], which is no array<int>',
        '{"id":1,"xs":{"a":1}}': 'column xs is {"a":1}, which is no array<int> but an object',
        '{"id":"a\\u0007\\u202eb"}': "column id is a\ufffd\ufffdb, which is no bigint but a text",
        '{"id":""}': 'column id is "", which is no bigint but a text',
        '{"id":1,"m":{"a":1,"a":2}}': "column m is a map with the key a twice",
        '\ufeff{"id":1}': "the value is no JSON object, but begins with a byte order mark",
        "[1]": "the value is no JSON object",
        '{"id":1': "the value is no JSON object",
    }
    found = parsed(spark, how, [value.encode() for value in values])
    assert [reason for _, reason in found] == list(values.values())
    csv = format_of("csv", "int")
    lines = [b"\xef\xbb\xbf1;x", "1;x".encode("utf-16"), b"a\x07;x", b";x"]
    assert [reason for _, reason in parsed(spark, csv, lines)] == [
        "the value is no line of 2 fields, but begins with a byte order mark",
        "the value is no line of 2 fields, but begins with a byte order mark",
        "column v is a\ufffd, which is no int",
        'column v is "", which is no int (null = "" in the format makes empty fields null)',
    ]


@pytest.mark.parametrize(
    ("null", "line", "fields"),
    [
        (None, ";x", ["", "x"]),
        (None, ";", ["", ""]),
        (None, '"a;;b";', ["a;;b", ""]),
        (None, '"";"say ""hi;;"""', ["", 'say "hi;;"']),
        ("NA", "NA;", [None, ""]),
        ("", ";", [None, None]),
        ("", '"";x', [None, "x"]),
        (None, ';5" pipe', ["", '5" pipe']),
        ("NA", '5" pipe;', ['5" pipe', ""]),
    ],
)
def test_an_empty_field_is_null_only_where_the_flow_declares_it(
    spark: Any, null: str | None, line: str, fields: list[str | None]
) -> None:
    """Without `null` it is an empty text, with another one, too; quotes hold
    delimiters that divide nothing."""
    rows = spark.createDataFrame([(None, line.encode(), "t", 0, 0)], transforms.RECORD_SCHEMA)
    (row,) = transforms.parse_records(rows, format_of("csv", "string", null=null)).collect()
    assert ([row.v, row.w], row._barnabas_bad) == (fields, None)


def test_a_line_whose_quotes_do_not_end_is_bad_if_a_field_is_empty(spark: Any) -> None:
    """Where the empty field is cannot be said."""
    how = Format("csv", {"v": "string", "w": "string", "x": "string"}, delimiter=";")
    reason = "the value is no line of 3 fields with the quotes that it has"
    assert parsed(spark, how, [b';1;"x', b'"a"b;;']) == [(None, reason)] * 2


def test_a_table_beside_the_stream_is_read_as_strictly(spark: Any, tmp_path: Path) -> None:
    """The flow ends with the table, the column and the text."""
    file = tmp_path / "prices.csv"
    table = Lookup("prices", "csv", str(file), None, {"id": "string", "price": "decimal(10,2)"}, None, ",", None)
    for text, problem in (('"12,34"', "12,34"), ("1.005", "1.005"), ("", '""')):
        file.write_text(f"id,price\na,{text}\n")
        with pytest.raises(Exception, match=f"column price is {problem}, which is no decimal"):
            open_lookup(spark, table).collect()
    file.write_text("id,price\na,12.34\n,5\n")
    assert [tuple(row) for row in open_lookup(spark, table).collect()] == [("a", Decimal("12.34")), ("", Decimal(5))]
