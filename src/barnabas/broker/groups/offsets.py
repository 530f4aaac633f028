"""A group's committed offsets.

Three tables by partition. ``committed`` holds what records of ``__consumer_offsets`` say, once
those are committed; only `GroupOffsets.apply`, its forms for many partitions, and
`GroupOffsets.remove` change it. ``_writing`` counts the commits on their way to the log: such an
offset is not stable (KIP-447), does not expire and keeps its group alive. ``transactional`` holds,
for each producer id, what an open transaction has in the log. Its end marker commits or drops it
(`GroupOffsets.end_transaction`), by whole columns: a transaction may have 10,000 offsets, and its
end is one step.

In Kafka: the offset tables of `GroupMetadata`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.ids import TopicPartition

__all__ = ["NO_EXPIRATION", "CommittedOffset", "GroupOffsets"]

NO_EXPIRATION = -1
"""In place of an expiry time: the offset follows the broker's
offsets.retention.minutes (KIP-211)."""


class CommittedOffset(NamedTuple):
    """The offset that a group committed for one partition, with its metadata."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRATION


class _Pending:
    """What an open transaction has in the log, in columns with the same partitions."""

    __slots__ = ("record_offsets", "values")

    def __init__(self) -> None:
        self.values: dict[TopicPartition, CommittedOffset] = {}
        self.record_offsets: dict[TopicPartition, int] = {}

    def remove(self, topic_partition: TopicPartition) -> None:
        self.values.pop(topic_partition, None)
        self.record_offsets.pop(topic_partition, None)

    def split(self, marker_offset: int) -> "_Pending | None":
        """Keep what was written before a marker; what was not, None for nothing."""
        if max(self.record_offsets.values(), default=-1) <= marker_offset:
            return None
        later = _Pending()
        for topic_partition, record_offset in tuple(self.record_offsets.items()):
            if record_offset > marker_offset:
                later.values[topic_partition] = self.values.pop(topic_partition)
                later.record_offsets[topic_partition] = self.record_offsets.pop(topic_partition)
        return later


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_last_record_offset", "_record_offsets", "_under_way", "_writing", "committed", "transactional")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.transactional: dict[int, _Pending] = {}
        # Where in the log the values of `committed` were written.
        self._record_offsets: dict[TopicPartition, int] = {}
        self._last_record_offset = -1  # the largest of them
        self._writing: dict[TopicPartition, int] = {}
        self._under_way = 0  # how often `begin` was called without `end`

    def __bool__(self) -> bool:
        """Whether anything is committed or on its way."""
        return bool(self.committed or self._writing or self.transactional)

    # Writing

    def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits of these partitions are on their way to the log.

        `end` follows whatever becomes of them."""
        self._under_way += 1
        if self._under_way == 1:
            self._writing = dict.fromkeys(partitions, 1)
            if len(self._writing) == len(partitions):
                return
            self._writing.clear()  # one is there twice
        writing = self._writing
        for topic_partition in partitions:
            writing[topic_partition] = writing.get(topic_partition, 0) + 1

    def end(self, partitions: Sequence[TopicPartition]) -> None:
        self._under_way -= 1
        writing = self._writing
        if not self._under_way:
            writing.clear()
            return
        for topic_partition in partitions:
            left = writing[topic_partition] - 1
            if left:
                writing[topic_partition] = left
            else:
                del writing[topic_partition]

    def apply(self, topic_partition: TopicPartition, value: CommittedOffset, record_offset: int) -> None:
        """A record committed ``value``.

        The record furthest in the log wins: a transaction's offsets take effect at its end, when a
        later plain commit may be there already."""
        if self._record_offsets.get(topic_partition, -1) <= record_offset:
            self.committed[topic_partition] = value
            self._record_offsets[topic_partition] = record_offset
            self._last_record_offset = max(self._last_record_offset, record_offset)

    def apply_batch(
        self, partitions: Sequence[TopicPartition], values: Sequence[CommittedOffset], record_offset: int
    ) -> None:
        """Like `apply` for each of these in their order, all from one batch: a large commit is one
        step, so it is done by whole columns."""
        if record_offset < self._last_record_offset:
            for topic_partition, value in zip(partitions, values, strict=True):
                self.apply(topic_partition, value, record_offset)
            return
        self._last_record_offset = record_offset
        self.committed.update(zip(partitions, values, strict=True))
        self._record_offsets.update(dict.fromkeys(partitions, record_offset))

    def apply_loaded(
        self, partitions: list[TopicPartition], values: list[CommittedOffset], record_offsets: list[int]
    ) -> None:
        """Like `apply` for each of these, from batches of their own.

        A partition may be among them once."""
        if self.committed and not self.committed.keys().isdisjoint(partitions):
            for each in zip(partitions, values, record_offsets, strict=True):
                self.apply(*each)
            return
        self._last_record_offset = max(self._last_record_offset, *record_offsets)
        self.committed.update(zip(partitions, values, strict=True))
        self._record_offsets.update(zip(partitions, record_offsets, strict=True))

    def apply_transactional(
        self, producer_id: int, topic_partition: TopicPartition, value: CommittedOffset | None, record_offset: int
    ) -> None:
        """A record of an open transaction holds ``value``, or takes back what it held."""
        pending = self._pending_of(producer_id)
        if value is None:
            pending.remove(topic_partition)
        else:
            pending.values[topic_partition] = value
            pending.record_offsets[topic_partition] = record_offset

    def _pending_of(self, producer_id: int) -> _Pending:
        pending = self.transactional.get(producer_id)
        if pending is None:
            pending = self.transactional[producer_id] = _Pending()
        return pending

    def apply_transactional_batch(
        self,
        producer_id: int,
        partitions: Sequence[TopicPartition],
        values: Sequence[CommittedOffset],
        record_offset: int,
    ) -> None:
        """Like `apply_transactional` for each of these in their order, all from one batch."""
        pending = self._pending_of(producer_id)
        pending.values.update(zip(partitions, values, strict=True))
        pending.record_offsets.update(dict.fromkeys(partitions, record_offset))

    def end_transaction(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """A marker ends what the producer has written before it.

        What came after is of its next transaction."""
        pending = self.transactional.pop(producer_id, None)
        if pending is None:
            return
        later = pending.split(marker_offset)
        if later is not None:
            self.transactional[producer_id] = later
        if committed:
            self._apply_pending(pending)

    def _apply_pending(self, pending: _Pending) -> None:
        """Like `apply` for each of these."""
        values, record_offsets = pending.values, pending.record_offsets
        if not record_offsets:
            return
        if min(record_offsets.values()) < self._last_record_offset:  # there may be later commits
            known = self._record_offsets
            record_offsets = {each: at for each, at in record_offsets.items() if known.get(each, -1) <= at}
            if len(record_offsets) < len(values):
                values = {each: values[each] for each in record_offsets}
        self.committed.update(values)
        self._record_offsets.update(record_offsets)
        self._last_record_offset = max(self._last_record_offset, max(record_offsets.values(), default=-1))

    def remove(self, topic_partition: TopicPartition, record_offset: int) -> None:
        """A tombstone was written for the partition; what was written after it stays."""
        for producer_id, pending in tuple(self.transactional.items()):
            if pending.record_offsets.get(topic_partition, record_offset) < record_offset:
                pending.remove(topic_partition)
                if not pending.values:
                    del self.transactional[producer_id]
        if self._record_offsets.get(topic_partition, -1) > record_offset:
            return
        self.committed.pop(topic_partition, None)
        self._record_offsets.pop(topic_partition, None)

    # Reading

    def partitions(self) -> set[TopicPartition]:
        """All partitions that have, or are about to have, an offset."""
        known = {*self.committed, *self._writing}
        for pending in self.transactional.values():
            known.update(pending.values)
        return known

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """Whether an offset of the partition is decided on but not committed (KIP-447)."""
        return topic_partition in self._writing or self._is_in_transaction(topic_partition)

    def _is_in_transaction(self, topic_partition: TopicPartition) -> bool:
        return any(topic_partition in pending.values for pending in self.transactional.values())

    def is_written_before(self, topic_partition: TopicPartition, record_offset: int) -> bool:
        """Whether the record of a committed offset stands before a place in the log."""
        return self._record_offsets[topic_partition] < record_offset

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: int | None, subscribed: frozenset[str] = frozenset()
    ) -> list[TopicPartition]:
        """Partitions whose offset has outlived the retention (KIP-211).

        The retention counts from ``since_ms`` (when the group lost its last member) or, with
        None, from each commit; an offset with an expiry time of its own (OffsetCommit v2 to v4)
        goes by that. Topics in ``subscribed`` stay, and partitions of which a transaction is
        about to commit another offset.
        """
        found = []
        for topic_partition, value in self.committed.items():
            if topic_partition.topic in subscribed or topic_partition in self._writing:
                continue
            if value.expire_timestamp_ms != NO_EXPIRATION:
                due = now_ms >= value.expire_timestamp_ms
            else:
                due = now_ms - (value.commit_timestamp_ms if since_ms is None else since_ms) >= retention_ms
            if due and not self._is_in_transaction(topic_partition):
                found.append(topic_partition)
        return found
