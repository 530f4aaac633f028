"""The dashboard of a flow in Chromium: what a person sees of its charts, and that
they follow the result."""

import datetime
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("plotly")
pytest.importorskip("duckdb")

from barnabas.pipelines.dashboard.server import DashboardServer  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from support.dashboards import served_dashboard  # noqa: E402
from support.databases import open_database  # noqa: E402
from support.needs import needs, program  # noqa: E402

pytestmark = [pytest.mark.interop, needs("chromium"), pytest.mark.timeout(600)]

FLOW = """\
name = "delays"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["flights"]
format = { type = "json", columns = { carrier = "string", at = "timestamp" } }
[aggregate]
time = "at"
window = "1 day"
watermark = "1 day"
group_by = ["carrier"]
compute = { flights = "count(*)" }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
[[charts]]
title = "Flights by airline"
type = "bar"
x = "carrier"
y = ["flights"]
[[charts]]
title = "Flights by day"
x = "window_start"
y = ["flights"]
color = "carrier"
[[charts]]
title = "Wrong"
x = "carrier"
y = ["n"]
query = "SELECT nothing"
"""
DAY = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
TYPES = {"window_start": "timestamp", "window_end": "timestamp", "carrier": "string", "flights": "bigint"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DashboardServer]:
    """A dashboard over a flow in this folder."""
    with served_dashboard(spec.parse(FLOW, file=str(tmp_path / "flow.toml"))) as running:
        yield running


def fill(server: DashboardServer, folder: Path, epoch: int, carriers: str) -> None:
    """A micro-batch with a row for each airline."""
    sink = spec.parse(FLOW, file=str(folder / "flow.toml")).sinks[0]
    assert isinstance(sink, spec.DatabaseSink)
    rows = [
        {"window_start": DAY, "window_end": DAY + datetime.timedelta(days=1), "carrier": each, "flights": 5}
        for each in carriers
    ]
    database = open_database(sink, TYPES)
    database.apply(pa.Table.from_pylist(rows), "delays", "query", epoch)
    database.close()


def seen(server: DashboardServer, folder: Path) -> str:
    """The page as Chromium has drawn it, once its charts are there."""
    command = [str(program("chromium")), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000", "--dump-dom", server.url]
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if "Flights by day" in done.stdout:
            return done.stdout
    raise AssertionError(done.stdout[-2000:] + done.stderr[-2000:])


def test_chromium_draws_the_charts_and_follows_the_result(server: DashboardServer, tmp_path: Path) -> None:
    """A bar for each airline, a line for each, the problem of a wrong chart in words; more of them
    when more rows are there."""
    fill(server, tmp_path, 0, "AU")
    page = seen(server, tmp_path)
    assert len(re.findall(r'<g class="point">', page)) == 2
    assert {"A", "U"} <= set(re.findall(r'class="legendtext"[^>]*>([^<]+)</text>', page))
    assert "Wrong: query: " in page
    assert "2 rows at " in page
    fill(server, tmp_path, 1, "AUD")
    page = seen(server, tmp_path)
    assert len(re.findall(r'<g class="point">', page)) == 3
    assert "3 rows at " in page
