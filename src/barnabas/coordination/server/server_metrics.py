"""What the edge of a server counts and measures, by the names of ZooKeeper's ServerMetrics."""

from collections import Counter

from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.coordination.core.statistics import Distribution, Summary

__all__ = ["ServerMetrics"]

_COUNTERS = (
    "cnxn_closed_without_zk_server_running",
    "connection_drop_count",
    "connection_rejected",
    "sessionless_connections_expired",
    "sync_processor_request_queued",
    "unrecoverable_error_count",
)
_SUMMARIES = (
    CoordinationMetrics.FSYNC_TIME.name,
    CoordinationMetrics.SNAPSHOT_TIME.name,
    "dbinittime",
    "startup_txns_loaded",
    "sync_processor_batch_size",
)


class ServerMetrics:
    """See the module."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(_COUNTERS, 0))
        self._summaries = {name: Summary() for name in _SUMMARIES}
        self._flush_time = Distribution()
        self.last_snapshot = (-1, 0)
        """zxid, and when it was taken, in seconds"""

    def measured(self, name: str, value: int) -> None:
        """Add to a summary."""
        self._summaries[name].add(value)

    def started(self, took_ms: int, replayed: int) -> None:
        """The state is loaded, with ``replayed`` transactions of the log."""
        self.measured("dbinittime", took_ms)
        self.measured("startup_txns_loaded", replayed)

    def snapshot_written(self, zxid: int, took_ms: int, wall_ms: int) -> None:
        """A snapshot is on disk."""
        self.measured(CoordinationMetrics.SNAPSHOT_TIME.name, took_ms)
        self.last_snapshot = (zxid, wall_ms // 1000)

    def flushed(self, count: int, took_ms: int) -> None:
        """``count`` transactions were synced together."""
        self.counters["sync_processor_request_queued"] += count
        self.measured("sync_processor_batch_size", count)
        self.measured(CoordinationMetrics.FSYNC_TIME.name, took_ms)
        self._flush_time.add(took_ms)

    def summaries(self) -> dict[str, Summary | Distribution]:
        """All that is measured."""
        return {**self._summaries, "sync_processor_queue_flush_time_ms": self._flush_time}
