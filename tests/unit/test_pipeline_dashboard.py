"""The dashboard: charts over results of every sink that can be read back, and the
same figures for Prometheus."""

import datetime
import decimal
import http.client
import json
import re
import shutil
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("plotly")
pytest.importorskip("duckdb")

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.dashboard.charts import (  # noqa: E402
    ChartError,
    default_charts,
    draw_chart,
    metrics_text,
    run_metrics_text,
    series_of,
)
from barnabas.pipelines.dashboard.queries import query_problem, run_query  # noqa: E402
from barnabas.pipelines.dashboard.results import NoResultError, ResultReader  # noqa: E402
from barnabas.pipelines.dashboard.server import Dashboard, DashboardServer  # noqa: E402
from barnabas.pipelines.outputs.declared import LakeSink  # noqa: E402
from barnabas.pipelines.outputs.registry import open_output  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.specification.charts import Chart  # noqa: E402
from barnabas.pipelines.specification.spec import DatabaseSink  # noqa: E402
from support.dashboards import served_dashboard  # noqa: E402

TYPES = {"window_start": "timestamp", "carrier": "string", "flights": "bigint", "delay": "double"}
SCHEMA = pa.schema(
    [
        ("window_start", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("flights", pa.int64()),
        ("delay", pa.float64()),
    ]
)
FLOW = """
name = "flow"
checkpoint = "state"
[source]
bootstrap_servers = "h:1"
topics = ["t"]
[source.format]
type = "json"
columns = { at = "timestamp", carrier = "string", delay = "double" }
[aggregate]
time = "at"
window = "1 day"
watermark = "1 day"
group_by = ["carrier"]
compute = { flights = "count(*)", delay = "avg(delay)" }
[[sinks]]
type = "topic"
topic = "out"
[[sinks]]
type = "sqlite"
path = "out"
table = "t"
"""


def rows(*figures: tuple[int, str | None, int, float | None]) -> Any:
    values = [
        {
            "window_start": datetime.datetime(2013, 1, day, tzinfo=datetime.UTC),
            "carrier": carrier,
            "flights": flights,
            "delay": delay,
        }
        for day, carrier, flights, delay in figures
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


ROWS = rows((2, "AA", 5, 1.5), (1, "AA", 3, 2.5), (1, "UA", 9, None))


def fill(sink: Any, values: Any = ROWS, epoch: int = 0) -> None:
    output = open_output(sink, TYPES, SCHEMA, rows_change=sink.type != "parquet")
    output.apply(values, "flow", "query", epoch)
    output.close()


@pytest.fixture(params=["sqlite", "duckdb", "delta", "parquet"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Every sink of this machine whose results can be read back."""
    path = str(tmp_path / "out")
    if request.param in ("delta", "parquet"):
        return LakeSink(request.param, path, ("window_start", "carrier"))
    return DatabaseSink(request.param, path, "t", ("window_start", "carrier"))


def test_results_are_read_back_with_times_as_times(sink: Any) -> None:
    """Also from SQLite, which keeps them as texts."""
    fill(sink)
    table = ResultReader(sink).read()
    assert table.column_names == SCHEMA.names
    assert sorted(table.to_pylist(), key=str) == sorted(ROWS.to_pylist(), key=str)


def test_the_mark_changes_with_the_result(sink: Any) -> None:
    """What is as it was is not read again."""
    fill(sink)
    reader = ResultReader(sink)
    before = reader.mark()
    assert reader.mark() == before
    fill(sink, rows((3, "DL", 1, 1.0)), epoch=1)
    assert reader.mark() != before


def test_a_sink_that_is_not_there_yet_is_said_so(sink: Any) -> None:
    """The flow has not run."""
    with pytest.raises(NoResultError, match="out"):
        ResultReader(sink).read()


def test_lines_are_in_the_order_of_time_and_one_for_each_color() -> None:
    """A null figure is a gap."""
    found = series_of(Chart("c", "line", "window_start", ("flights", "delay"), "carrier"), ROWS)
    assert [(each.figure, each.group, each.y) for each in found] == [
        ("flights", "AA", [3.0, 5.0]),
        ("flights", "UA", [9.0]),
        ("delay", "AA", [2.5, 1.5]),
        ("delay", "UA", [None]),
    ]


def test_a_wrong_column_is_named_with_those_there_are() -> None:
    """As the page shows it."""
    with pytest.raises(ChartError, match="no column flight; there are window_start, carrier, flights, delay"):
        series_of(Chart("c", "bar", "carrier", ("flight",)), ROWS)
    with pytest.raises(ChartError, match="carrier is 'AA', which is no number"):
        series_of(Chart("c", "bar", "window_start", ("carrier",)), ROWS)


def test_metrics_are_the_last_points_of_lines_and_all_bars() -> None:
    """In Prometheus's text form, with labels escaped."""
    line = Chart("by day", "line", "window_start", ("flights",), "carrier")
    bars = Chart('the "bars"', "bar", "carrier", ("delay",))
    text = metrics_text("flow", [(chart, series_of(chart, ROWS.slice(0, 2))) for chart in (line, bars)], 1)
    assert [each for each in text.splitlines() if not each.startswith("#")] == [
        'barnabas_pipeline_result{flow="flow",chart="by day",figure="flights",carrier="AA"} 5',
        'barnabas_pipeline_result{flow="flow",chart="the \\"bars\\"",figure="delay",carrier="AA"} 1.5',
        'barnabas_pipeline_result{flow="flow",chart="the \\"bars\\"",figure="delay",carrier="AA"} 2.5',
        'barnabas_pipeline_chart_problems{flow="flow"} 1',
    ]


def test_metrics_of_a_run_count_rows_bad_rows_and_expectations() -> None:
    """A figure that is not known, as the lag at the start, is left out; before the
    first run there is none."""
    run = {"pid": 7, "rows": 10, "bad_rows": 2, "bad": {"column n": 2}, "late_rows": 0, "lag": None}
    text = run_metrics_text("flow", {**run, "expectations": {"small": 3, "has_price": 0}}, is_running=True)
    assert [each for each in text.splitlines() if not each.startswith("#")] == [
        'barnabas_pipeline_running{flow="flow"} 1',
        'barnabas_pipeline_failed{flow="flow"} 0',
        'barnabas_pipeline_rows{flow="flow"} 10',
        'barnabas_pipeline_bad_rows{flow="flow"} 2',
        'barnabas_pipeline_bad_rows_by_kind{flow="flow",kind="column n"} 2',
        'barnabas_pipeline_late_rows{flow="flow"} 0',
        'barnabas_pipeline_unmet_rows{flow="flow",expectation="small"} 3',
        'barnabas_pipeline_unmet_rows{flow="flow",expectation="has_price"} 0',
    ]
    assert run_metrics_text("flow", {}) == ""


@pytest.mark.parametrize(
    ("run", "is_running", "shown"),
    [
        ({"rows": 1, "status": "failed"}, False, "1"),
        ({"rows": 1, "status": "done"}, False, "0"),
        ({"rows": 1}, False, "1"),  # killed: it noted no end
        ({"rows": 1}, True, "0"),
    ],
)
def test_a_run_that_failed_or_was_killed_shows_as_failed_until_the_next(
    run: dict[str, object], is_running: bool, shown: str
) -> None:
    """For an alert."""
    assert f'barnabas_pipeline_failed{{flow="flow"}} {shown}\n' in run_metrics_text("flow", run, is_running=is_running)


def test_a_flow_without_charts_has_one_for_each_figure() -> None:
    """Over time where there are windows."""
    assert default_charts(spec.parse(FLOW)) == (
        Chart("flights", "line", "window_start", ("flights",), "carrier"),
        Chart("delay", "line", "window_start", ("delay",), "carrier"),
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DashboardServer]:
    """A dashboard over a flow with a chart of its own, and one that is wrong."""
    charts = """
[[charts]]
title = "Flights"
type = "bar"
x = "carrier"
y = ["all_flights"]
query = "SELECT carrier, sum(flights) AS all_flights FROM results GROUP BY carrier ORDER BY carrier"
[[charts]]
title = "Wrong"
x = "carrier"
y = ["n"]
query = "SELECT nothing"
[[charts]]
title = "Rows"
type = "table"
"""
    flow = spec.parse(FLOW + charts, file=str(tmp_path / "flow.toml"))
    with served_dashboard(flow) as running:
        yield running


def get(server: DashboardServer, path: str) -> tuple[str, str]:
    with urllib.request.urlopen(server.url + path, timeout=30) as response:
        return response.headers["Content-Type"], response.read().decode()


def test_the_server_gives_page_library_figures_and_metrics(server: DashboardServer, tmp_path: Path) -> None:
    """Nothing is fetched from elsewhere."""
    fill(DatabaseSink("sqlite", str(tmp_path / "out"), "t", ("window_start", "carrier")))
    kind, page = get(server, "")
    assert kind.startswith("text/html")
    assert "<h1>flow</h1>" in page
    assert "http" not in page.replace('meta name="viewport"', "")
    assert len(get(server, "plotly.js")[1]) > 1_000_000
    figures = json.loads(get(server, "figures.json")[1])
    assert figures["rows"] == {"2": 3}
    first, wrong, table = figures["charts"]
    trace = first["figure"]["data"][0]
    assert (trace["type"], trace["x"], trace["y"]) == ("bar", ["AA", "UA"], [8.0, 9.0])
    assert wrong["problem"].startswith("query: ")
    assert table["figure"]["data"][0]["type"] == "table"
    kind, metrics = get(server, "metrics")
    assert kind.startswith("text/plain; version=0.0.4")
    assert 'chart="Flights",figure="all_flights",carrier="AA"} 8\n' in metrics
    assert 'barnabas_pipeline_chart_problems{flow="flow"} 1' in metrics
    assert "barnabas_pipeline_unmet_rows" not in metrics
    checkpoint = Checkpoint(spec.parse(FLOW, file=str(tmp_path / "flow.toml")))
    checkpoint.folder.mkdir(exist_ok=True)
    checkpoint.note_run({"rows": 5, "expectations": {"small": 3}})
    assert 'barnabas_pipeline_unmet_rows{flow="flow",expectation="small"} 3\n' in get(server, "metrics")[1]
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        get(server, "etc/passwd")
    refused.value.close()


def test_before_the_flow_has_run_the_page_says_so(server: DashboardServer) -> None:
    """There is no database yet, and none is made."""
    figures = json.loads(get(server, "figures.json")[1])
    assert figures["charts"][0]["problem"].startswith("cannot read table t in ")


def test_a_flow_without_a_sink_to_read_is_refused() -> None:
    """A topic alone."""
    with pytest.raises(NoResultError, match="no sink to read results from"):
        Dashboard(spec.parse(FLOW[: FLOW.rindex("[[sinks]]")]))


def test_values_of_several_types_are_shown(tmp_path: Path) -> None:
    """SQLite allows them in one column."""
    with closing(sqlite3.connect(tmp_path / "out")) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), ("x",), (None,)])
        connection.commit()
    table = ResultReader(DatabaseSink("sqlite", str(tmp_path / "out"), "t", ("a",))).read()
    assert table["a"].to_pylist() == ["1", "x", None]


@pytest.mark.parametrize(
    "query",
    [
        *("COPY (SELECT 42 AS a) TO 'written.csv'", "COPY (SELECT 42 AS a) TO 'written.csv'; SELECT 1 AS carrier"),
        *("SELECT 1; SELECT 2", "SELECT content AS carrier FROM read_text('secret.txt')", "SELECT * FROM 'secret.csv'"),
        *(
            "ATTACH 'written.db'",
            "EXPORT DATABASE 'written'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SELECT file FROM glob('*')",
        ),
        *(
            "SELECT * FROM columns",
            "CREATE TABLE x AS SELECT 1",
            "CALL pragma_version()",
            "PRAGMA version",
            " -- nothing",
        ),
        *("SET enable_external_access = true", "EXPLAIN ANALYZE SELECT 1"),
        "SELECT * FROM query('COPY (SELECT 1) TO ''written.csv''')",
    ],
)
def test_a_query_reads_results_only_and_a_check_runs_none(
    query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither files nor the network, extensions, settings, or variables of this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("secret.txt", "secret.csv"):
        (tmp_path / name).write_text("a\n1\n")
    columns = pa.table({"carrier": ["AA"]})
    chart = Chart("t", "bar", "carrier", ("carrier",), None, query)
    found = query_problem(chart, ["carrier"])
    assert found is not None
    assert found[0] == "query"
    with pytest.raises(ChartError, match="^query: "):
        run_query(chart, columns)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret.csv", "secret.txt"]


def test_a_pivot_is_a_query() -> None:
    """For DuckDB it is several statements."""
    chart = Chart("t", "table", "", (), None, "PIVOT results ON carrier USING count(*)")
    assert query_problem(chart, ["carrier"]) is None
    assert run_query(chart, pa.table({"carrier": ["AA", "UA", "AA"]})).to_pylist() == [{"AA": 2, "UA": 1}]


def test_a_view_of_a_database_reads_no_file(tmp_path: Path) -> None:
    """The file may be another person's."""
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "secret.txt").write_text("x")
    with duckdb.connect(str(tmp_path / "out")) as connection:
        connection.execute(f"CREATE VIEW t AS SELECT content FROM read_text('{tmp_path}/secret.txt')")
    with pytest.raises(NoResultError, match="disabled by configuration"):
        ResultReader(DatabaseSink("duckdb", str(tmp_path / "out"), "t", ("content",))).read()


@pytest.mark.parametrize(
    ("query", "y", "problem"),
    [
        ("SELECT carrier, sum(n) AS total FROM results GROUP BY ALL", "total", None),
        ("SELEC 1", "total", ("query", "syntax error")),
        ("SELECT carier FROM results", "total", ("query", 'Referenced column "carier" not found')),
        ("SELECT * FROM result", "total", ("query", "Table with name result does not exist")),
        ("SELECT carrier, n AS totals FROM results", "total", ("y", "did you mean totals")),
        (
            "SELECT date_trunc('day', carrier) AS carrier, round(avg(n), 1) AS total FROM results GROUP BY ALL",
            "total",
            None,
        ),
    ],
)
def test_a_wrong_query_is_noticed_before_there_are_results(query: str, y: str, problem: tuple[str, str] | None) -> None:
    """Names and syntax; types differ from one sink to another."""
    found = query_problem(Chart("t", "bar", "carrier", (y,), None, query), ["carrier", "n"])
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == problem[0]
        assert problem[1] in found[1]


def draw(chart: Chart, table: Any) -> dict[str, Any]:
    """The figure as a browser gets it; raises for what JSON does not have."""
    text = json.dumps(draw_chart(chart, table), allow_nan=False)
    return dict(json.loads(text))


ODD = pa.table(
    {
        "name": ["<b>one</b>", "2e3", "a & b", None],
        "value": [1.5, float("nan"), float("inf"), float("-inf")],
        "large": [2**53 + 1, -(2**60), 1, None],
        "at": pa.array([0, 2**62, -(2**62), None], pa.timestamp("us", "UTC")),
        "exact": pa.array([decimal.Decimal("0.10"), None, None, None], pa.decimal128(38, 2)),
    }
)


def test_numbers_that_json_lacks_are_null_in_every_kind_of_chart() -> None:
    """A record with NaN or 1e999 hides nothing else: as a figure, on the axis, as a
    group and in a table."""
    bar = draw(Chart("c", "bar", "name", ("value",)), ODD)["data"][0]
    assert bar["y"] == [1.5, None, None]
    line = draw(Chart("c", "line", "value", ("large",)), ODD)["data"][0]
    assert line["x"] == [1.5]
    assert len(draw(Chart("c", "bar", "large", ("value",), "value"), ODD)["data"]) == 3
    table = draw(Chart("c", "table", "", ()), ODD)["data"][0]
    assert table["cells"]["values"][1] == [None, None, None, 1.5]


def test_values_that_javascript_or_python_cannot_hold_are_texts_in_a_table() -> None:
    """Whole numbers of more than 53 bits, decimals, and times beyond the year 9999."""
    cells = draw(Chart("c", "table", "", ()), ODD)["data"][0]["cells"]["values"]
    assert cells[2] == [None, 1, str(-(2**60)), str(2**53 + 1)]
    assert cells[3] == [
        None,
        f"{-(2**62)} timestamp[us, tz=UTC]",
        f"{2**62} timestamp[us, tz=UTC]",
        "1970-01-01 00:00:00+00:00",
    ]
    assert cells[4][-1] == "0.10"


def test_values_and_names_are_shown_as_text() -> None:
    """Plotly takes a part of HTML in texts for markup, and texts that look like
    numbers for numbers."""
    chart = Chart("<i>title</i>", "bar", "name", ("value",), "name")
    figure = draw(chart, ODD)
    assert figure["layout"]["title"]["text"] == "&lt;i&gt;title&lt;/i&gt;"
    assert figure["layout"]["xaxis"]["type"] == "category"
    assert [each["name"] for each in figure["data"]] == ["2e3", "&lt;b&gt;one&lt;/b&gt;", "a &amp; b"]
    assert [each["x"] for each in figure["data"]] == [["2e3"], ["&lt;b&gt;one&lt;/b&gt;"], ["a &amp; b"]]
    table = draw(Chart("c", "table", "", ()), pa.table({"<u>": ["<script>"]}))["data"][0]
    assert (table["header"]["values"], table["cells"]["values"]) == (["&lt;u&gt;"], [["&lt;script&gt;"]])
    assert 'carrier="<b>one</b>"' not in metrics_text("f", [(chart, series_of(chart, ODD))], 0)
    assert 'name="<b>one</b>"' in metrics_text("f", [(chart, series_of(chart, ODD))], 0)


def test_times_and_dates_have_an_axis_of_time() -> None:
    """Also dates that SQLite keeps as texts."""
    for values in ([datetime.date(2013, 1, 1)], ["2013-01-01"], [datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)]):
        figure = draw(Chart("c", "line", "at", ("n",)), pa.table({"at": values, "n": [1]}))
        assert figure["layout"]["xaxis"]["type"] == "date"


