"""Sums up the lines of a server's log that strangers cause: connections that are closed because of
what they send. Anybody who can connect can cause thousands of them a second.

The first of equal lines of an address is written, and the number of the others with the first
line after a minute, or at the end. Equal are lines of the same form: ports and numbers may differ.

Kafka writes each line.
"""

import logging
import threading
from typing import Self

from barnabas.base.repeated_events import SUM_INTERVAL_MS, EventLimits, EventSum, EventSums

__all__ = ["CAUSED_BY_STRANGERS", "RepeatedLines"]

logger = logging.getLogger(__name__)

CAUSED_BY_STRANGERS = ("barnabas.net.tls_layer", "barnabas.broker.requests.dispatch")
"""The loggers; their lines of level INFO have the address first."""


class RepeatedLines(logging.Filter):
    """A filter of these loggers, from `with` to its end."""

    def __init__(self) -> None:
        super().__init__()
        self._sums = EventSums[str, tuple[str, str]](EventLimits())
        self._lock = threading.Lock()
        self._ends_s = 0.0

    def __enter__(self) -> Self:
        for name in CAUSED_BY_STRANGERS:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in CAUSED_BY_STRANGERS:
            logging.getLogger(name).removeFilter(self)
        self.write_sums()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.INFO or not isinstance(record.args, tuple):
            return True
        host = str(record.args[0]) if record.args else ""
        with self._lock:
            sums = self._end_interval(record.created)
            is_new = self._sums.add(host, (record.name, record.msg))
        for each in sums:
            self._write(*each)
        return is_new

    def _end_interval(self, now_s: float) -> list[EventSum[str, tuple[str, str]]]:
        if now_s < self._ends_s:
            return []
        self._ends_s = now_s + SUM_INTERVAL_MS / 1000
        return self._sums.end_interval()

    def _write(self, host: str | None, event: tuple[str, str] | None, times: int) -> None:
        form = event[1] if event else "lines of other forms or addresses"
        logger.info("%d more like this of %s since then: %s", times, host or "others", form)

    def write_sums(self) -> None:
        """Write what was counted so far."""
        with self._lock:
            self._ends_s = 0.0
            sums = self._end_interval(0.0)
        for each in sums:
            self._write(*each)
