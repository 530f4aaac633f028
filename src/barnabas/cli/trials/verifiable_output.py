"""What Kafka's verifiable tools share: one JSON line for each event, which system tests read,
and their end by a signal."""

import json
import signal
import threading
import time

from barnabas.cli.output.exit_codes import exit_code_of
from barnabas.cli.output.terminal import print

__all__ = ["StopSignals", "print_event"]


def print_event(name: str, **fields: object) -> None:
    """One event with its time in ms."""
    print(json.dumps({"timestamp": round(time.time() * 1000), "name": name, **fields}, separators=(",", ":")))


class StopSignals:
    """Catches SIGINT and SIGTERM from its construction on: the tool ends in order,
    and reports what it did."""

    def __init__(self) -> None:
        self.exit_code = 0
        self._stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def _take(self, number: int, _: object) -> None:
        self.exit_code = exit_code_of(number)
        self._stopped.set()

    def is_set(self) -> bool:
        """Whether one of the signals has come."""
        return self._stopped.is_set()
