"""The offsets that groups have for deleted partitions, found in some groups at a time:
there may be 100,000 groups.

In Kafka: `GroupMetadataManager.cleanupGroupMetadata`, for deleted partitions.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.broker.groups.group import Group

__all__ = ["DeletedPartitions"]

_OFFSETS_A_STEP = 20_000
"""How many offsets are looked for at a time: some milliseconds."""
_GROUPS_A_STEP = 64
"""Most groups at a time that get tombstones: a batch for each."""
_TOMBSTONES_OF_A_GROUP = 16
"""This many tombstones take as long as the batch that holds them."""


class _Deletion:
    """Partitions that were deleted together, and the groups that are yet to be
    looked at, the last one first."""

    __slots__ = ("end_offsets", "groups", "partitions")

    def __init__(
        self, partitions: Iterable[TopicPartition], end_offsets: Mapping[int, int], groups: Iterable[Group]
    ) -> None:
        self.partitions = dict.fromkeys(partitions)
        self.end_offsets = end_offsets
        self.groups = list(reversed([*groups]))

    def offsets_of(self, group: Group) -> list[TopicPartition]:
        """The deleted partitions for which a group has offsets."""
        offsets = group.offsets
        committed, deleted = offsets.committed, self.partitions
        if len(deleted) < len(committed):
            gone = [each for each in deleted if each in committed]
        else:
            gone = [each for each in committed if each in deleted]
        end_offset = self.end_offsets.get(group.partition, 0)
        return [each for each in gone if offsets.is_written_before(each, end_offset)]


class DeletedPartitions:
    """Partitions whose offsets some groups may still have."""

    def __init__(self) -> None:
        self._deletions: deque[_Deletion] = deque()

    def __bool__(self) -> bool:
        return bool(self._deletions)

    def add(
        self, partitions: Iterable[TopicPartition], end_offsets: Mapping[int, int], groups: Iterable[Group]
    ) -> None:
        """Partitions were deleted.

        ``end_offsets`` says where the logs of the groups end, by partition of
        ``__consumer_offsets``: what stands behind is of another topic of the same name."""
        self._deletions.append(_Deletion(partitions, end_offsets, groups))

    def next_groups(self) -> Iterator[tuple[Group, list[TopicPartition]]]:
        """Look at some groups: those that have offsets to remove, with their partitions.

        One by one: where the caller fails with one, the others are still there."""
        seen = weight = 0
        while self._deletions and seen <= _OFFSETS_A_STEP and weight < _GROUPS_A_STEP:
            deletion = self._deletions[0]
            if not deletion.groups:
                self._deletions.popleft()
                continue
            group = deletion.groups.pop()
            seen += 1 + min(len(group.offsets.committed), len(deletion.partitions))
            gone = deletion.offsets_of(group)
            if gone:
                weight += 1 + len(gone) // _TOMBSTONES_OF_A_GROUP
                yield group, gone
