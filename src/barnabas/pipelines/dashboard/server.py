"""The dashboard's server: a page, its figures as JSON, and the figures for Prometheus.

Plain HTTP, from this machine only unless asked.

/               the page, which asks for the figures again and again
/page.js        its script
/figures.json   the charts as Plotly draws them
/metrics        the same figures and those of the flow's last run, in Prometheus's text form
/plotly.js      the library, from its Python package: a browser without Internet shows the charts
"""

import html
import json
import socket
import threading
import time
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.net.http import is_expected_host
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.dashboard.charts import (
    ChartError,
    Series,
    default_charts,
    draw_chart,
    metrics_text,
    run_metrics_text,
    series_of,
)
from barnabas.pipelines.dashboard.page import HEADERS, PAGE, SCRIPT
from barnabas.pipelines.dashboard.queries import run_query
from barnabas.pipelines.dashboard.results import ResultReader, readable_sinks
from barnabas.pipelines.outputs.declared import NoResultError
from barnabas.pipelines.specification.charts import Chart
from barnabas.pipelines.specification.spec import Flow

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
            json.dumps(figures, allow_nan=False).encode(), metrics_text(self._flow.name, drawn, problems).encode()
        )

    def metrics(self) -> bytes:
        """All figures for Prometheus; those of the run change without its results."""
        checkpoint = Checkpoint(self._flow)
        # Not by the lock: a flow that starts at this moment would find it taken.
        is_running = checkpoint.running_pid() is not None
        of_run = run_metrics_text(self._flow.name, checkpoint.last_run(), is_running=is_running)
        return self.state().metrics + of_run.encode()

    def page(self) -> bytes:
        return PAGE.replace("{name}", html.escape(self._flow.name)).encode()


class DashboardServer(ThreadingHTTPServer):
    """Serves one dashboard."""

    daemon_threads = True

    def __init__(self, dashboard: Dashboard, host: str, port: int, names: Collection[str] = ()) -> None:
        """``names`` are those of hosts by which browsers may ask for it, beside addresses, ``host``
        and this machine's own names."""
        super().__init__((host, port), _Handler)
        self.dashboard = dashboard
        self.names = {host, socket.gethostname(), self.server_name, *names}

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: DashboardServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        dashboard = self.server.dashboard
        if not is_expected_host(self.headers.get("Host"), self.server.names):
            self._refuse()
            return
        match self.path.partition("?")[0]:
            case "/":
                self._answer("text/html; charset=utf-8", dashboard.page())
            case "/page.js":
                self._answer("text/javascript; charset=utf-8", SCRIPT.encode())
            case "/figures.json":
                self._answer("application/json", dashboard.state().figures)
            case "/metrics":
                self._answer("text/plain; version=0.0.4; charset=utf-8", dashboard.metrics())
            case "/plotly.js":
                from plotly.offline import get_plotlyjs

                self._answer("text/javascript; charset=utf-8", get_plotlyjs().encode(), keep=True)
            case _:
                self._answer("text/plain; charset=utf-8", b"there is no such page\n", status=404)

    def _refuse(self) -> None:
        text = "this is not a name of the dashboard's server: ask for it by its address, or start it with --allowed-host NAME\n"
        self._answer("text/plain; charset=utf-8", text.encode(), status=421)

    def _answer(self, kind: str, body: bytes, *, keep: bool = False, status: int = 200) -> None:
        self.send_response(status)
        for name, text in HEADERS.items():
            self.send_header(name, text)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=86400" if keep else "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged: the page makes one every two seconds."""
