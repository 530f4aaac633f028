"""What clients of a simulated cluster saw: the material of the checks.

Records are values that exist once: a producer makes each a single time, whatever it must send
again. A value reads ``producer:partition:count``, and its key follows from it. What a loss of disks
may take is allowed by `History.allow_loss`: it removes observations of a partition from an offset
on, made before that moment (``tests/simulation/scenarios/losses.py`` says when).
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.testing.simulation.loop import SimulatedLoop

__all__ = ["History", "PartitionHistory", "key_of", "producer_of"]

_MAX_VIOLATIONS = 20


def producer_of(value: bytes) -> int:
    """The number of the producer that made a value."""
    return int(value[: value.index(b":")])


def key_of(value: bytes) -> bytes:
    """The key under which a value is sent to a compacted topic: few, so that there
    is something to compact."""
    producer, _, count = value.rstrip(b".").split(b":")
    return b"%s-%d" % (producer, int(count) % 7)


@dataclass(slots=True)
class PartitionHistory:
    """A partition's records as clients know them."""

    sent: dict[bytes, None] = field(default_factory=dict)
    """In the order of the first attempt."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Values that every in-sync replica had (acks=all), by their offsets; -1 where the broker only
    answered that it has them already."""
    acknowledged_in_order: dict[int, list[bytes]] = field(default_factory=dict)
    """By producer number."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """Values by their offsets."""
    keys: dict[int, bytes] = field(default_factory=dict)
    """Keys by offset, where there are some."""
    high_watermarks: dict[tuple[int, ...], int] = field(default_factory=dict)
    """By broker, life and leader epoch, for each leader learns its own."""
    end_offset: int = -1
    """The highest that ListOffsets answered."""
    polled_upto: int = 0
    """The offset behind all that was read."""
    start_offset: int = 0
    """The highest log start offset in an answer."""
    final_end_offset: int = 1 << 62
    """Where the partition ended when everything was over."""
    leader_epoch: int = -1
    may_be_lost: set[bytes] = field(default_factory=set)
    """Acknowledged, and perhaps lost with the disks."""
    losses: int = 0
    loss_epoch: int = -1
    """The leader epoch of the last loss: answers of leaders of earlier epochs prove nothing."""
    is_unclean: bool = False
    """A replica out of sync may lead: any record may be lost or replaced."""
    is_compacted: bool = False


class History:
    """One run's observations and violations."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.violations: list[str] = []
        self.start_failures: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}
        self.topics_created: dict[str, int] = {}
        self.groups_partitions: tuple[TopicPartition, ...] = ()
        """Where groups live."""
        self.repeating: set[int] = set()
        """Producers that may store a record twice: those without idempotence."""
        self.reconsider: Callable[[TopicPartition], None] = lambda _: None
        """Checks whether an allowed loss has just happened; called before anything
        counts as a violation."""
        self.true_leader: Callable[[TopicPartition], int] = lambda _: -1
        """The leader of a partition in the coordination service, whatever the brokers' state is."""
        self.on_allowed_loss: list[Callable[[TopicPartition], None]] = []

    def partition(self, topic_partition: TopicPartition) -> PartitionHistory:
        """The partition's part, made when it is new."""
        return self.partitions.setdefault(topic_partition, PartitionHistory())

    def violation(self, text: str, error: BaseException | None = None) -> None:
        """Record an observation that must never be made."""
        if len(self.violations) < _MAX_VIOLATIONS:
            trace = "".join(traceback.format_exception(error)) if error is not None else ""
            self.violations.append(f"at {self._loop.time():.6f} s: {text}\n{trace}".rstrip())

    def count(self, what: str, by: int = 1) -> None:
        """Count what happened, to know that a run was not vacuous."""
        self.counts[what] = self.counts.get(what, 0) + by

    # Records

    def sent(self, topic_partition: TopicPartition, values: list[bytes]) -> None:
        self.partition(topic_partition).sent.update(dict.fromkeys(values))

    def acknowledged(
        self, topic_partition: TopicPartition, producer: int, values: list[bytes], base_offset: int
    ) -> None:
        """A produce with acks=all was answered without an error.

        -1 for a batch that the broker had already."""
        partition = self.partition(topic_partition)
        for position, value in enumerate(values):
            offset = base_offset + position if base_offset >= 0 else -1
            if value in partition.acknowledged:
                self.violation(f"{topic_partition}: {value!r} was acknowledged twice")
            partition.acknowledged[value] = offset
            if offset >= 0:
                self._check_value(topic_partition, partition, offset, value, "acknowledged")
        partition.acknowledged_in_order.setdefault(producer, []).extend(values)
        self.count("acknowledged", len(values))

    def read(self, topic_partition: TopicPartition, offset: int, value: bytes, key: bytes | None = None) -> None:
        """A record was polled."""
        partition = self.partition(topic_partition)
        if value not in partition.sent:
            self.violation(f"{topic_partition}: {value!r} at {offset} was never sent")
        if key is not None:
            partition.keys[offset] = key
        self._check_value(topic_partition, partition, offset, value, "read")
        self.count("read")

    def _check_value(
        self, topic_partition: TopicPartition, partition: PartitionHistory, offset: int, value: bytes, how: str
    ) -> None:
        known = partition.seen.setdefault(offset, value)
        if known != value:
            if partition.is_unclean:
                partition.seen[offset] = value
                return
            self.reconsider(topic_partition)
            known = partition.seen.setdefault(offset, value)
        if known != value:
            self.violation(f"{topic_partition}: {value!r} was {how} at offset {offset}, where {known!r} was before")

    def watermarks(
        self, topic_partition: TopicPartition, source: tuple[int, ...], start: int, stable: int, high: int
    ) -> None:
        """The bounds of the log in a leader's Fetch response.

        ``source`` is the broker, its life, and its leader epoch. The high watermark of one leader
        never decreases. Another replica's may be behind: a new leader learns its own from its
        followers' next fetches, and until then answers with the one that it had as a follower, or
        had checkpointed. So does Apache Kafka. What must not decrease for clients as a whole is the
        end offset that ListOffsets answers (KIP-207), and the records themselves.
        """
        partition = self.partition(topic_partition)
        if not start <= stable <= high:
            self.violation(f"{topic_partition}: log start {start}, last stable offset {stable}, high watermark {high}")
        known = partition.high_watermarks.get(source, -1)
        if high < known and not partition.is_unclean:
            self.reconsider(topic_partition)
            known = partition.high_watermarks.get(source, -1)
        if high < known and not partition.is_unclean:
            self.violation(f"{topic_partition}: broker {source[0]}'s high watermark went from {known} back to {high}")
        partition.high_watermarks[source] = max(high, known)
        partition.start_offset = max(partition.start_offset, start)

    def listed(self, topic_partition: TopicPartition, end_offset: int, known: int) -> None:
        """ListOffsets answered the end offset.

        ``known`` is the highest answer from before the request."""
        partition = self.partition(topic_partition)
        if end_offset < known and not partition.is_unclean:
            self.reconsider(topic_partition)
            known = min(known, partition.end_offset)
        if end_offset < known and not partition.is_unclean:
            self.violation(f"{topic_partition}: ListOffsets answered the end offset {end_offset}, and {known} before")
        partition.end_offset = max(partition.end_offset, end_offset)
        self.count("end offsets asked")

    def leader(self, topic_partition: TopicPartition, epoch: int) -> None:
        """Metadata contains a leader epoch."""
        partition = self.partition(topic_partition)
        partition.leader_epoch = max(partition.leader_epoch, epoch)

    def allow_loss(self, topic_partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        """All records from ``offset`` on were on no disk that had to keep them, and are
        gone, in this leader epoch."""
        partition = self.partition(topic_partition)
        partition.losses += 1
        partition.loss_epoch = max(partition.loss_epoch, leader_epoch)
        for value, at in partition.acknowledged.items():
            if at < 0 or at >= offset:
                partition.may_be_lost.add(value)
        for at in [at for at in partition.seen if at >= offset]:
            del partition.seen[at]
        partition.high_watermarks.clear()
        partition.end_offset = min(partition.end_offset, offset)
        partition.polled_upto = min(partition.polled_upto, offset)
        for listener in self.on_allowed_loss:
            listener(topic_partition)
        self.count("losses allowed")
