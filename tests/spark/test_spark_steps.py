"""Flows of several steps: joins, tables that change, deduplication, sessions, expectations;
through the fixture for tests."""

import datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.checks.analysis import find_problems  # noqa: E402
from barnabas.pipelines.errors import PipelineError  # noqa: E402
from barnabas.pipelines.flows import declare, fields, sqlite, topic  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.testing.flows import FlowUnderTest  # noqa: E402

FLOW = """\
name = "paid"
checkpoint = "state"
[sources.orders]
bootstrap_servers = "localhost:9092"
topics = ["orders"]
watermark = { time = "at", delay = "1 hour" }
format = { type = "json", columns = { id = "bigint", at = "timestamp", customer = "int", price = "double" } }
[sources.payments]
topics = ["payments"]
watermark = { time = "paid_at", delay = "1 hour" }
format = { type = "csv", columns = { order_id = "bigint", paid_at = "timestamp" } }
[tables.customers]
type = "json"
path = "customers.json"
columns = { customer = "int", country = "string" }
[transform]
derive = { share = "price / customer" }
[[steps]]
name = "once"
from = "orders"
deduplicate = ["id"]
[[steps]]
name = "paid"
sql = '''
select o.id, o.price, c.country, p.paid_at
from payments p join once o on p.order_id = o.id and p.paid_at between o.at and o.at + interval 1 hour
left join customers c on c.customer = o.customer'''
[[expectations]]
name = "has_price"
check = "price > 0"
on_fail = "drop"
[[expectations]]
name = "cheap"
check = "price < 1000"
of = "paid"
[[sinks]]
type = "sqlite"
path = "out.db"
table = "paid"
key = ["id"]
"""


