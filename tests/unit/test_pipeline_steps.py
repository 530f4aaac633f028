"""Flows of several sources, tables and steps, declared in TOML and in Python, without Spark."""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.flows import load_flow
from barnabas.pipelines.specification.spec import POSITION, Limit, SpecError, parse

FLOW = """\
name = "paid"
checkpoint = "state"

[sources.orders]
bootstrap_servers = "localhost:9092"
topics = ["orders"]
watermark = { time = "at", delay = "1 hour" }
max_bad = "1%"
bad_rows_topic = "bad-orders"
format = { type = "json", columns = { id = "bigint", at = "timestamp" } }

[sources.payments]
topics = ["payments"]
format = { type = "csv", columns = { order_id = "bigint" } }

[tables.customers]
type = "csv"
path = "customers.csv"
columns = { customer = "int" }

[[steps]]
name = "once"
from = "orders"
deduplicate = ["id"]

[[steps]]
name = "paid"
sql = "select o.* from once o join payments p on p.order_id = o.id"

[[expectations]]
name = "known"
check = "id > 0"
on_fail = "quarantine"

[[sinks]]
type = "sqlite"
path = "out.db"
table = "paid"
key = ["id"]
"""
PROGRAM = """\
from barnabas.pipelines.flows import declare, fields, foreach_batch, sqlite, topic


def once(orders):
    return orders


def paid(once, payments):
    return once


def send(rows, epoch):
    pass


flow = declare(
    "paid",
    checkpoint="state",
    sources={
        "orders": topic("orders", format=fields("json", id="bigint", at="timestamp"), watermark=("at", "1 hour")),
        "payments": topic("payments", format=fields("csv", order_id="bigint") | {"null": "NA"}),
    },
    steps=[once, paid],
    sinks=[sqlite("out.db", "paid", key=["id"]), foreach_batch(send)],
)
"""


def test_a_watermark_in_python_is_a_pair_or_the_table_of_a_file(tmp_path: Path) -> None:
    """Anything else is refused with its field."""
    file = tmp_path / "paid.py"
    file.write_text(PROGRAM)
    expected = load_flow(file).sources[0].watermark
    file.write_text(PROGRAM.replace('("at", "1 hour")', '{"time": "at", "delay": "1 hour"}'))
    assert load_flow(file).sources[0].watermark == expected is not None
    for wrong in ('{"column": "at", "delay": "1 hour"}', '("at",)', '"1 hour"'):
        file.write_text(PROGRAM.replace('("at", "1 hour")', wrong))
        with pytest.raises(SpecError, match=r"sources\.orders\.watermark"):
            load_flow(file)


