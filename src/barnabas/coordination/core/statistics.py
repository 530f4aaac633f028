"""Packets, latencies and other figures of a server or a connection: ZooKeeper's ServerStats and AvgMinMaxCounter."""

import struct

__all__ = ["Statistics", "Summary"]

_IDS = struct.Struct(">iq")
DEFAULT_TRACE_MASK = 306


class Summary:
    """Count, sum and extremes of a measured value."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.greatest = 0

    def add(self, value: int) -> None:
        """Count a measurement."""
        if value > self.greatest:
            self.greatest = value
        if value < self.least or not self.count:
            self.least = value
        self.count += 1
        self.total += value

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0

    def values(self, name: str) -> dict[str, float]:
        """The figures of a summary, by the names of ``mntr``."""
        return {
            f"avg_{name}": round(self.average, 4),
            f"min_{name}": self.least,
            f"max_{name}": self.greatest,
            f"cnt_{name}": self.count,
            f"sum_{name}": self.total,
        }


class Statistics:
    """Counters since the start or the last reset."""

    __slots__ = (
        "expired_sessions",
        "failed_authentications",
        "last_latency_ms",
        "last_reply",
        "last_reply_bytes",
        "last_reply_ms",
        "latency_count",
        "max_latency_ms",
        "max_reply_bytes",
        "min_latency_ms",
        "min_reply_bytes",
        "received",
        "reconnections",
        "sent",
        "total_latency_ms",
        "trace_mask",
    )

    def __init__(self) -> None:
        self.failed_authentications = 0
        self.expired_sessions = 0
        self.reconnections = 0
        """Requests to go on with a session."""
        self.trace_mask = DEFAULT_TRACE_MASK  # kept and shown; there are no trace lines that it could select
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self.received = 0
        self.sent = 0
        self.latency_count = 0
        self.total_latency_ms = 0
        self.min_latency_ms = -1
        self.max_latency_ms = 0
        self.last_latency_ms = 0
        self.last_reply_ms = 0
        self.last_reply: bytes | bytearray = b""
        self.last_reply_bytes = self.min_reply_bytes = self.max_reply_bytes = -1

    def answered(self, latency_ms: int) -> None:
        """Count a reply."""
        self.sent += 1
        self.latency_count += 1
        self.last_latency_ms = latency_ms
        # Most latencies are 0 ms, and change nothing once the minimum is 0.
        if latency_ms or self.min_latency_ms:
            self.total_latency_ms += latency_ms
            if latency_ms > self.max_latency_ms:
                self.max_latency_ms = latency_ms
            if latency_ms < self.min_latency_ms or self.min_latency_ms < 0:
                self.min_latency_ms = latency_ms

    def replied(self, size_bytes: int) -> None:
        """Count the size of a reply that is the smallest or the largest so far."""
        if size_bytes > self.max_reply_bytes:
            self.max_reply_bytes = size_bytes
        if size_bytes < self.min_reply_bytes or self.min_reply_bytes < 0:
            self.min_reply_bytes = size_bytes

    @property
    def average_latency_ms(self) -> float:
        return self.total_latency_ms / self.latency_count if self.latency_count else 0.0

    @property
    def last_ids(self) -> tuple[int, int]:
        """The request number and the zxid of the last reply; -1 for none."""
        if not self.last_reply:
            return -1, -1
        xid, zxid = _IDS.unpack(self.last_reply)
        return xid, zxid
