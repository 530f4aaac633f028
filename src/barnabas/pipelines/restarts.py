"""When a broken query is started again from its checkpoint.

PySpark waits 10 s for a Python worker that it has started, and no setting changes this. On a busy machine a worker may take
longer; the query ends then, although nothing is wrong with it. The checkpoint makes a restart safe: Spark runs the micro-batch
that did not reach its end again, and sinks take it again without harm.
"""

__all__ = ["MAX_RESTARTS", "Restarts", "is_late_worker"]

MAX_RESTARTS = 3
"""Restarts without a micro-batch in between."""
_LATE_WORKER = "Python worker failed to connect back"


def is_late_worker(error: BaseException | None) -> bool:
    """Whether Spark gave up on a Python worker that did not connect in time."""
    return error is not None and _LATE_WORKER in str(error)


class Restarts:
    """Counts restarts; a micro-batch that reaches its end sets the count to 0."""

    def __init__(self) -> None:
        self.count = 0
        self._batch = -1

    def take(self, batch: int, *errors: BaseException | None) -> bool:
        """Whether to start again; ``batch`` is the last micro-batch that reached its end."""
        if not any(is_late_worker(each) for each in errors):
            return False
        if batch > self._batch:
            self.count = 0
        self._batch = max(batch, self._batch)
        self.count += 1
        return self.count <= MAX_RESTARTS
