"""The edge of a process that samples a cluster for Prometheus: a thread for the samples, and an
HTTP port for the last report.

It starts whether or not the cluster answers, and stays while it does not: then
``kminion_exporter_up`` is 0, and the figures are those of the last sample.

In Kafka: no counterpart; kminion and Burrow are such processes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from barnabas.client.errors import ClientError, ClosedError
from barnabas.lag.metric_names import NamesOf
from barnabas.lag.metrics_page import SamplingFigures, lag_metric_lines
from barnabas.lag.values import LagReport
from barnabas.net.http import HttpResponse
from barnabas.net.http_server import HttpServer, metrics_handler
from barnabas.net.machine import process_figures
from barnabas.net.prometheus import encode_metrics, figure_lines

__all__ = ["LagExporter"]

logger = logging.getLogger(__name__)
_STEP_LIMIT_S = 30.0
_LEAST_PAUSE = 0.2  # of the interval, so that a slow cluster is not asked without a pause


class LagExporter:
    """Serves the last report, and takes the next one each interval.

    ``sample(now_ms)`` is called by one thread at a time.
    """

    def __init__(
        self, sample: Callable[[int], LagReport], interval_s: float, names: Collection[NamesOf] = tuple(NamesOf)
    ) -> None:
        self._sample = sample
        self._interval_s = interval_s
        self._names = names
        self._report = LagReport(0, None, ())
        self._figures = SamplingFigures(False, 0.0, 0)
        self._page: asyncio.Task[HttpResponse] | None = None
        self._said: tuple[str, ...] = ()
        self._http = HttpServer(metrics_handler(self._metrics, _STEP_LIMIT_S), _STEP_LIMIT_S)

    @property
    def port(self) -> int:
        return self._http.port

    async def open(self, host: str, port: int) -> None:
        """Open the port. Raises OSError."""
        await self._http.open(host, port, "--metrics-address")

    async def run(self) -> None:
        """Take samples until it is cancelled."""
        while True:
            started = time.monotonic()
            await asyncio.to_thread(self._take)
            took_s = time.monotonic() - started
            await asyncio.sleep(max(self._interval_s - took_s, _LEAST_PAUSE * self._interval_s))

    def _take(self) -> None:
        started = time.monotonic()
        try:
            report = self._sample(int(time.time() * 1000))
        except ClosedError:
            return  # the process ends
        except ClientError as error:
            self._say((f"no sample: {error}",))
            self._figures = self._figures._replace(is_complete=False, failed=self._figures.failed + 1)
        else:
            if not self._report.at_ms:
                logger.info(
                    "the first sample has %d groups, after %.1f s", len(report.groups), time.monotonic() - started
                )
            self._say((*report.missing, *report.notes))
            self._report = report
            self._figures = SamplingFigures(not report.missing, time.monotonic() - started, self._figures.failed)
        self._page = None

    def _say(self, lines: tuple[str, ...]) -> None:
        """Log what is missing once, and again when something else is."""
        if lines != self._said:
            for line in lines:
                logger.warning("%s", line)
            if not lines and self._said:
                logger.info("all that is asked for can be read again")
            self._said = lines

    async def _metrics(self) -> HttpResponse:
        """The page of the last report, which is made when it is asked for, once."""
        if self._page is None:
            self._page = asyncio.get_running_loop().create_task(
                asyncio.to_thread(self._make, self._report, self._figures)
            )
        return await asyncio.shield(self._page)

    def _make(self, report: LagReport, figures: SamplingFigures) -> HttpResponse:
        return encode_metrics([*lag_metric_lines(report, figures, self._names), *figure_lines(dict(process_figures()))])

    async def close(self) -> None:
        """Close the port."""
        await self._http.close()
