"""From a group's offset in the source to one in the target, by pairs of offsets of the same record.

Pure. Offsets of the two clusters differ: records may be gone, or were copied twice. So pairs
are remembered now and then, and an offset is translated by the last pair at or before it: to
the pair's own offset, or to the one after it. The result is never beyond what the group has
read, so a group that moves to the target misses nothing and may read some records again. A
group that has read all is translated exactly, because the last copied record of each partition
becomes a pair at each commit.

In Kafka: `OffsetSyncStore`, and `OffsetSyncWriter` for when a pair is worth keeping.
"""

from bisect import bisect_right
from collections.abc import Iterable

from barnabas.base.ids import TopicPartition
from barnabas.mirror.link_records import OffsetSync

__all__ = ["OffsetTranslation"]

_MOST_PAIRS = 64


class OffsetTranslation:
    """Pairs of each partition of the source, and those that are to be written down.

    Invariant: the pairs of a partition rise in both offsets. At most `_MOST_PAIRS` are kept, the
    older ones further apart.
    """

    def __init__(self, offset_lag_max: int = 100) -> None:
        self._offset_lag_max = offset_lag_max
        self._pairs: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._newest: dict[TopicPartition, tuple[int, int]] = {}
        self._unwritten: dict[TopicPartition, tuple[int, int]] = {}

    def copied(self, partition: TopicPartition, upstream: int, downstream: int) -> None:
        """A record was copied.

        It becomes a pair if it is the first, far from the last pair, or the offsets diverge."""
        pairs = self._pairs.get(partition)
        self._newest[partition] = upstream, downstream
        if pairs:
            last_up, last_down = pairs[-1]
            is_near = 0 <= upstream - last_up < self._offset_lag_max
            if is_near and upstream - last_up == downstream - last_down:
                return
        self._keep(partition, upstream, downstream)
        self._unwritten[partition] = upstream, downstream

    def mark(self) -> None:
        """Make pairs of the last copied records, for groups that have read all."""
        for partition, (upstream, downstream) in self._newest.items():
            self._keep(partition, upstream, downstream)
            self._unwritten[partition] = upstream, downstream
        self._newest.clear()

    def load(self, sync: OffsetSync) -> None:
        """A pair that was written down before."""
        self._keep(TopicPartition(sync.topic, sync.partition), sync.upstream, sync.downstream)

    def unwritten(self) -> list[OffsetSync]:
        """The newest pair of each partition whose newest pair is not `written`."""
        return [OffsetSync(*partition, *pair) for partition, pair in self._unwritten.items()]

    def written(self, syncs: Iterable[OffsetSync]) -> None:
        """These are written down; a pair that came meanwhile is not."""
        for sync in syncs:
            partition = TopicPartition(sync.topic, sync.partition)
            if self._unwritten.get(partition) == (sync.upstream, sync.downstream):
                del self._unwritten[partition]

    def translate(self, partition: TopicPartition, offset: int) -> int | None:
        """The offset in the target from which a group that committed ``offset`` goes on.

        None if that is not known."""
        pairs = self._pairs.get(partition, ())
        place = bisect_right(pairs, offset, key=lambda pair: pair[0])
        if place == 0:
            return None
        upstream, downstream = pairs[place - 1]
        return downstream if upstream == offset else downstream + 1

    def _keep(self, partition: TopicPartition, upstream: int, downstream: int) -> None:
        pairs = self._pairs.setdefault(partition, [])
        while pairs and (pairs[-1][0] >= upstream or pairs[-1][1] >= downstream):
            # Copied again after a crash, or the target's topic was made again: the
            # later pair holds.
            pairs.pop()
        pairs.append((upstream, downstream))
        if len(pairs) > _MOST_PAIRS:
            half = len(pairs) // 2
            pairs[:half] = pairs[:half:2]
