"""Packets and latencies of a server or a connection, for the four-letter words: ZooKeeper's ServerStats."""

__all__ = ["Statistics"]


class Statistics:
    """Counters since the start or the last reset."""

    __slots__ = (
        "failed_authentications",
        "latency_count",
        "max_latency_ms",
        "min_latency_ms",
        "received",
        "sent",
        "total_latency_ms",
    )

    def __init__(self) -> None:
        self.failed_authentications = 0
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self.received = 0
        self.sent = 0
        self.latency_count = 0
        self.total_latency_ms = 0
        self.min_latency_ms = -1
        self.max_latency_ms = 0

    def answered(self, latency_ms: int) -> None:
        """Count a reply."""
        self.sent += 1
        self.latency_count += 1
        self.total_latency_ms += latency_ms
        if latency_ms > self.max_latency_ms:
            self.max_latency_ms = latency_ms
        if latency_ms < self.min_latency_ms or self.min_latency_ms < 0:
            self.min_latency_ms = latency_ms

    @property
    def average_latency_ms(self) -> float:
        return self.total_latency_ms / self.latency_count if self.latency_count else 0.0
