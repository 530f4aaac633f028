"""The dashboard's server: a page, its figures as JSON, and the figures for Prometheus. Plain HTTP, from this machine only unless asked.

/               the page, which asks for the figures again and again
/figures.json   the charts as Plotly draws them
/metrics        the same figures and those of the flow's last run, in Prometheus's text form
/plotly.js      the library, from its Python package: a browser without Internet shows the charts
"""

import html
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.charts_spec import Chart
from barnabas.pipelines.checkpoints import Checkpoint
from barnabas.pipelines.dashboard.charts import (
    ChartError,
    Series,
    default_charts,
    draw_chart,
    metrics_text,
    run_metrics_text,
    series_of,
)
from barnabas.pipelines.dashboard.queries import run_query
from barnabas.pipelines.dashboard.results import NoResultError, ResultReader, readable_sinks
from barnabas.pipelines.spec import Flow

__all__ = ["Dashboard", "DashboardServer"]

_REREAD_S = 1.0


class _State(NamedTuple):
    figures: bytes
    metrics: bytes


class Dashboard:
    """A flow's charts, drawn again when its results have changed."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._charts = flow.charts or default_charts(flow)
        known = readable_sinks(flow.sinks)
        if not known:
            raise NoResultError(
                f"the flow {flow.name} has no sink to read results from; add one, such as SQLite, beside its topic"
            )
        self._first = known[0][0]
        self._readers = {number: ResultReader(sink) for number, sink in known}
        for chart in self._charts:
            if chart.sink is not None and chart.sink not in self._readers:
                raise NoResultError(f"the chart {chart.title} is of sink {chart.sink + 1}, which cannot be read back")
        self._lock = threading.Lock()
        self._marks: Any = None
        self._read_at = float("-inf")
        self._state = _State(b"{}", b"")

    def state(self) -> _State:
        """The figures as they are now; browsers that ask at the same time share one reading."""
        with self._lock:
            now = time.monotonic()
            if now >= self._read_at + _REREAD_S:
                marks = [reader.mark() for reader in self._readers.values()]
                if None in marks or marks != self._marks:
                    self._state = self._draw()
                    self._marks = marks
                self._read_at = now
            return self._state

    def _draw(self) -> _State:
        tables: dict[int, pa.Table] = {}
        shown: list[dict[str, Any]] = []
        drawn: list[tuple[Chart, list[Series]]] = []
        problems = 0
        for chart in self._charts:
            number = self._first if chart.sink is None else chart.sink
            try:
                if number not in tables:
                    tables[number] = self._readers[number].read()
                rows = run_query(chart, tables[number])
                shown.append({"title": chart.title, "figure": draw_chart(chart, rows)})
                if chart.type != "table":
                    drawn.append((chart, series_of(chart, rows)))
            except (BarnabasError, ChartError) as error:
                shown.append({"title": chart.title, "problem": self._flow.hide(str(error))})
                problems += 1
        rows_by_sink = {str(number + 1): table.num_rows for number, table in tables.items()}
        figures = {"flow": self._flow.name, "rows": rows_by_sink, "charts": shown}
        return _State(
            json.dumps(figures, default=str).encode(), metrics_text(self._flow.name, drawn, problems).encode()
        )

    def metrics(self) -> bytes:
        """All figures for Prometheus; those of the run change without its results."""
        return self.state().metrics + run_metrics_text(self._flow.name, Checkpoint(self._flow).last_run()).encode()

    def page(self) -> bytes:
        return _PAGE.replace("{name}", html.escape(self._flow.name)).encode()


class DashboardServer(ThreadingHTTPServer):
    """Serves one dashboard."""

    daemon_threads = True

    def __init__(self, dashboard: Dashboard, host: str, port: int) -> None:
        super().__init__((host, port), _Handler)
        self.dashboard = dashboard

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: DashboardServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        dashboard = self.server.dashboard
        match self.path.partition("?")[0]:
            case "/":
                self._answer("text/html; charset=utf-8", dashboard.page())
            case "/figures.json":
                self._answer("application/json", dashboard.state().figures)
            case "/metrics":
                self._answer("text/plain; version=0.0.4; charset=utf-8", dashboard.metrics())
            case "/plotly.js":
                from plotly.offline import get_plotlyjs

                self._answer("text/javascript; charset=utf-8", get_plotlyjs().encode(), keep=True)
            case _:
                self.send_error(404)

    def _answer(self, kind: str, body: bytes, *, keep: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=86400" if keep else "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged: the page makes one every two seconds."""


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width">
<style>
body { font-family: system-ui, sans-serif; margin: 1rem; color: #222 }
header { display: flex; gap: 1rem; align-items: baseline }
#charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 1rem }
.chart { min-height: 26rem; border: 1px solid #ddd; border-radius: 6px }
.problem { padding: 1rem; color: #a00; white-space: pre-wrap }
#state { color: #666 }
</style></head><body>
<header><h1>{name}</h1><span id="state">reading</span></header>
<div id="charts"></div>
<script src="/plotly.js"></script>
<script>
const charts = document.getElementById("charts"), state = document.getElementById("state");
let last = "";
async function refresh() {
  try {
    const text = await (await fetch("/figures.json")).text();
    const answer = JSON.parse(text);
    if (text !== last) {
      answer.charts.forEach((chart, number) => {
        let place = document.getElementById("chart-" + number);
        if (!place) {
          place = document.createElement("div");
          place.id = "chart-" + number;
          charts.append(place);
        }
        if (chart.problem) {
          Plotly.purge(place);
          place.className = "chart problem";
          place.textContent = chart.title + ": " + chart.problem;
        } else {
          if (place.className !== "chart") place.textContent = "";
          place.className = "chart";
          Plotly.react(place, chart.figure.data, chart.figure.layout, {responsive: true});
        }
      });
      last = text;
    }
    const rows = Object.values(answer.rows).map(count => count.toLocaleString("en") + " rows");
    state.textContent = rows.join(", ") + " at " + new Date().toLocaleTimeString();
  } catch (error) {
    state.textContent = "no answer from the dashboard's server: " + error.message;
  }
  setTimeout(refresh, 2000);
}
refresh();
</script></body></html>
"""
