"""What a mirror has copied, and how far it is behind, for its metrics page.

Streams and the link report from their threads; each report is short.

In Kafka: `MirrorSourceMetrics`.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.mirror.metric_names import MirrorMetrics
from barnabas.net.prometheus import labels_of, lines_of

__all__ = ["MirrorFigures"]


_FALLIBLE = (
    *("topics", "commit", "offset_syncs", "heartbeats", "checkpoints", "group_offsets", "topic_configurations"),
)
"""What may fail: each is shown from the start, so that Prometheus sees the first failure."""


class _Copies:
    """What is known of one partition of the source."""

    __slots__ = ("age_ms", "bytes", "caught_up_s", "dropped", "lag", "latency_ms", "pending", "records", "timestamp_ms")

    def __init__(self, now_s: float) -> None:
        self.records = 0
        self.bytes = 0
        self.dropped = 0
        self.pending = 0
        """Records that were read, and whose fate is not known."""
        self.age_ms: float | None = None
        self.latency_ms: float | None = None
        self.timestamp_ms = 0
        """That of the last record that the target has."""
        self.lag: int | None = None
        """Records that were not read; None before the source has said where the partition ends, and
        after the partition went to another mirror."""
        self.caught_up_s = now_s
        """When the target last lacked nothing."""


class MirrorFigures:
    """Safe to use from several threads."""

    def __init__(self, source: str, target: str, now_s: Callable[[], float] = time.time) -> None:
        self._clusters = source, target
        self._now_s = now_s
        self._lock = threading.Lock()
        self._copies: dict[TopicPartition, _Copies] = {}
        self._errors: Counter[str] = Counter(dict.fromkeys(_FALLIBLE, 0))
        self._last_copy_s = 0.0
        self.streams: Callable[[], int] = lambda: 0
        """How many run."""

    def read(self, partition: TopicPartition, timestamp_ms: int | None) -> None:
        """A record was read from the source."""
        with self._lock:
            copies = self._of(partition)
            copies.pending += 1
            if timestamp_ms is not None:
                copies.age_ms = self._now_s() * 1000 - timestamp_ms

    def copied(self, partition: TopicPartition, size_bytes: int, timestamp_ms: int | None) -> None:
        """The target acknowledged a record."""
        now_s = self._now_s()
        with self._lock:
            copies = self._of(partition)
            copies.pending -= 1
            copies.records += 1
            copies.bytes += size_bytes
            self._last_copy_s = now_s
            if timestamp_ms is not None:
                copies.timestamp_ms = timestamp_ms
                copies.latency_ms = now_s * 1000 - timestamp_ms

    def left_out(self, partition: TopicPartition) -> None:
        """A record that was read is not to be copied."""
        with self._lock:
            self._of(partition).pending -= 1

    def dropped(self, partition: TopicPartition) -> None:
        """The target did not take a record."""
        with self._lock:
            copies = self._of(partition)
            copies.pending -= 1
            copies.dropped += 1

    def failed(self, what: str) -> None:
        """Something failed and is tried again."""
        with self._lock:
            self._errors[what] += 1

    def unread(self, counts: Mapping[TopicPartition, int | None]) -> None:
        """How many records of the source were not read, for the partitions of a stream."""
        now_s = self._now_s()
        with self._lock:
            for partition, count in counts.items():
                copies = self._of(partition)
                copies.lag = count
                if count == 0 and copies.pending <= 0:
                    copies.caught_up_s = now_s

    def lines(self) -> list[str]:
        """The metrics page."""
        now_s = self._now_s()
        with self._lock:
            known = [
                (labels_of(MirrorMetrics.RECORDS, *self._clusters, each.topic, str(each.partition)), copies)
                for each, copies in sorted(self._copies.items())
            ]
            errors = dict(self._errors)
            last_copy_s = self._last_copy_s
            samples = {
                MirrorMetrics.RECORDS: [(labels, float(each.records)) for labels, each in known],
                MirrorMetrics.BYTES: [(labels, float(each.bytes)) for labels, each in known],
                MirrorMetrics.DROPPED: [(labels, float(each.dropped)) for labels, each in known],
                MirrorMetrics.RECORD_AGE: [(labels, each.age_ms) for labels, each in known if each.age_ms is not None],
                MirrorMetrics.LATENCY: [
                    (labels, each.latency_ms) for labels, each in known if each.latency_ms is not None
                ],
                MirrorMetrics.LAG: [(labels, float(_lag(each))) for labels, each in known if each.lag is not None],
                MirrorMetrics.AGE: [(labels, _age_s(each, now_s)) for labels, each in known if each.lag is not None],
            }
        clusters = labels_of(MirrorMetrics.STREAMS, *self._clusters)
        samples[MirrorMetrics.ERRORS] = [
            (labels_of(MirrorMetrics.ERRORS, *self._clusters, what), float(count)) for what, count in errors.items()
        ]
        samples[MirrorMetrics.LAST_COPY] = [(clusters, last_copy_s)]
        samples[MirrorMetrics.STREAMS] = [(clusters, float(self.streams()))]
        return [line for metric, each in samples.items() for line in lines_of(metric, each)]

    def _of(self, partition: TopicPartition) -> _Copies:
        copies = self._copies.get(partition)
        if copies is None:
            copies = self._copies[partition] = _Copies(self._now_s())
        return copies


def _lag(copies: _Copies) -> int:
    """Records that the target does not have."""
    return (copies.lag or 0) + max(0, copies.pending)


def _age_s(copies: _Copies, now_s: float) -> float:
    """How old the last record is that the target has, while it lacks others."""
    if not _lag(copies):
        return 0.0
    return max(0.0, now_s - max(copies.caught_up_s, copies.timestamp_ms / 1000))