def status_of(server: DashboardServer, headers: dict[str, str], path: str = "/figures.json") -> tuple[int, Any]:
    with closing(http.client.HTTPConnection(*server.server_address[:2], timeout=30)) as connection:
        connection.putrequest("GET", path, skip_host=True)
        for name, text in headers.items():
            connection.putheader(name, text)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1:8050", 200), ("localhost", 200), ("LOCALHOST.:1", 200), ("[::1]:8050", 200), ("10.0.0.5", 200)),
        *(("dashboards.example:8050", 200), ("evil.example:8050", 421), ("127.0.0.1.evil.example", 421), ("", 421)),
        *(("localhost.evil.example", 421), ("evil.example:127.0.0.1", 421)),
    ],
)
def test_a_name_that_is_not_the_servers_is_refused(server: DashboardServer, host: str, status: int) -> None:
    """A page of another site may lead its own name to this machine, to read the answers."""
    server.names.add("dashboards.example")
    assert status_of(server, {"Host": host})[0] == status


def test_a_request_without_a_host_is_refused(server: DashboardServer) -> None:
    """No browser sends one."""
    assert status_of(server, {})[0] == 421


@pytest.mark.parametrize("path", ["/", "/page.js", "/figures.json", "/metrics", "/nothing"])
def test_every_answer_says_what_a_browser_may_do_with_it(server: DashboardServer, path: str) -> None:
    """No script runs but the server's own files, nothing is loaded from elsewhere, and no other
    site has the page in a frame."""
    _, headers = status_of(server, {"Host": "localhost"}, path)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "<script>" not in get(server, "")[1]


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no browser")
def test_charts_fit_their_cells_and_show_texts_as_they_are(tmp_path: Path) -> None:
    """In a browser: the first chart is drawn when the others have their places, and a
    value with markup is text."""
    database = tmp_path / "out"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE t (carrier, flights, delay, window_start)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?, '2013-01-01T00:00:00.000000Z')",
            [("<b>bold</b>", 3, 1e999), ("<img src=x onerror=alert(1)>", 2, 2.0)],
        )
        connection.commit()
    chart = '[[charts]]\ntitle = "<u>c</u>"\ntype = "bar"\nx = "carrier"\ny = ["flights", "delay"]\n'
    flow = spec.parse(
        FLOW + 3 * chart + '[[charts]]\ntitle = "rows"\ntype = "table"\n', file=str(tmp_path / "flow.toml")
    )
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--dump-dom"]
    with served_dashboard(flow) as running:
        command = [*words, f"--user-data-dir={tmp_path}/browser", "--virtual-time-budget=15000", running.url]
        page = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    widths = [float(each) for each in re.findall(r'<svg class="main-svg"[^>]* width="([\d.]+)"', page)]
    assert len(widths) >= 4, page[-2000:]
    assert max(widths) < 700
    assert page.count(">&lt;b&gt;bold&lt;/b&gt;</text>") >= 4  # along three axes, and in the table
    assert page.count(">&lt;u&gt;c&lt;/u&gt;</text>") == 3
    assert "<img src=" not in page
    assert "2 rows at" in page
