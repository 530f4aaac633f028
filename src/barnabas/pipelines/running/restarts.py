"""When a broken query is started again from its checkpoint.

PySpark waits 10 s for a Python worker that it has started, and no setting changes this. On a busy
machine a worker may take longer; the query ends then, although nothing is wrong with it. It ends,
too, when a worker is killed, and when Spark sends a task to itself that it cannot read: on one
machine Spark tries no task twice. The checkpoint makes a restart safe: Spark runs an unfinished
micro-batch again, and sinks accept it twice.
"""

import re

__all__ = ["Restarts", "restarts_of", "transient_fault"]

_DIED = "a Python worker of Spark died: was it killed, or is memory short?"
_LATE = "a Python worker of Spark did not start within 10 s: is this machine busy?"
_UNREADABLE = "Spark could not read a task that it had written."
"""Java writes a map with its size, and then its entries: a map that changes meanwhile, on
another thread, cannot be read."""
_RESTARTS = {_DIED: 3, _LATE: 15, _UNREADABLE: 3}
"""Restarts without a micro-batch in between. A late worker harms nothing, and a busy
machine may be so for minutes."""
_FAULTS = {
    "Python worker failed to connect back": _LATE,
    "Python worker exited unexpectedly": _DIED,
    # Killed while the JVM wrote to it, or before it had read all. Spark's JVM has no
    # other sockets on one machine.
    "java.net.SocketException: Connection reset": _DIED,
    "java.net.SocketException: Broken pipe": _DIED,
    "java.io.IOException: Connection reset": _DIED,
    "java.io.IOException: Broken pipe": _DIED,
    "java.io.IOException: Stream closed": _DIED,
    "java.nio.channels.ClosedChannelException": _DIED,
    "java.io.OptionalDataException": _UNREADABLE,
}
_BARE = ("Connection reset", "Connection reset by peer", "Broken pipe", "Stream closed")
"""All that Spark says, in a line of its own, when the worker that plans micro-batches
for the driver is killed."""

_QUOTED = re.compile(
    r"(?<![\w.])(?!java|org\.|scala|py4j|pyspark|SparkException)[\w.]+(?:Error|Exception): |\[(?!STREAM_FAILED)[A-Z][A-Z_.]+\] "
)
"""What stands on a line before the words of a flow's own function, or of a record:
they may quote anything."""


def transient_fault(*errors: BaseException | None) -> str | None:
    """What happened, if Spark says that it lost a Python worker or a task."""
    texts = [str(each) for each in errors if each is not None]
    if any(text.strip().partition("\n")[0].strip() in _BARE for text in texts):
        return _DIED
    lines = [line for text in texts for line in text.splitlines()]
    return next((what for mark, what in _FAULTS.items() if any(_says(line, mark) for line in lines)), None)


def _says(line: str, mark: str) -> bool:
    before, found, _ = line.partition(mark)
    return bool(found) and _QUOTED.search(before) is None


def restarts_of(fault: str) -> int:
    """How often in a row a query is started again after what `transient_fault` says."""
    return _RESTARTS[fault]


class Restarts:
    """Counts restarts; a micro-batch that the broken query has finished since sets
    the count to 0."""

    def __init__(self) -> None:
        self.count = 0
        self._batches: dict[str, int] = {}

    def allows_another(self, query: str, batch: int, *errors: BaseException | None) -> bool:
        """Whether to start again.

        ``batch`` is the last micro-batch that the broken ``query`` finished, -1 for none."""
        if (fault := transient_fault(*errors)) is None:
            return False
        before = self._batches.get(query, -1)
        if batch > before:
            self.count = 0
        self._batches[query] = max(batch, before)
        self.count += 1
        return self.count <= restarts_of(fault)
