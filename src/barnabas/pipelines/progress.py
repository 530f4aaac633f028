"""What a running flow reports: totals, lag, and the position committed to a consumer group.

A streaming query keeps its position in its checkpoint. With a ``group`` the position is also committed there after
every micro-batch, so ``barnabas consumer-groups --describe`` and every other tool of Kafka's show the flow's lag. The
group is for looking only: a flow never starts from it.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.pipelines.kafka import open_client
from barnabas.pipelines.offsets import Offsets, from_spark, to_json
from barnabas.pipelines.options import client_config

__all__ = ["GroupCommitter", "Progress", "Totals"]

_COMMIT_TIMEOUT_MS = 5_000


@dataclass
class Totals:
    """Figures since the flow started, as its summary gives them."""

    batches: int = 0
    rows: int = 0
    bad_rows: int = 0
    late_rows: int = 0
    lag: int | None = None
    """Records that were not read yet; None until Spark has said where the topics end."""
    seconds: float = 0.0
    batch: int = -1
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class GroupCommitter:
    """Commits offsets to a group that has no members."""

    def __init__(self, kafka: Mapping[str, str], group: str, warn: Callable[[str], None]) -> None:
        config = client_config(kafka, **{"enable.auto.commit": False, "socket.timeout.ms": _COMMIT_TIMEOUT_MS})
        self._consumer: Any = open_client(Consumer, {**config, "group.id": group})
        self._group = group
        self._warn = warn

    def commit(self, offsets: Offsets) -> None:
        """Commit; a failure is reported, and the next batch's commit includes these offsets."""
        try:
            self._consumer.commit(
                offsets=[ClientPartition(name.topic, name.partition, offset) for name, offset in offsets.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            self._warn(f"the position was not committed to group {self._group}: {error.args[0].str()}")

    def close(self) -> None:
        self._consumer.close()


class Progress:
    """Adds up the progress of one query; Spark's listener thread calls it."""

    def __init__(self, committer: GroupCommitter | None, show: Callable[[Totals], None]) -> None:
        self.totals = Totals()
        self._committer = committer
        self._show = show
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def update(self, report: Mapping[str, Any]) -> None:
        """Takes a progress report in Spark's JSON form; one that was taken already changes nothing."""
        with self._lock:
            totals = self.totals
            batch = int(report["batchId"])
            source = report["sources"][0]
            end = _offsets(source.get("endOffset"))
            latest = _offsets(source.get("latestOffset"))
            totals.seconds = time.monotonic() - self._began
            if latest:
                totals.lag = sum(max(0, offset - end.get(name, 0)) for name, offset in latest.items())
            if batch <= totals.batch or not report.get("numInputRows"):
                self._show(totals)
                return
            observed = report.get("observedMetrics", {}).get("barnabas", {})
            totals.batch = batch
            totals.batches += 1
            totals.rows += int(observed.get("rows", report["numInputRows"]))
            totals.bad_rows += int(observed.get("bad_rows", 0))
            totals.late_rows += sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in report["stateOperators"])
            totals.offsets = json.loads(to_json(end))
            if self._committer:
                self._committer.commit(end)
            self._show(totals)

    def close(self) -> None:
        if self._committer:
            self._committer.close()


def _offsets(value: Any) -> Offsets:
    """Offsets from a report, where they are JSON text, an object, or missing."""
    if isinstance(value, str):
        value = json.loads(value)
    return from_spark(value) if value else {}
