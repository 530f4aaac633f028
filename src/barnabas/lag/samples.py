"""One look at a cluster: what its groups have committed, and where its partitions begin and end.

In Kafka: the answers of `Admin.listGroups`, `listConsumerGroupOffsets` and `listOffsets`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.lag.values import GroupKind

__all__ = ["ClusterSample", "FoundBounds", "GroupSample", "WindowRecord"]

FoundBounds = tuple[int, int] | ClientError
"""The first offset of a partition and its end, or why they are not known."""


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group as its coordinator describes it."""

    group: str
    kind: GroupKind
    protocol_type: str
    """"consumer" for a group with members of consumers, now or before; "" for one that only
    holds offsets."""
    state: str
    members: int | None
    """None where its members are not known."""
    committed: Mapping[TopicPartition, int]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """The client id of the member that has a partition."""
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of a share group: its lag as the broker counts it, which knows the records that are
    acknowledged before others."""
    problem: str = ""
    """Why its offsets are not known."""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """All groups that were asked for. Offsets were read before the bounds, so that no lag is
    too small."""

    at_ms: int
    cluster_id: str | None
    groups: Sequence[GroupSample]
    bounds: Mapping[TopicPartition, FoundBounds]
    missing: Sequence[str] = ()
    notes: Sequence[str] = ()


class WindowRecord(NamedTuple):
    """The samples of a group: times, partitions by topic, and a row of committed offsets and one of
    ends for each time."""

    times_ms: list[int]
    partitions: list[tuple[str, int]]
    committed: list[list[int]]
    ends: list[list[int]]
