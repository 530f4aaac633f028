"""Packets, latencies and other figures of a server or a connection: ZooKeeper's ServerStats,
AvgMinMaxCounter and AvgMinMaxPercentileCounter.

Times are whole milliseconds, so a list that counts each of them is exact, and costs less than a
sample: percentiles are computed when someone asks.
"""

import struct
from collections import Counter

__all__ = ["Distribution", "Statistics", "Summary"]

_IDS = struct.Struct(">iq")
DEFAULT_TRACE_MASK = 306
_EXACT_MS = 1024
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


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


class Distribution:
    """Times in ms with their percentiles: exact below 1,024 ms; above, at most 0.2 % too low.

    Minimum and maximum are exact."""

    __slots__ = ("_counts", "_long", "_long_greatest", "_long_least", "_long_total")

    def __init__(self) -> None:
        self._counts = [0] * _EXACT_MS
        self._long: Counter[int] = Counter()
        self._long_least = self._long_greatest = self._long_total = 0

    def add(self, value_ms: int, count: int = 1) -> None:
        """Count equal measurements.

        Those below zero, which clocks of two machines can give, are none."""
        if 0 <= value_ms < _EXACT_MS:
            self._counts[value_ms] += count
        elif value_ms > 0:
            self._long_least = min(value_ms, self._long_least or value_ms)
            self._long_greatest = max(value_ms, self._long_greatest)
            shift = value_ms.bit_length() - _EXACT_MS.bit_length() + 1
            self._long[value_ms >> shift << shift] += count
            self._long_total += value_ms * count

    def add_zeros(self, count: int) -> None:
        """Count measurements that were less than a millisecond."""
        self._counts[0] += count

    @property
    def total(self) -> int:
        """The sum of all."""
        return sum(value * count for value, count in enumerate(self._counts)) + self._long_total

    def _sorted(self) -> list[tuple[int, int]]:
        """Each value that was measured, with its number."""
        short = [(value, count) for value, count in enumerate(self._counts) if count]
        return short + sorted(self._long.items())

    @property
    def count(self) -> int:
        """The number of measurements."""
        return sum(self._counts) + self._long.total()

    def percentile(self, part: float) -> int:
        """The least value that this part of the measurements does not exceed; 0 without any."""
        left = part * self.count
        found = 0
        for value, count in self._sorted():
            found = value
            left -= count
            if left <= 0:
                break
        return found

    def values(self, name: str) -> dict[str, float]:
        """The figures, by the names of ``mntr``."""
        measured, count, total = self._sorted() or [(0, 0)], self.count, self.total
        return {
            f"avg_{name}": round(total / count, 4) if count else 0.0,
            f"min_{name}": measured[0][0] if measured[0][0] < _EXACT_MS else self._long_least,
            f"max_{name}": self._long_greatest or measured[-1][0],
            f"cnt_{name}": count,
            f"sum_{name}": total,
            **{f"{percentile}_{name}": self.percentile(part) for percentile, part in _PERCENTILES.items()},
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
        # Kept and shown; there are no trace lines that it could select.
        self.trace_mask = DEFAULT_TRACE_MASK
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

    def answered(self, latency_ms: int, count: int = 1) -> None:
        """Count replies, which took equally long."""
        self.sent += count
        self.latency_count += count
        self.last_latency_ms = latency_ms
        # Most latencies are 0 ms, and change nothing once the minimum is 0.
        if latency_ms or self.min_latency_ms:
            self.total_latency_ms += latency_ms * count
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
