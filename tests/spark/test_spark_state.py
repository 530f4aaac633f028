"""What flows remember: state with time-outs, watermarks of earlier runs, tables that are topics."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from barnabas.pipelines.checks.trial import try_flow  # noqa: E402
from barnabas.pipelines.flows import load_flow  # noqa: E402
from barnabas.pipelines.frames.topic_table import read_topic_table  # noqa: E402
from barnabas.pipelines.progress.summary_text import wrong_lines  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.testing.flow_cases import load_cases, run_cases  # noqa: E402
from barnabas.testing.flows import FlowUnderTest  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
BY_HOUR = """\
name = "by-hour"
checkpoint = "state"
source = { bootstrap_servers = "localhost:9092", topics = ["t"], format = { type = "json", columns = { at = "timestamp", n = "int" } } }
aggregate = { time = "at", window = "1 hour", watermark = "10 minutes", compute = { n = "sum(n)" } }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""
LATE = """
[[tests]]
name = "a row after the watermark changes nothing"
late = 1
expect = [{ window_start = 2026-01-01T08:00:00Z, n = 1 }, { window_start = 2026-01-01T12:00:00Z, n = 5 }]
[[tests.given]]
source = [{ at = 2026-01-01T08:10:00Z, n = 1 }, { at = 2026-01-01T12:30:00Z, n = 2 }]
[[tests.given]]
source = [{ at = 2026-01-01T08:20:00Z, n = 100 }, { at = 2026-01-01T12:25:00Z, n = 3 }]
[[tests]]
name = "wrong"
late = 3
expect = [{ n = 1 }]
[[tests.given]]
source = [{ at = 2026-01-01T08:10:00Z, n = 1 }]
"""
JOINED = """\
name = "joined"
checkpoint = "state"
source = {{ bootstrap_servers = "{bootstrap}", topics = ["t"], format = {{ type = "json", columns = {{ id = "int", customer = "int" }} }} }}
[tables.customers]
type = "topic"
topic = "{table}"
format = {{ type = "json", columns = {{ customer = "int", country = "string" }} }}
[[steps]]
name = "joined"
sql = "select s.id, c.country from source s left join customers c on c.customer = s.customer"
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
key = ["id"]
"""


