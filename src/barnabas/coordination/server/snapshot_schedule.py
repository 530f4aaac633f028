"""When a server takes its next snapshot: after a number of transactions, or of bytes in them.

Each server chooses a random point between the half and the whole of both limits, so that the
members of an ensemble do not all take their snapshots at once.

In ZooKeeper: SyncRequestProcessor.shouldSnapshot.
"""

from barnabas.base.randomness import Random

__all__ = ["SnapshotSchedule"]


class SnapshotSchedule:
    """Counts what is logged since the last snapshot."""

    def __init__(self, max_count: int, max_bytes: int, rng: Random) -> None:
        """``max_bytes`` is 0 or less for no limit."""
        self._half_count = max_count // 2
        self._half_bytes = max(max_bytes // 2, 0)
        self._rng = rng
        self._count = 0
        self._bytes = 0
        self._draw()

    def _draw(self) -> None:
        self._after_count = self._half_count + self._rng.randrange(self._half_count)
        self._after_bytes = self._half_bytes + self._rng.randrange(self._half_bytes) if self._half_bytes else 0

    def logged(self, count: int, size_bytes: int) -> None:
        """Transactions are in the log."""
        self._count += count
        self._bytes += size_bytes

    @property
    def is_due(self) -> bool:
        """Whether it is time for a snapshot."""
        return self._count > self._after_count or 0 < self._after_bytes < self._bytes

    def restart(self) -> None:
        """A snapshot begins."""
        self._count = self._bytes = 0
        self._draw()
