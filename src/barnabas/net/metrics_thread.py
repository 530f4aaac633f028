"""A metrics page over HTTP for a program that has no event loop: a mirror, a producer, a consumer.

In Kafka: `JmxReporter`, with the HTTP port of the Prometheus JMX exporter.
"""

import asyncio
import threading
from collections.abc import Callable

from barnabas.base.errors import BarnabasError
from barnabas.net.http import HttpResponse
from barnabas.net.http_server import HttpServer, metrics_handler
from barnabas.net.machine import process_figures
from barnabas.net.metrics_address import METRICS_ADDRESS
from barnabas.net.prometheus import encode_metrics, figure_lines

__all__ = ["MetricsThread"]

_STEP_LIMIT_S = 10.0


class MetricsThread:
    """Serves one page from a thread of its own."""

    def __init__(self, lines: Callable[[], list[str]], host: str, port: int) -> None:
        """Open the port; ``lines`` is called in the thread for each page, which has the
        figures of the process as well.

        Raises `BarnabasError` for an address that cannot be opened."""

        async def page() -> HttpResponse:
            return encode_metrics([*lines(), *figure_lines(process_figures())])

        self._http = HttpServer(metrics_handler(page, _STEP_LIMIT_S), _STEP_LIMIT_S)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()
        try:
            self._call(host, port)
        except OSError as error:
            self.close()
            raise BarnabasError(
                f"{METRICS_ADDRESS}: {host}:{port} cannot be opened: {error.strerror or error}; choose another address"
            ) from None

    @property
    def port(self) -> int:
        """The open port."""
        return self._http.port

    def close(self) -> None:
        """Close the port, and end the thread."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._http.close(), self._loop).result(_STEP_LIMIT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STEP_LIMIT_S)

    def _call(self, host: str, port: int) -> None:
        asyncio.run_coroutine_threadsafe(self._http.open(host, port, METRICS_ADDRESS), self._loop).result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
