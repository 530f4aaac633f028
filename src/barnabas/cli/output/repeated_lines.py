"""Sums up the lines of a server's log that strangers cause: connections that are closed because of
what they send. Anybody who can connect can cause thousands of them a second.

The first of equal lines of an address is written, and the number of the others with the first
line after a minute, or at the end. Equal are lines of the same form: ports and numbers may differ.

Kafka and ZooKeeper write each line.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Self

from barnabas.base.repeated_events import SUM_INTERVAL_MS, EventCount, EventCounts, EventLimits

__all__ = ["AT_BROKERS", "AT_COORDINATION_SERVERS", "RepeatedLines"]

logger = logging.getLogger(__name__)

_INFO, _WARNING = frozenset((logging.INFO,)), frozenset((logging.WARNING,))

AT_BROKERS: Mapping[str, frozenset[int]] = {
    "barnabas.net.tls_layer": _INFO,
    "barnabas.broker.requests.dispatch": _INFO,
}
"""Loggers with the levels of the lines that strangers cause: those whose first value is an
address."""
AT_COORDINATION_SERVERS: Mapping[str, frozenset[int]] = {
    "barnabas.net.tls_layer": _INFO,
    "barnabas.coordination.server.client_transport": _INFO,
    "barnabas.coordination.server.client_connections": _WARNING,
    "barnabas.coordination.core.authenticating": _WARNING,
    "barnabas.coordination.core.client_replies": _INFO,
    "barnabas.coordination.core.connecting": _INFO,
    "barnabas.coordination.core.processor": _INFO | _WARNING,
    "barnabas.coordination.admin.state_commands": _WARNING,
    "barnabas.coordination.election.peers": _INFO | _WARNING,
    "barnabas.coordination.quorum.channels": _WARNING,
    "barnabas.coordination.zab.channels": _WARNING,
}


class RepeatedLines(logging.Filter):
    """A filter of loggers, from `with` to its end."""

    def __init__(self, levels: Mapping[str, frozenset[int]]) -> None:
        """``levels``: see `AT_BROKERS`."""
        super().__init__()
        self._levels = levels
        self._sums = EventCounts[str, tuple[str, str]](EventLimits())
        self._lock = threading.Lock()
        self._ends_s = 0.0

    def __enter__(self) -> Self:
        for name in self._levels:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._levels:
            logging.getLogger(name).removeFilter(self)
        self.write_sums()

    def filter(self, record: logging.LogRecord) -> bool:
        address = _address(record.args)
        if address is None or record.levelno not in self._levels[record.name]:
            return True
        with self._lock:
            sums = self._end_interval(record.created)
            is_new = self._sums.add(address, (record.name, str(record.msg)))
        for each in sums:
            self._write(*each)
        return is_new

    def _end_interval(self, now_s: float) -> list[EventCount[str, tuple[str, str]]]:
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


def _address(values: object) -> str | None:
    """The address that a line has as its first value, alone or with a port."""
    if not isinstance(values, tuple) or not values:
        return None
    first = values[0][0] if isinstance(values[0], tuple) and values[0] else values[0]
    return first if isinstance(first, str) else None
