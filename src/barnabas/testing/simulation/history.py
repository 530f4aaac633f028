"""What clients of a simulated cluster saw: the material of the checks.

Records are values that exist once: a producer makes each a single time, whatever it must send again. What a power loss
may take is forgiven by `History.forgive`: observations of a partition from an offset on, made before that moment.
"""

import traceback
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.testing.simulation.loop import SimulatedLoop

__all__ = ["History", "PartitionHistory"]


@dataclass(slots=True)
class PartitionHistory:
    """A partition's records as clients know them."""

    sent: dict[bytes, None] = field(default_factory=dict)
    """In the order of the first attempt."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Values by their offsets; -1 where the broker only said that it has them already."""
    acknowledged_in_order: dict[int, list[bytes]] = field(default_factory=dict)
    """By producer number."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """Offsets and what stood there."""
    high_watermark: int = -1
    leader_epoch: int = -1
    forgiven: set[bytes] = field(default_factory=set)
    """Acknowledged, and perhaps lost with the power."""
    losses: int = 0


class History:
    """One run's observations and violations."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.violations: list[str] = []
        self.start_failures: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}
        self.topics_created: dict[str, int] = {}

    def partition(self, name: TopicPartition) -> PartitionHistory:
        """The partition's part, made when it is new."""
        return self.partitions.setdefault(name, PartitionHistory())

    def violation(self, text: str, error: BaseException | None = None) -> None:
        """Something that must not be."""
        if len(self.violations) < 20:
            trace = "".join(traceback.format_exception(error)) if error is not None else ""
            self.violations.append(f"at {self._loop.time():.6f} s: {text}\n{trace}".rstrip())

    def count(self, what: str, by: int = 1) -> None:
        """Count what happened, to know that a run was not vacuous."""
        self.counts[what] = self.counts.get(what, 0) + by

    # Records

    def sent(self, name: TopicPartition, values: list[bytes]) -> None:
        self.partition(name).sent.update(dict.fromkeys(values))

    def acknowledged(self, name: TopicPartition, producer: int, values: list[bytes], base_offset: int) -> None:
        """A produce was answered without an error; -1 for a batch that the broker had already."""
        partition = self.partition(name)
        for position, value in enumerate(values):
            offset = base_offset + position if base_offset >= 0 else -1
            if value in partition.acknowledged:
                self.violation(f"{name}: {value!r} was acknowledged twice")
            partition.acknowledged[value] = offset
            if offset >= 0:
                self._stands(name, partition, offset, value, "acknowledged")
        partition.acknowledged_in_order.setdefault(producer, []).extend(values)
        self.count("acknowledged", len(values))

    def read(self, name: TopicPartition, offset: int, value: bytes) -> None:
        """A record was polled."""
        partition = self.partition(name)
        if value not in partition.sent:
            self.violation(f"{name}: {value!r} at {offset} was never sent")
        self._stands(name, partition, offset, value, "read")
        self.count("read")

    def _stands(self, name: TopicPartition, partition: PartitionHistory, offset: int, value: bytes, how: str) -> None:
        known = partition.seen.setdefault(offset, value)
        if known != value:
            self.violation(f"{name}: {value!r} was {how} at offset {offset}, where {known!r} stood before")

    def watermarks(self, name: TopicPartition, start: int, stable: int, high: int) -> None:
        """What a fetch said of the log."""
        partition = self.partition(name)
        if not start <= stable <= high:
            self.violation(f"{name}: log start {start}, last stable offset {stable}, high watermark {high}")
        if high < partition.high_watermark:
            self.violation(f"{name}: the high watermark went from {partition.high_watermark} back to {high}")
        partition.high_watermark = max(high, partition.high_watermark)

    def leader(self, name: TopicPartition, epoch: int) -> None:
        """Metadata told of a leader epoch."""
        partition = self.partition(name)
        partition.leader_epoch = max(partition.leader_epoch, epoch)

    def forgive(self, name: TopicPartition, offset: int) -> None:
        """What stands from ``offset`` on was never synced, and the power is gone."""
        partition = self.partition(name)
        partition.losses += 1
        for value, at in partition.acknowledged.items():
            if at < 0 or at >= offset:
                partition.forgiven.add(value)
        for at in [at for at in partition.seen if at >= offset]:
            del partition.seen[at]
        partition.high_watermark = min(partition.high_watermark, offset)
        self.count("power losses of partitions")