def test_late_rows_are_counted_by_the_tests_of_a_flow(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """The second run goes on from the watermark of the first, in virtual event time."""
    flow = spec.parse(BY_HOUR, file=str(tmp_path / "flow.toml"))
    (tmp_path / "cases.toml").write_text(LATE)
    found = run_cases(flow, load_cases(tmp_path / "cases.toml", flow), spark, cluster.bootstrap, tmp_path)
    assert [each.problem for each in found] == ["", "3 late rows were expected, and there are 0"]


def test_a_row_without_a_time_that_gets_to_a_window_is_a_bad_row(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """It would be in no window, and in no figure of the summary.

    A filter before leaves it out as the flow declares."""
    text = BY_HOUR.replace("aggregate = ", 'transform = { where = "n > 0" }\naggregate = ')
    flow = FlowUnderTest(spec.parse(text, file=str(tmp_path / "flow.toml")), spark, cluster.bootstrap, tmp_path)
    rows = [{"at": "2026-01-01T08:10:00Z", "n": 1}, {"at": None, "n": 2}, {"n": 3}, {"at": None, "n": 0}]
    result = flow.given(rows).run()
    assert (result.summary["rows"], result.summary["bad"], result.summary["timeless_rows"]) == (4, {"NO_TIME": 2}, 0)
    reason = "at, the time of aggregate, is null: a row without a time is in no window ("
    assert result.summary["bad_examples"]["NO_TIME"].startswith(reason)


def test_rows_of_a_query_without_a_time_are_counted(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """They are no records of a source, which could be bad rows. Sessions leave them out, too."""
    text = BY_HOUR.replace(
        "aggregate = ",
        'steps = [{ name = "q", sql = "select try_cast(at as timestamp) at, n from source" }]\naggregate = ',
    )
    text = text.replace('window = "1 hour"', 'group_by = ["k"], session = "1 hour"').replace(
        "from source", ", 1 as k from source"
    )
    text = text.replace('at = "timestamp"', 'at = "string"')
    flow = FlowUnderTest(spec.parse(text, file=str(tmp_path / "flow.toml")), spark, cluster.bootstrap, tmp_path)
    result = flow.given([{"at": "2026-01-01T08:10:00Z", "n": 1}, {"at": "", "n": 2}, {"n": 3}]).run()
    assert (result.summary["bad_rows"], result.summary["timeless_rows"]) == (0, 2)
    assert "without a time: 2 rows whose time is null are in no window" in list(wrong_lines(result.summary))


def test_windows_of_windows_follow_one_watermark(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Hours of ten minutes come out as the watermark passes them; a second watermark would hold
    everything back for ever."""
    minutes = 'window = "10 minutes", watermark = "1 minute", compute = { n = "sum(n)" }'
    step = 'steps = [{ name = "minutes", aggregate = { time = "at", %s } }]' % minutes  # noqa: UP031  # braces of TOML
    hours = 'aggregate = { time = "window_start", window = "1 hour", compute = { n = "sum(n)", parts = "count(*)" } }'
    head, sinks = BY_HOUR.split("aggregate = ")[0], BY_HOUR[BY_HOUR.index("[[sinks]]") :]
    text = f"{head}{step}\n{hours}\n{sinks}"
    with pytest.raises(spec.SpecError, match="aggregate.watermark: is set for window_start already"):
        spec.parse(text.replace('window = "1 hour"', 'window = "1 hour", watermark = "1 minute"'))
    flow = FlowUnderTest(spec.parse(text, file=str(tmp_path / "flow.toml")), spark, cluster.bootstrap, tmp_path)
    rows = [{"at": f"2026-01-01T{each // 60:02d}:{each % 60:02d}:00Z", "n": 1} for each in range(0, 200, 5)]
    result = flow.given(rows).run()
    result.assert_rows([{"window_start": f"2026-01-01 0{hour}:00:00", "n": 12, "parts": 6} for hour in range(3)])
    assert set(result.rows[0]) == {"window_start", "window_end", "n", "parts"}


def test_the_example_of_sensors_that_are_quiet_remembers_them_between_runs(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """A time-out comes when the event time of other sensors has passed it."""
    flow = FlowUnderTest(load_flow(EXAMPLES / "quiet_sensors.py"), spark, cluster.bootstrap, tmp_path)

    def row(sensor: str, time: str) -> dict[str, Any]:
        return {"sensor": sensor, "at": f"2026-01-01T10:{time}Z", "celsius": 20.5}

    flow.given([row("hall", "00:00"), row("hall", "03:00"), row("cellar", "05:00")]).run().assert_rows([])
    assert [each.message for each in try_flow(spark, flow.flow) if each.state == "error"] == []
    result = flow.given([row("cellar", "14:30")]).run()
    result.assert_rows([{"sensor": "hall", "last_at": "2026-01-01 10:03:00"}])


def test_a_table_is_the_last_values_of_a_topic(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Later rows of the flow see later values; a record without a value deletes its key.

    Those that do not fit are counted."""
    table = cluster.topic(2)

    def put(customer: int, country: str | None) -> None:
        value = None if country is None else b'{"customer": %d, "country": "%s"}' % (customer, country.encode())
        cluster.produce(table, [(str(customer).encode(), value)])

    put(1, "DE")
    put(2, "FR")
    put(2, "IT")
    cluster.produce(table, [(b"3", b"no JSON"), (None, b'{"customer": 4, "country": "NO"}')])
    text = JOINED.format(bootstrap=cluster.bootstrap, table=table)
    flow = FlowUnderTest(spec.parse(text, file=str(tmp_path / "f.toml")), spark, cluster.bootstrap, tmp_path)
    flow.given([{"id": each, "customer": each} for each in (1, 2, 3, 4)])
    first = [
        {"id": 1, "country": "DE"},
        {"id": 2, "country": "IT"},
        {"id": 3, "country": None},
        {"id": 4, "country": None},
    ]
    result = flow.run()
    result.assert_rows(first)
    (found,) = result.summary["tables"].values()
    assert (found["rows"], found["bad_rows"]) == (4, 2)
    assert found["example"].startswith(f"the record has no key, by which tables know rows ({table}-")
    put(1, None)
    put(3, "ES")
    flow.given([{"id": each + 10, "customer": each} for each in (1, 2, 3)])
    flow.run().assert_rows(
        [*first, {"id": 11, "country": None}, {"id": 12, "country": "IT"}, {"id": 13, "country": "ES"}]
    )


def test_a_table_begins_again_with_a_topic_that_is_made_again(cluster: Any) -> None:
    """Keys of the topic before are gone, also when the new one is longer than what was read."""
    table = cluster.topic(1)
    source = {"subscribe": table, "kafka.bootstrap.servers": cluster.bootstrap}

    def keys() -> list[bytes]:
        return sorted(read_topic_table("test", source)["key"].to_pylist())

    cluster.produce(table, [(b"a", b"1"), (b"b", b"1")])
    assert keys() == [b"a", b"b"]
    cluster.make_again(table)
    cluster.produce(table, [(b"c", b"1"), (b"d", b"1"), (b"e", b"1")])
    assert keys() == [b"c", b"d", b"e"]
    cluster.produce(table, [(b"c", None), (b"f", b"1")])
    assert keys() == [b"d", b"e", b"f"]
