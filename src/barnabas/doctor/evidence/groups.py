"""Consumer groups with their members, their offsets, and what their own topic says of time.

In Kafka: `ConsumerGroupDescription`, `OffsetFetch`, and the records of ``__consumer_offsets``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.groups import GroupDescription
from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["STILL_MS", "GroupHistoryPart", "GroupPartition", "GroupTimes", "GroupView", "GroupsPart", "RebalancesPart"]

STILL_MS = 300_000
"""How long an offset must stand to stand still: a member that works commits much more often, Java's
consumer every 5 seconds."""


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A committed offset beside the log of its partition.

    ``first`` and ``end`` are the log's bounds; None where they were not read. ``is_deleted``: there
    is no such topic or partition."""

    committed: int
    first: int | None = None
    end: int | None = None
    is_deleted: bool = False
    end_before: int | None = None
    """The end as it was `STILL_MS` before, by the timestamps of records; None where it was not
    read."""

    @property
    def lag(self) -> int | None:
        """Records beyond the committed offset; None where the end is not known."""
        return None if self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group: its description by the coordinator, and its offsets."""

    description: GroupDescription
    partitions: Mapping[TopicPartition, GroupPartition]

    @property
    def group_id(self) -> str:
        return self.description.group_id

    @property
    def lag(self) -> int:
        """The sum of the lags that are known."""
        return sum(each.lag or 0 for each in self.partitions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPart(EvidencePart):
    """The groups that the reader may see."""

    groups: tuple[GroupView, ...]


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """When a group did something, in ms since the epoch by its coordinator's clock.

    ``commits`` are the last commits by partition, ``unmoved_ms`` the first commits of the offset
    that holds now. ``state_ms`` is when the group came into its state. What is missing happened
    before ``since_ms``, where the reading of the topic began; None where all of it was read."""

    commits: Mapping[TopicPartition, int]
    unmoved_ms: Mapping[TopicPartition, int]
    state_ms: int | None
    since_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistoryPart(EvidencePart):
    """What the last records of ``__consumer_offsets`` say, by group."""

    times: Mapping[str, GroupTimes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancesPart(EvidencePart):
    """The groups that were in a rebalance at each look, with their state.

    ``watched_ms`` is the time from the first look to the last; 0 where no group was in one."""

    states: Mapping[str, str]
    watched_ms: int
