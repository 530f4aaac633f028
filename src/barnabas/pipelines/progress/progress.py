"""What a running flow reports: totals, lag, and the position committed to a consumer group.

A streaming query keeps its position in its checkpoint. With a ``group`` the position is also
committed there after every micro-batch, so ``barnabas consumer-groups --describe`` and every other
tool of Kafka's show the flow's lag. The group is for looking only: a flow never starts from it.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.pipelines.cluster.kafka_cluster import open_client
from barnabas.pipelines.cluster.offsets import Offsets, from_spark, least_offsets, to_json
from barnabas.pipelines.cluster.options import client_config

__all__ = ["CatchUp", "GroupCommitter", "Progress", "Totals"]

_COMMIT_TIMEOUT_MS = 5_000
_SOURCE = "barnabas."
_EXPECT = "barnabas.expect."
_TABLE = "barnabas.table."
_TIMELESS = "barnabas.timeless."
_EXPECTATION = "expectation:"
_NOT_KINDS = ("rows", "bad_rows", "example")
_EXAMPLE = "example:"
_CATCH_UP_WINDOW_S = 60.0


@dataclass
class Totals:
    """Figures since the flow started, as its summary gives them."""

    batches: int = 0
    rows: int = 0
    bad_rows: int = 0
    late_rows: int = 0
    timeless_rows: int = 0
    """Rows that no window has because their time is null; those of a source's
    records are bad rows instead."""
    quarantined_rows: int = 0
    """Rows of micro-batches that were put aside as a whole, good and bad."""
    quarantined_batches: int = 0
    lost_records: int | None = 0
    """Records that were gone before they were read: deleted by retention, or with their topic.
    None: they are not counted."""
    lost: dict[str, int] = field(default_factory=dict)
    """The same for each partition, by names such as ``orders-0``."""
    mixed_keys: int = 0
    """Rows of a key from several partitions in one micro-batch, which nothing orders
    (`barnabas.pipelines.frames.ordering`); a sum over sinks."""
    cut_letters: int = 0
    """Dead letters that were too large for their topic as a whole."""
    cut_letter_example: str | None = None
    lag: int | None = None
    """Records that were not read yet; None until Spark has said where the topics end."""
    catch_up_s: float | None = None
    """Seconds until the lag is 0, at the speed of the last minute; None if the lag does not
    shrink, or is not known."""
    seconds: float = 0.0
    batch: int = -1
    batch_s: float | None = None
    """How long the last micro-batch with rows took."""
    last_success_s: float | None = None
    """When a micro-batch last ended well, or nothing was to be read, in seconds since 1970."""
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each source its ``rows`` and ``bad_rows``."""
    bad: dict[str, int] = field(default_factory=dict)
    """Bad rows by class of error, and by column as ``column NAME``."""
    bad_example: str | None = None
    bad_examples: dict[str, str] = field(default_factory=dict)
    """An example for values that are no value of the format, and for each column with wrong ones,
    by the names in ``bad``."""
    expectations: dict[str, int] = field(default_factory=dict)
    """For each expectation the rows that did not meet it."""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each table of a topic its values now (``rows``), those that do not fit (``bad_rows``),
    and an ``example`` of them."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class CatchUp:
    """When a flow will have read all there is: from how far it came, and how much was
    added, in the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    @property
    def is_new(self) -> bool:
        return not self._seen

    def seconds(self, now: float, position: int, end: int) -> float | None:
        """Takes where the flow is and where the topics end, as sums of offsets.

        None if the flow falls behind."""
        while self._seen and self._seen[0][0] < now - _CATCH_UP_WINDOW_S and len(self._seen) > 1:
            self._seen.popleft()
        self._seen.append((now, position, end))
        if position >= end:
            return 0.0
        then, position_then, end_then = self._seen[0]
        gained = (position - position_then) - (end - end_then)
        return (end - position) * (now - then) / gained if gained > 0 and now > then else None


class GroupCommitter:
    """Commits offsets to a group that has no members."""

    cluster = ""
    """Where the group is, as the source says it."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        group: str,
        warn: Callable[[str], None],
        covers: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """``covers`` says of a topic whether the group's position includes it."""
        self._covers = covers
        self.cluster = kafka["bootstrap.servers"]
        config = client_config(kafka, **{"enable.auto.commit": False, "socket.timeout.ms": _COMMIT_TIMEOUT_MS})
        self._consumer: Any = open_client(Consumer, {**config, "group.id": group})
        self._group = group
        self._warn = warn

    def commit(self, offsets: Offsets) -> None:
        """Commit; a failure is reported, and the next batch's commit includes these offsets."""
        try:
            self._consumer.commit(
                offsets=[
                    ClientPartition(name.topic, name.partition, offset)
                    for name, offset in offsets.items()
                    if self._covers(name.topic)
                ],
                asynchronous=False,
            )
        except KafkaException as error:
            self._warn(f"the position was not committed to group {self._group}: {error.args[0].str()}")

    def close(self) -> None:
        self._consumer.close()