def test_streams_and_a_table_are_joined_and_the_table_is_read_again(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Repetitions and rows without a price are left out; a country that comes later
    is seen by later rows."""
    (tmp_path / "customers.json").write_text('[{"customer": 1, "country": "DE"}]')
    flow = FlowUnderTest(spec.parse(FLOW, file=str(tmp_path / "f.toml")), spark, cluster.bootstrap, tmp_path)
    order = {"id": 1, "at": "2026-01-01T00:00:00Z", "customer": 1, "price": 5}
    orders = [
        order,
        order,
        {**order, "id": 2, "price": -1},
        {**order, "id": 3, "price": 2000, "customer": 2},
        {"id": "x"},
        {**order, "id": 6, "customer": 0},
    ]
    payments = [{"order_id": each, "paid_at": "2026-01-01T00:30:00Z"} for each in (1, 2, 3)]
    result = flow.given(orders, payments=payments).run()
    first = {"id": 1, "country": "DE", "paid_at": "2026-01-01 00:30:00"}
    result.assert_rows([first, {"id": 3, "country": None, "paid_at": "2026-01-01 00:30:00"}])
    assert result.summary["expectations"] == {"has_price": 1, "cheap": 1}
    assert result.summary["bad"] == {"WRONG_TYPE": 1, "column id": 1, "EXPRESSION": 1}
    (tmp_path / "customers.json").write_text('[{"customer": 1, "country": "FR"}]')
    flow.given([{**order, "id": 4}, order], payments=[{"order_id": 4, "paid_at": "2026-01-01T00:30:00Z"}])
    flow.run().assert_rows([{"id": 1, "country": "DE"}, {"id": 3, "country": None}, {"id": 4, "country": "FR"}])
    checkpoint = Checkpoint(flow.flow)
    assert checkpoint.source_order() == ["payments", "orders"], "as the query reads them"
    assert [list(each.values()) for each in checkpoint.position()] == [[8], [4]]
    with pytest.raises(PipelineError, match="which was payments, orders and is orders, payments now: undo the change"):
        checkpoint.require_order(["orders", "payments"])
    with pytest.raises(AssertionError, match="- id=9"):
        result.assert_rows([{"id": 9}])


def late(rows: Any) -> Any:
    """Rows that were late."""
    return rows.where("delay > 15")


def test_sessions_end_after_their_gap_and_limits_stop_a_flow(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """A step in Python, then sessions, which are final when event time has passed
    them by the delay."""
    flow = declare(
        "sessions",
        checkpoint="state",
        source=topic("clicks", format=fields("csv", user="string", at="timestamp", delay="int"), max_bad="10%"),
        steps=[late],
        aggregate={"time": "at", "session": "10 minutes", "watermark": "1 minute", "group_by": ["user"], "compute": {"n": "count(*)"}},
        sinks=[sqlite("out.db", "sessions")],
    )  # fmt: skip
    tested = FlowUnderTest(flow, spark, cluster.bootstrap, tmp_path)
    rows = [f"a,2026-01-01T00:{minute:02d}:00Z,20" for minute in (0, 5, 9, 30)] + ["a,2026-01-01T00:12:00Z,3"]
    tested.given([*rows, "b,2026-01-01T05:00:00Z,99"])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    minutes = datetime.timedelta(minutes=1)
    tested.run().assert_rows(
        [
            {"window_start": start, "window_end": start + 19 * minutes, "user": "a", "n": 3},
            {"window_start": start + 30 * minutes, "window_end": start + 40 * minutes, "user": "a", "n": 1},
        ]
    )
    with pytest.raises(
        BarnabasError, match=r"1 of 1 rows of source are bad, more than max_bad = 10% .*column delay is soon"
    ):
        tested.given(["c,2026-01-01T05:00:00Z,soon"]).run()
    with pytest.raises(BarnabasError, match=r"the run before this one passed max_bad: 1 of 1 rows of source are bad"):
        tested.run()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("join once o", "join onse o", "steps[1].sql: there is no view onse before this step; did you mean once?"),
        ("c.country", "c.contry", "steps[1].sql: there is no column c.contry; did you mean country?"),
        ("select o.id", "drop table x; select o.id", "steps[1].sql: syntax error at or near 'drop'"),
        ('"price > 0"', '"prise > 0"', "expectations[0].check: there is no column prise; did you mean price?"),
        ('key = ["id"]', "", "sinks[0].key: is missing: the results have no position in a topic; take columns from id"),
        ("customers.json", "customer.json", "tables.customers: the table customers cannot be read: there is no "),
        ('["id"]\n[[steps', '["ID2"]\n[[steps', "steps[0].deduplicate: there is no column ID2"),
        ('time = "at"', 'time = "att"', "sources.orders.watermark: there is no column att; did you mean at?"),
        ("o.price, c", "o.price, o.price, c", "sinks: the results have 2 columns price; rename or leave out one"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_step_is_found_without_a_cluster(
    spark: Any, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """Views, columns, keys, tables and commands that are no query."""
    (tmp_path / "customers.json").write_text("[]")
    assert FLOW.count(old) == 1
    flow = spec.parse(FLOW.replace(old, new), file=str(tmp_path / "f.toml"))
    found = find_problems(spark, flow)
    assert [f"{each.field}: {each.message}"[: len(problem)] for each in found] == [problem]


ON_ARROW = """\
import pyarrow.compute as pc


def lower(batches):
    for batch in batches:
        yield batch.set_column(0, "kind", pc.utf8_lower(batch["kind"]))


def lowered(source):
    return source.select("kind", "n").mapInArrow(lower, "kind string, n int")
"""
EXPECTING = """\
name = "counts"
checkpoint = "state"
steps = [{ function = "functions.py:lowered" }]
source = { bootstrap_servers = "localhost:9092", topics = ["t"], format = { type = "json", columns = { kind = "string", n = "int" } } }
aggregate = { group_by = ["kind"], compute = { total = "sum(n)" } }
[[expectations]]
name = "small"
of = "results"
check = "total < 100"
on_fail = "fail"
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


def test_the_fixture_runs_a_file_on_a_topic_and_a_broken_expectation_ends_the_flow(
    barnabas_flow: Any, tmp_path: Path
) -> None:
    """Figures are updated from run to run.

    The batch with the figure that was not expected reaches no sink. A step works on Arrow, and rows
    are compared with frames, too.
    """
    (tmp_path / "functions.py").write_text(ON_ARROW)
    (tmp_path / "flow.toml").write_text(EXPECTING)
    flow = barnabas_flow(tmp_path / "flow.toml").given(
        [{"kind": "A", "n": 1}, {"kind": "a", "n": 2}, {"kind": "b", "n": 5}]
    )
    frame = pa.table({"kind": ["b", "a"], "total": [5, 3]})
    result = flow.run()
    result.assert_rows(frame)
    result.assert_rows(frame.to_pandas())
    with pytest.raises(AssertionError, match="- kind=c, total=1"):
        result.assert_rows(pa.table({"kind": ["c"], "total": [1]}))
    flow.given([{"kind": "a", "n": 4}]).run().assert_rows([{"kind": "a", "total": 7}, {"kind": "b", "total": 5}])
    with pytest.raises(BarnabasError, match="^the expectation small is not met: total < 100; the row is .*999"):
        flow.given([{"kind": "c", "n": 999}]).run()
