"""The edge of a broker's metrics: an HTTP port for Prometheus, if
``metrics.http.address`` asks for it.

The state is walked in slices. A page that is asked for while one is being made is that page.

Kafka has no counterpart: the Prometheus JMX exporter has such a port.
"""

import asyncio
import gc
from collections.abc import Mapping

from barnabas.base.task_futures import future_of
from barnabas.base.tasks import Beside, Runner, Task
from barnabas.broker.monitoring.figures import Monitored, metrics_of
from barnabas.broker.monitoring.metric_names import BrokerMetrics
from barnabas.net.event_loop import budget_of
from barnabas.net.http import HttpResponse
from barnabas.net.http_server import HttpServer, metrics_handler
from barnabas.net.machine import free_and_capacity_bytes, process_figures
from barnabas.net.process_metrics import ProcessMetrics
from barnabas.net.prometheus import encode_metrics, figure_lines, labels_of, lines_of, slow_place_lines

__all__ = ["MetricsServer"]

_STEP_LIMIT_S = 10.0


class MetricsServer:
    """Serves the metrics of one broker."""

    def __init__(self, monitored: Monitored, runner: Runner) -> None:
        self._monitored = monitored
        self._runner = runner
        self._page: asyncio.Future[HttpResponse] | None = None
        self._http = HttpServer(metrics_handler(self._metrics, _STEP_LIMIT_S), _STEP_LIMIT_S)

    @property
    def port(self) -> int:
        """The open port."""
        return self._http.port

    async def start(self, host: str, port: int) -> None:
        """Open the port. Raises OSError."""
        await self._http.open(host, port, "metrics.http.address")

    async def close(self) -> None:
        """Close it, and what is under way."""
        await self._http.close()

    async def _metrics(self) -> HttpResponse:
        if self._page is None:
            self._page = future_of(self._runner, self._make())
            self._page.add_done_callback(self._forget)
        return await asyncio.shield(self._page)

    def _make(self) -> Task[HttpResponse]:
        of_process: dict[str, float] = {}
        of_disks: dict[str, tuple[int, int]] = {}
        folders = self._monitored.log_dirs.online
        # It may list the descriptors: some ms for 10,000. A disk may take its time.
        yield Beside(lambda: of_process.update(process_figures()))
        yield Beside(lambda: of_disks.update(free_and_capacity_bytes(folders)))
        lines = yield from metrics_of(self._monitored)
        return encode_metrics([*lines, *_of_disks(of_disks), *_of_loop(), *figure_lines(of_process), *_of_garbage()])

    def _forget(self, _: "asyncio.Future[HttpResponse]") -> None:
        self._page = None


def _of_disks(found: Mapping[str, tuple[int, int]]) -> list[str]:
    """What is left in the file systems of log dirs."""
    return [
        line
        for number, metric in enumerate((BrokerMetrics.LOG_DIR_FREE, BrokerMetrics.LOG_DIR_CAPACITY))
        for line in lines_of(metric, [(labels_of(metric, folder), each[number]) for folder, each in found.items()])
    ]


def _of_loop() -> list[str]:
    """What held the event loop."""
    budget = budget_of(asyncio.get_running_loop())
    return [] if budget is None else figure_lines(budget.figures()) + slow_place_lines(budget)


def _of_garbage() -> list[str]:
    metric = ProcessMetrics.COLLECTIONS
    collections = [
        (labels_of(metric, str(number)), float(each["collections"])) for number, each in enumerate(gc.get_stats())
    ]
    return list(lines_of(metric, collections))