class Progress:
    """Adds up the progress of one query; Spark's listener thread calls it."""

    def __init__(
        self,
        committers: Sequence[GroupCommitter],
        show: Callable[[Totals], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.totals = Totals()
        self.clusters: Sequence[str] = ()
        """The clusters of the sources, in the order of Spark's reports. Topics of two
        clusters may have one name."""
        self._position: dict[str, Offsets] = {}
        self._clock = clock
        self._catch_up = CatchUp()
        self._committers = committers
        self._show = show
        self._lock = threading.Lock()
        self._began = clock()
        self._last_batch = -1
        """The last micro-batch whose late rows are counted."""

    def resume(self, positions: Sequence[Offsets], clusters: Sequence[str] = ()) -> None:
        """Commits where the checkpoint is: a driver that was killed may not have done so
        after its last micro-batch."""
        self._commit(_by_cluster(positions, clusters))

    def _commit(self, position: Mapping[str, Offsets]) -> None:
        for each in self._committers:
            if offsets := position.get(each.cluster) or position.get(""):
                each.commit(offsets)

    def update(self, report: Mapping[str, Any]) -> None:
        """Takes a progress report in Spark's JSON form.

        One that was taken already changes nothing."""
        with self._lock:
            totals = self.totals
            batch = int(report["batchId"])
            end, latest = self._offsets(report, "endOffset"), self._offsets(report, "latestOffset")
            now = self._clock()
            totals.seconds = now - self._began
            batch_s = int(report.get("batchDuration") or 0) / 1000
            if begun := report.get("timestamp"):
                totals.last_success_s = datetime.fromisoformat(begun).timestamp() + batch_s
            if latest:
                totals.lag = sum(
                    max(0, offset - end.get(cluster, {}).get(name, 0))
                    for cluster, ends in latest.items()
                    for name, offset in ends.items()
                )
                self._note_speed(report, now, latest)
            if (
                batch > self._last_batch
            ):  # one without records may drop late rows, too: those of an aggregate before another
                self._last_batch = batch
                totals.late_rows += sum(
                    int(each.get("numRowsDroppedByWatermark", 0)) for each in report["stateOperators"]
                )
            if batch <= totals.batch or not report.get("numInputRows"):
                # The micro-batch had records without rows.
                if batch > totals.batch and end and end != self._position:
                    self._moved(end)
                self._show(totals)
                return
            totals.batch = batch
            totals.batches += 1
            totals.batch_s = batch_s
            self._count(report.get("observedMetrics", {}))
            self._moved(end)
            self._show(totals)

    def note_idle(self, timestamp: str) -> None:
        """At this time, in ISO 8601, Spark had nothing to read: the flow does not stand still."""
        with self._lock:
            self.totals.last_success_s = datetime.fromisoformat(timestamp).timestamp()
            self._show(self.totals)

    def _offsets(self, report: Mapping[str, Any], which: str) -> dict[str, Offsets]:
        """The offsets of all sources, for each cluster."""
        sources = [_offsets(source.get(which)) for source in report["sources"]]
        return _by_cluster(sources, self.clusters)

    def _note_speed(self, report: Mapping[str, Any], now: float, latest: Mapping[str, Offsets]) -> None:
        latest_sum = sum(sum(ends.values()) for ends in latest.values())
        if self._catch_up.is_new:  # where the first micro-batch began is a first point
            start = self._offsets(report, "startOffset")
            if start:
                begun = now - int(report.get("batchDuration") or 0) / 1000
                first = sum(start.get(cluster, {}).get(name, 0) for cluster, ends in latest.items() for name in ends)
                self._catch_up.seconds(begun, first, latest_sum)
        position = latest_sum - (self.totals.lag or 0)
        self.totals.catch_up_s = self._catch_up.seconds(now, position, latest_sum)

    def _moved(self, end: dict[str, Offsets]) -> None:
        self._position = end
        self.totals.offsets = json.loads(to_json(least_offsets(end.values())))
        self._commit(end)

    def count_source(self, name: str, counts: Mapping[str, Any]) -> None:
        """Adds figures of `transforms.bad_counts` over rows of a source."""
        with self._lock:
            self._count({f"{_SOURCE}{name}": counts})

    def count_quarantined(self, rows: int) -> None:
        """Adds a micro-batch that was put aside as a whole."""
        with self._lock:
            self.totals.quarantined_batches += 1
            self.totals.quarantined_rows += rows

    def _count(self, observed: Mapping[str, Mapping[str, Any]]) -> None:
        totals = self.totals
        for name, counts in observed.items():
            if name.startswith(_EXPECT):
                _add(totals.expectations, counts)
            elif name.startswith(_TIMELESS):
                totals.timeless_rows += int(counts["rows"] or 0)
            elif name.startswith(_TABLE):  # of the whole table, not of this micro-batch
                totals.tables[name.removeprefix(_TABLE)] = dict(counts)
            elif name.startswith(_SOURCE):
                of_source = {"rows": int(counts["rows"] or 0), "bad_rows": int(counts["bad_rows"] or 0)}
                _add(totals.sources.setdefault(name.removeprefix(_SOURCE), {}), of_source)
                totals.rows += of_source["rows"]
                totals.bad_rows += of_source["bad_rows"]
                expected = [each for each in counts if each.startswith(_EXPECTATION)]
                _add(totals.expectations, {each.removeprefix(_EXPECTATION): counts[each] for each in expected})
                examples = [each for each in counts if each.startswith(_EXAMPLE)]
                for each in examples:
                    if counts[each]:
                        totals.bad_examples.setdefault(each.removeprefix(_EXAMPLE), counts[each])
                kinds = {kind.removeprefix("error:").replace("column:", "column "): counts[kind] for kind in counts}
                _add(
                    totals.bad,
                    {
                        kind: kinds[kind]
                        for kind in kinds
                        if kind not in (*_NOT_KINDS, *expected, *examples) and kinds[kind]
                    },
                )
                totals.bad_example = totals.bad_example or counts.get("example")

    def close(self) -> None:
        for each in self._committers:
            each.close()


def _add(sums: dict[str, int], counts: Mapping[str, Any]) -> None:
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + int(count or 0)


def _by_cluster(positions: Sequence[Offsets], clusters: Sequence[str]) -> dict[str, Offsets]:
    """Positions of sources, put together where they are of one cluster; of "" if it is
    not known whose they are."""
    if len(clusters) != len(positions):
        clusters = [""] * len(positions)
    found: dict[str, list[Offsets]] = {}
    for cluster, offsets in zip(clusters, positions, strict=True):
        if offsets:
            found.setdefault(cluster, []).append(offsets)
    return {cluster: least_offsets(each) for cluster, each in found.items()}


def _offsets(value: Any) -> Offsets:
    """Offsets from a report, where they are JSON text, an object, or missing."""
    if isinstance(value, str):
        value = json.loads(value)
    return from_spark(value) if value else {}
