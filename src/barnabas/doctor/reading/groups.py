"""Reads groups with their offsets, and the last records of their own topic.

In Kafka: `Admin.listConsumerGroups`, `describeConsumerGroups`, `listConsumerGroupOffsets`; the
records of ``__consumer_offsets``.
"""

import time
from collections.abc import Iterable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.cluster_rights import may_describe_cluster
from barnabas.client.admin.groups import (
    GroupDescription,
    GroupsFound,
    ask_coordinators,
    describe_group,
    group_offsets,
    groups_in_part,
)
from barnabas.client.admin.offsets import FoundOffset, bounds_in_part, offsets_in_part
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, RefusedError, UnknownTopicError
from barnabas.doctor.evidence.cluster import MomentPart
from barnabas.doctor.evidence.groups import STILL_MS, GroupPartition, GroupsPart, GroupView, RebalancesPart
from barnabas.doctor.evidence.part import Absent, Gap, Why
from barnabas.doctor.reading.registration import ClusterReading, absent_for, reads

__all__ = ["read_consumer_groups", "read_rebalances"]

_RIGHT = "Describe on the group"
_ALL_RIGHT = "Describe on the cluster"
_REBALANCES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_WATCH_S, _LOOK_S = 4.2, 0.3
"""A rebalance may take as long as the coordinator waits for the first members, 3 s."""

_Answer = tuple[GroupDescription, dict[TopicPartition, int]]


@reads(right=_RIGHT)
def read_consumer_groups(reading: ClusterReading) -> GroupsPart:
    """The groups that the user may see, with the bounds of the partitions that they have read."""
    connection = reading.connection
    listed = groups_in_part(connection)
    gaps = _gaps_of_list(connection, listed)
    views: dict[str, _Answer] = {}
    for group_id, answer in _ask(connection, listed).items():
        if isinstance(answer, ClientError):
            gaps.append(Gap(f"group {group_id}", absent_for(answer, _RIGHT)))
        else:
            views[group_id] = answer
    committed = list(dict.fromkeys(partition for _, offsets in views.values() for partition in offsets))
    bounds = bounds_in_part(connection, committed)
    before = _ends_before(connection, reading.require(MomentPart).now_ms, views, bounds)
    for partition, found in bounds.items():
        if isinstance(found, ClientError) and not isinstance(found, UnknownTopicError):
            gaps.append(Gap(f"partition {partition}", absent_for(found, "Describe on the topic")))
    return GroupsPart(
        groups=tuple(
            GroupView(
                description,
                {
                    partition: _partition(offset, bounds[partition], before.get(partition))
                    for partition, offset in offsets.items()
                },
            )
            for description, offsets in views.values()
        ),
        gaps=tuple(gaps),
    )


def _gaps_of_list(connection: AdminConnection, listed: GroupsFound) -> list[Gap]:
    """What the list may lack: brokers leave out the groups that the user may not describe."""
    gaps = [Gap(f"groups of broker {each}", absent_for(error, "")) for each, error in listed.unreachable.items()]
    if listed.leaderless:
        reason = f"{len(listed.leaderless)} partitions of __consumer_offsets have no leader, and so no coordinator"
        gaps.append(Gap("some groups", Absent(Why.UNREACHABLE, reason)))
    if may_describe_cluster(connection) is False:
        reason = f"the right {_ALL_RIGHT} is missing, and without it only groups that the user may describe are listed"
        gaps.append(Gap("other groups", Absent(Why.NO_RIGHT, reason)))
    return gaps


def _ask(connection: AdminConnection, listed: GroupsFound) -> dict[str, _Answer | ClientError]:
    """Description and offsets of each group, or why they are not known."""

    def ask(asking: AdminConnection, group_id: str) -> _Answer | RefusedError:
        try:
            return describe_group(asking, group_id), group_offsets(asking, group_id)
        except RefusedError as error:
            return error

    return ask_coordinators(connection, [each.group_id for each in listed.groups], ask, listed.coordinators)


def _partition(committed: int, bounds: tuple[int, int] | ClientError, before: int | None) -> GroupPartition:
    if isinstance(bounds, ClientError):
        return GroupPartition(committed, is_deleted=isinstance(bounds, UnknownTopicError))
    return GroupPartition(committed, *bounds, end_before=before)


def _ends_before(
    connection: AdminConnection,
    now_ms: int,
    views: Mapping[str, _Answer],
    bounds: Mapping[TopicPartition, tuple[int, int] | ClientError],
) -> dict[TopicPartition, int]:
    """Where the logs ended `STILL_MS` ago, of partitions in which a group with members lags."""
    behind = {
        partition: now_ms - STILL_MS
        for description, offsets in views.values()
        if description.members
        for partition, committed in offsets.items()
        if isinstance(found := bounds[partition], tuple) and committed < found[1]
    }
    ends = {}
    for partition, found in offsets_in_part(connection, behind).items() if behind else ():
        bound = bounds[partition]
        if isinstance(found, FoundOffset) and isinstance(bound, tuple):
            ends[partition] = found.offset if found.offset >= 0 else bound[1]
    return ends


@reads(right=_RIGHT)
def read_rebalances(reading: ClusterReading) -> RebalancesPart:
    """The groups that stay in a rebalance; they are looked at until they leave it, or for about
    four seconds."""
    states = _rebalancing((each.group_id, each.description.state) for each in reading.require(GroupsPart).groups)
    began, end = time.monotonic(), reading.deadline(_WATCH_S)
    while states and not end.is_over:
        time.sleep(min(_LOOK_S, end.left_s()))
        found = groups_in_part(reading.connection)
        now = _rebalancing((each.group_id, each.state) for each in found.groups)
        states = {group_id: state for group_id, state in now.items() if group_id in states}
    return RebalancesPart(states=states, watched_ms=round((time.monotonic() - began) * 1000) if states else 0)


def _rebalancing(states: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {group_id: state for group_id, state in states if state in _REBALANCES}