def test_sources_tables_and_steps_become_views_in_their_order() -> None:
    """The second source takes the servers of the first."""
    flow = parse(FLOW, file="/x/flow.toml")
    assert [source.name for source in flow.sources] == ["orders", "payments"]
    assert flow.sources[1].bootstrap_servers == "localhost:9092"
    assert flow.lookups[0].place == "/x/customers.csv"
    assert [(step.name, step.of, step.deduplicate) for step in flow.steps] == [
        ("once", "orders", ("id",)),
        ("paid", None, ()),
    ]
    assert flow.expectations[0].of == "orders"
    assert flow.waits_for_watermark


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('from = "orders"', 'from = "order"', r"f.toml:23: steps\[0\].from: names order, which is no source.*did you mean orders"),
        ('name = "once"', 'name = "orders"', r"steps\[0\].name: orders is the name of another"),
        ('watermark = { time = "at", delay = "1 hour" }', "", r"steps\[0\].deduplicate: needs a watermark"),
        ('from = "orders"', 'sql = "select 1"\nfrom = "orders"', r"steps\[0\].sql: cannot be combined with from"),
        ('max_bad = "1%"', 'max_bad = "one"', r'sources.orders.max_bad: is \'one\', but must be a number of rows, or a share'),
        ('max_bad = "1%"', 'on_max_bad = "warn"', "sources.orders.on_max_bad: needs max_bad"),
        ('on_fail = "quarantine"', 'on_fail = "quarantine"\nof = "paid"', r"expectations\[0\].on_fail: quarantine is for rows of a source"),
        ('on_fail = "quarantine"', 'on_fail = "explode"', r"expectations\[0\].on_fail: is 'explode', but must be one of warn, drop"),
        ('path = "customers.csv"', 'path = "customers.csv"\nrefresh = "1 hour"', "tables.customers.refresh: is for databases"),
        ("[sources.orders]", '[source]\ntopics = ["t"]\n[sources.orders]', "sources: cannot be combined with"),
        ('deduplicate = ["id"]', 'deduplicate = ["id"]\naggregate = {group_by = ["id"], compute = {n = "count(*)"}, session = "1 minute", time = "x"}', r"steps\[0\].aggregate.watermark: is missing"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_step_is_reported_with_its_line_and_field(old: str, new: str, problem: str) -> None:
    """Before Spark is started."""
    assert FLOW.count(old) == 1
    with pytest.raises(SpecError, match=problem):
        parse(FLOW.replace(old, new), file="f.toml")


TOPIC_TABLE = 'type = "topic"\ntopic = "c"\nformat = { type = "json", columns = { customer = "int" } }'


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('topic = "c"\n', "", "f.toml:16: tables.customers.topic: is missing: the topic with the table's rows"),
        ("\nformat = ", '\nbootstrap_servers = "h:1"\nkafka = ', "tables.customers.format: is missing: how values become columns"),
        ('topic = "c"', 'topic = ["c"]', r"f.toml:18: tables.customers.topic: is \['c'\], but must be a text"),
        ('topic = "c"', 'topic = "c"\nkafka."bootstrap.servers" = "h:1"', "tables.customers.kafka.bootstrap.servers: has a field of its own"),
        ('topic = "c"', 'topic = "c"\npath = "x"', "tables.customers.path: is unknown here; known are type, topic, format"),
        ('topic = "c"', 'topic = "c"\nrefresh = "1 minute"', "tables.customers.refresh: is unknown here"),
        ('"json"', '"jsn"', "tables.customers.format.type: is 'jsn', but must be one of csv, json"),
        (', columns = { customer = "int" }', "", "tables.customers.format.columns: is missing"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_table_that_is_a_topic_is_reported_with_its_field(old: str, new: str, problem: str) -> None:
    """Its format has the columns, and nothing is read again at intervals."""
    file_table = 'type = "csv"\npath = "customers.csv"\ncolumns = { customer = "int" }'
    assert FLOW.count(file_table) == TOPIC_TABLE.count(old) == 1
    parse(FLOW.replace(file_table, TOPIC_TABLE), file="f.toml")
    with pytest.raises(SpecError, match=problem):
        parse(FLOW.replace(file_table, TOPIC_TABLE.replace(old, new)), file="f.toml")


def test_several_sources_need_a_step_that_brings_them_together() -> None:
    """The results would be those of the first one alone."""
    text = FLOW[: FLOW.index("[[steps]]")] + FLOW[FLOW.index("[[sinks]]") :]
    with pytest.raises(SpecError, match="steps: is missing: with several sources"):
        parse(text)


@pytest.mark.parametrize(
    ("limit", "rows", "bad", "passed"),
    [
        (Limit(0.01, None), 1000, 10, False),
        (Limit(0.01, None), 1000, 11, True),
        (Limit(None, 3), 1000, 3, False),
        (Limit(None, 3), 10, 4, True),
    ],
)
def test_a_limit_of_bad_rows_is_passed_by_one_row_more(limit: Limit, rows: int, bad: int, passed: bool) -> None:
    """As a share, and as a number."""
    assert limit.is_passed(rows, bad) is passed


@pytest.mark.parametrize(
    ("limit", "rows", "bad", "passed"),
    [
        (Limit(0.1, None), 3, 1, False),
        (Limit(0.1, None), 50, 10, False),
        (Limit(0.1, None), 11, 11, True),
        (Limit(0.1, None), 200, 20, False),
        (Limit(0.1, None), 200, 21, True),
        (Limit(0.001, None), 5, 1, False),
        (Limit(0.001, None), 5, 2, True),
        (Limit(0.0, None), 5, 1, True),
        (Limit(None, 0), 1, 1, True),
    ],
)
def test_a_share_is_of_a_hundred_rows_at_least_while_a_flow_runs(
    limit: Limit, rows: int, bad: int, passed: bool
) -> None:
    """One bad row among the first three says nothing yet; a single one passes no share above 0."""
    assert limit.is_passed(rows, bad, is_final=False) is passed


@pytest.mark.parametrize(("share", "text"), [(0.01, "1%"), (0.1, "10%"), (0.005, "0.5%"), (1.0, "100%")])
def test_a_limit_is_shown_as_it_was_given(share: float, text: str) -> None:
    """A share is shown in percent."""
    assert str(Limit(share, None)) == text


def test_a_program_declares_the_same_flow_as_a_file(tmp_path: Path) -> None:
    """Functions are steps, with the views that their parameters name; a sink may be a function."""
    (tmp_path / "flow.py").write_text(PROGRAM)
    flow = load_flow(tmp_path / "flow.py", ['sources.orders.topics=["others"]'])
    assert [source.topics for source in flow.sources] == [("others",), ("payments",)]
    assert flow.sources[1].format.null == "NA"
    assert [step.name for step in flow.steps] == ["once", "paid"]
    assert flow.steps[1].inputs("once") == ("once", "payments")
    assert [sink.key for sink in flow.sinks] == [("id",), POSITION]
    assert flow.checkpoint == str(tmp_path / "state")
    assert {source.bootstrap_servers for source in flow.sources} == {"localhost:9092"}
    elsewhere = PROGRAM.replace('topic("orders", ', 'topic("orders", bootstrap_servers="b:1", ')
    (tmp_path / "flow.py").write_text(elsewhere)
    sources = load_flow(tmp_path / "flow.py").sources
    assert [source.bootstrap_servers for source in sources] == ["b:1", "b:1"], "as in a file, the second follows"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("(once, payments)", "(once, payment)", r"flow.py:23: steps\[1\].function: paid has the parameter payment.*did you mean payments"),
        ('at="timestamp"', 'at="timestmp"', "flow.py:20: sources.orders.format.columns.at: has the type 'timestmp'"),
        ('"1 hour"', '"one hour"', "flow.py:20: sources.orders.watermark.delay: is 'one hour'"),
        ("flow = declare", "flaw = declare", "flow.py: sets no variable flow"),
        ("return once\n", "return once\n1 / 0\n", "flow.py:10: ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_program_is_reported_with_its_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """The line of the program's own text."""
    assert PROGRAM.count(old) == 1
    (tmp_path / "flow.py").write_text(PROGRAM.replace(old, new))
    with pytest.raises(SpecError, match=problem):
        load_flow(tmp_path / "flow.py")


def test_a_file_takes_functions_from_a_program_beside_it(tmp_path: Path) -> None:
    """``file:name``, relative to the flow's file."""
    (tmp_path / "functions.py").write_text("def late(rows):\n    return rows\n")
    text = FLOW.replace('from = "orders"', 'function = "functions.py:late"')
    (tmp_path / "flow.toml").write_text(text)
    flow = load_flow(tmp_path / "flow.toml")
    assert flow.steps[0].inputs("orders") == ("orders",)
    (tmp_path / "flow.toml").write_text(text.replace(":late", ":later"))
    with pytest.raises(SpecError, match=r"functions.py has no function later"):
        load_flow(tmp_path / "flow.toml")


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pipeline-flows.md"
BLOCKS = re.findall(r"```(toml|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_flows_of_the_how_to_page_are_valid(tmp_path: Path) -> None:
    """The whole ones in TOML and Python; the parts parse in the place where they belong."""
    whole = [text for kind, text in BLOCKS if kind == "toml" and text.startswith("name = ")]
    assert [flow.name for flow in map(parse, whole)] == ["paid-orders", "customers"]
    (program,) = [text for kind, text in BLOCKS if kind == "python" and "declare(" in text]
    (tmp_path / "paid.py").write_text(program)
    flow = load_flow(tmp_path / "paid.py")
    assert [step.name for step in flow.steps] == ["dear", "by_customer"]


def test_lines_of_a_table_end_where_files_have_them_end(tmp_path: Path) -> None:
    """A string of JSON may hold characters that end lines of other texts; a line
    that is none is named."""
    pytest.importorskip("pyspark")
    from barnabas.pipelines.frames.lookup import LookupReader

    path = tmp_path / "t.json"
    options = {"kind": "json", "place": str(path), "columns": '["a"]', "name": "t"}

    def rows() -> list[str | None]:
        reader = LookupReader(options, wait=lambda _: None)
        (partition,) = reader.partitions()
        return [value for batch in reader.read(partition) for value in batch["a"].to_pylist()]

    path.write_text('{"a": "x\u2028y"}\r\n\n{"a": 2}\n', encoding="utf-8")
    assert rows() == ["x\u2028y", "2"]
    path.write_text('[{"b": 1}, {"a": null}]')
    assert rows() == [None, None], "a column that some entries lack is null there"
    for text, problem in (
        ('{"a": 1}\n{"a"', r"line 2 is no JSON: {\"a\""),
        ("[1]", "entry 1 is no JSON object: 1"),
        ('[{"A": 1}]', "none of its entries has the column a"),
        ('{"aa": 1}\n{"b": 1}', r"none of its lines has the column a; did you mean aa\?"),
    ):
        path.write_text(text)
        with pytest.raises(PipelineError, match=problem):
            rows()


def test_a_table_of_csv_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    """A line with another number of fields is named; a file that is half written, or away, is tried
    again until it is whole."""
    pytest.importorskip("pyspark")
    from barnabas.pipelines.frames.lookup import LookupReader

    path = tmp_path / "t.csv"
    options = {"kind": "csv", "place": str(path), "columns": '["b"]', "name": "t", "delimiter": ",", "null": ""}
    waits: list[float] = []

    def rows(then: str | None) -> list[str | None]:
        def wait(seconds: float) -> None:
            waits.append(seconds)
            if then is not None:
                path.write_text(then)

        reader = LookupReader(options, wait=wait)
        (partition,) = reader.partitions()
        return [value for batch in reader.read(partition) for value in batch["b"].to_pylist()]

    cases = (("1,2,3\n", "line 2 has 3 fields, but the first line has 2"), ('1,"x', "unexpected end of data"))
    for text, problem in cases:
        path.write_text(f"a,b\n{text}")
        with pytest.raises(PipelineError, match=problem):
            rows(None)
    waits.clear()
    assert rows("a,b\n1,x\n") == ["x"], "the first read waits, too"
    path.write_text("a,b\n1")
    assert rows("a,b\n1,y\n") == ["y"]
    path.unlink()
    assert rows('a,b\n1,"z, z"\n') == ["z, z"]
    assert sum(waits) < 1
    path.unlink()
    with pytest.raises(PipelineError, match="the table t cannot be read from .*No such file"):
        rows(None)
    assert 5 < sum(waits) < 6


@pytest.mark.parametrize(
    ("header", "names", "expected"),
    [
        ("id,name,,", '["name", "id"]', [{"name": "x", "id": None}, {"name": "y, z", "id": "2"}]),
        ("id,name,note,note", '["id"]', [{"id": None}, {"id": "2"}]),
        ("\ufeffid,name,,", '["id"]', [{"id": None}, {"id": "2"}]),
        ("id,name,note,note", '["id", "note"]', "its first line names several columns note"),
        ("id,name,note,more", '["id", "notes"]', "its first line names no column notes"),
        ("id", '["id"]', "line 2 has 4 fields, but the first line has 1"),
        ('id,"name', '["id"]', "line 4: ',' expected after"),
    ],
)
def test_columns_of_csv_that_are_not_read_may_have_equal_names_or_none(
    tmp_path: Path, header: str, names: str, expected: list[dict[str, str | None]] | str
) -> None:
    """Spreadsheets write such columns. One that is read must stand there once."""
    pytest.importorskip("pyspark")
    from barnabas.pipelines.frames.lookup import LookupReader

    path = tmp_path / "t.csv"
    path.write_text(encoding="utf-8", data=f'{header}\n,x,,\n\n2,"y, z",,\n')
    options = {"kind": "csv", "place": str(path), "columns": names, "name": "t", "delimiter": ",", "null": ""}
    reader = LookupReader(options, wait=lambda _: None)
    (partition,) = reader.partitions()
    if isinstance(expected, str):
        with pytest.raises(PipelineError, match=expected):
            list(reader.read(partition))
    else:
        assert [row for batch in reader.read(partition) for row in batch.to_pylist()] == expected


def test_bytes_of_a_table_are_bytes_and_never_a_text(tmp_path: Path) -> None:
    """They come as digits; in a column of another type they are refused."""
    pytest.importorskip("pyspark")
    from barnabas.pipelines.frames.lookup import LookupReader

    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (k)")
        connection.executemany("INSERT INTO t VALUES (?)", [(b"\x80",), ("\u00e9",), (None,)])
        connection.commit()
    options = {
        "kind": "sqlite",
        "place": str(path),
        "columns": '["k"]',
        "name": "t",
        "query": "SELECT k FROM t",
        "refresh_s": "1",
    }
    reader = LookupReader({**options, "binary": '["k"]'})
    (partition,) = reader.partitions()
    assert [row["k"] for batch in reader.read(partition) for row in batch.to_pylist()] == ["80", "c3a9", None]
    with pytest.raises(
        PipelineError, match="column k has bytes; declare it as binary, or have the query make a text of them"
    ):
        list(LookupReader({**options, "binary": "[]"}).read(partition))


def test_a_table_that_does_not_change_is_tried_once_while_its_reader_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file would be read fifty times in vain."""
    pytest.importorskip("pyspark")
    from barnabas.pipelines.frames import lookup

    tried: list[object] = []
    read_table = lookup._read_table

    def counted(options: Mapping[str, str]) -> object:
        tried.append(options)
        return read_table(options)

    monkeypatch.setattr(lookup, "_read_table", counted)
    path = tmp_path / "t.json"
    path.write_text("{")
    reader = lookup.LookupReader(
        {"kind": "json", "place": str(path), "columns": '["a"]', "name": "t"}, wait=lambda _: None
    )
    (partition,) = reader.partitions()
    with pytest.raises(PipelineError, match="line 1 is no JSON"):
        list(reader.read(partition))
    assert len(tried) == 1
