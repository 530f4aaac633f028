"""Queries about groups: their offsets, a list of them, a group's members.

Nothing here changes state.

In Kafka: `handleFetchOffsets`, `handleListGroups` and `handleDescribeGroup` of `GroupCoordinator`.
"""

from collections.abc import Iterable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.groups.group import Group, GroupState
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.wire.kafka.messages.list_groups import ListedGroup
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

__all__ = ["describe_group", "fetch_offsets", "list_groups"]

_MEMBERS_A_STEP = 256
GROUP_TYPE = "classic"
"""KIP-848's name for groups whose members assign partitions themselves."""


def fetch_offsets(
    coordinator: GroupCoordinator,
    group_id: str,
    topics: Iterable[tuple[str, Sequence[int]]] | None,
    *,
    require_stable: bool,
) -> Task[OffsetFetchResponseGroup]:
    """Committed offsets of the given partitions, or with None of all that have one.

    Offset -1 stands for none. With ``require_stable`` a partition with an undecided commit is
    answered with UNSTABLE_OFFSET_COMMIT (KIP-447). The group's own state does not matter.
    Offsets that are committed between two slices may be in the answer or not, as if each
    partition had a request of its own.
    """
    error = coordinator.check(group_id, may_be_empty=True)
    if error:
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error)
    group = coordinator.find(group_id)
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for topic_partition in tuple(group.offsets.committed) if group else ():
            by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
            yield None
        topics = by_topic.items()
    answers = []
    for topic, indexes in topics:
        partitions = []
        for index in indexes:
            partitions.append(_fetch_offset(group, TopicPartition(topic, index), require_stable))
            yield None
        answers.append(OffsetFetchResponseTopics(name=topic, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers)


def _fetch_offset(group: Group | None, key: TopicPartition, require_stable: bool) -> OffsetFetchResponsePartitions:
    committed = None
    error = ErrorCode.NONE
    if group is not None:
        if require_stable and group.offsets.is_unstable(key):
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
        else:
            committed = group.offsets.committed.get(key)
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=key.partition, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
        )
    return OffsetFetchResponsePartitions(
        partition_index=key.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def list_groups(coordinator: GroupCoordinator, states: Iterable[str], types: Iterable[str]) -> Task[list[ListedGroup]]:
    """Groups whose state is among ``states`` and type among ``types``, whatever their case.

    No names, no filter. Each as it is when its turn comes; groups that begin
    meanwhile are left out.
    """
    wanted_states = yield from _lower_case(states)
    wanted_types = yield from _lower_case(types)
    listed: list[ListedGroup] = []
    if wanted_types and GROUP_TYPE not in wanted_types:
        return listed
    for group in tuple(coordinator.groups()):
        state = group.state.value
        if (not wanted_states or state.lower() in wanted_states) and coordinator.find(group.group_id) is group:
            protocol_type = group.protocol_type or ""
            listed.append(
                ListedGroup(
                    group_id=group.group_id, protocol_type=protocol_type, group_state=state, group_type=GROUP_TYPE
                )
            )
        yield None
    return listed


def _lower_case(names: Iterable[str]) -> Task[set[str]]:
    lower = set()
    for name in names:
        yield None
        lower.add(name.lower())
    return lower


def describe_group(coordinator: GroupCoordinator, group_id: str) -> Task[DescribedGroup]:
    """A group with its members, as it is when this begins.

    Assignments and what members subscribe to are shown while the group is stable. A group that does
    not exist is Dead, without an error, as it was before KIP-1043 (v6).
    """
    described = DescribedGroup(group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[])
    error = coordinator.check(group_id, may_be_empty=True)
    if error:
        described.error_code = error
        return described
    group = coordinator.find(group_id)
    if group is None:
        described.group_state = GroupState.DEAD.value
        return described
    stable = group.state is GroupState.STABLE
    described.group_state = group.state.value
    described.protocol_type = group.protocol_type or ""
    described.protocol_data = group.protocol_name or "" if stable else ""
    protocol = group.protocol_name
    rows = [
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]
    for first in range(0, len(rows), _MEMBERS_A_STEP):
        described.members += [
            DescribedGroupMember(
                member_id=member_id,
                group_instance_id=group_instance_id,
                client_id=client_id,
                client_host=client_host,
                member_metadata=metadata,
                member_assignment=assignment,
            )
            for member_id, group_instance_id, client_id, client_host, metadata, assignment in rows[
                first : first + _MEMBERS_A_STEP
            ]
        ]
        yield None
    return described
