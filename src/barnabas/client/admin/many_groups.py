"""Many groups in one request to their coordinator: their offsets, their members.

In Kafka: `Admin.listConsumerGroupOffsets` with a specification for each group (KIP-709), and
`Admin.describeConsumerGroups`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.groups import GroupDescription, GroupMember, assigned_partitions
from barnabas.client.cluster.admin_connection import AdminConnection, Broker
from barnabas.client.errors import RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from barnabas.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

__all__ = [
    "CommittedOffsets",
    "ShareOffset",
    "describe_classic_groups",
    "describe_consumer_groups",
    "describe_share_groups",
    "offsets_of_groups",
    "offsets_of_share_groups",
]

CommittedOffsets = dict[TopicPartition, int]
"""What a group has committed."""

_TOGETHER_FROM = 8  # the version of OffsetFetch that asks for several groups
_LAST_VERSION_WITH_NAMES = 9  # later ones name topics by id only
_MOST_GROUPS = 50
"""In one request: other clients wait while it is answered."""


def offsets_of_groups(
    connection: AdminConnection, coordinator: int, group_ids: Sequence[str]
) -> dict[str, CommittedOffsets | RefusedError]:
    """Every offset of these groups, which one broker coordinates.

    A group is left with a `RefusedError` where its offsets may not be read, or where another
    broker has it by now. Topics without the right to describe them are left out by the broker.
    """
    version = connection.negotiated(OffsetFetchRequest, coordinator, max_version=_LAST_VERSION_WITH_NAMES)
    found: dict[str, CommittedOffsets | RefusedError] = {}
    for some in _parts(group_ids, _MOST_GROUPS if version >= _TOGETHER_FROM else 1):
        if version >= _TOGETHER_FROM:
            groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in some]
            request = OffsetFetchRequest(groups=groups)
        else:
            request = OffsetFetchRequest(group_id=some[0], topics=None)
        response: Any = connection.send(request, OffsetFetchResponse, coordinator, max_version=_LAST_VERSION_WITH_NAMES)
        for group_id, answer in zip(some, _in_order(some, response), strict=True):
            if answer.error_code:
                found[group_id] = refusal(answer.error_code, about=f"group {group_id}")
            else:
                found[group_id] = _committed(answer)
    return found


def _in_order(group_ids: Sequence[str], response: Any) -> list[Any]:
    if not response.groups:
        return [response]
    by_id = {group.group_id: group for group in response.groups}
    return [by_id[group_id] for group_id in group_ids]


def _committed(answer: Any) -> CommittedOffsets:
    found = {}
    for topic in answer.topics:
        name = topic.name
        for item in topic.partitions:
            if item.committed_offset >= 0 and not item.error_code:
                found[TopicPartition(name, item.partition_index)] = item.committed_offset
    return found


class ShareOffset(NamedTuple):
    """Where a share group stands at a partition (KIP-932)."""

    start_offset: int
    """All records before it are acknowledged."""
    lag: int | None
    """Records that are not acknowledged, as the broker counts them (KIP-1226); None from one
    before Kafka 4.2."""


def offsets_of_share_groups(
    connection: AdminConnection, coordinator: int, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, ShareOffset] | RefusedError]:
    """Where these share groups stand at the partitions that they have begun."""
    found: dict[str, dict[TopicPartition, ShareOffset] | RefusedError] = {}
    for some in _parts(group_ids, _MOST_GROUPS):
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None) for group_id in some]
        request = DescribeShareGroupOffsetsRequest(groups=groups)
        for group in connection.send(request, DescribeShareGroupOffsetsResponse, coordinator).groups:
            if group.error_code:
                found[group.group_id] = refusal(group.error_code, about=f"group {group.group_id}")
                continue
            found[group.group_id] = {
                TopicPartition(topic.topic_name, item.partition_index): ShareOffset(
                    item.start_offset, item.lag if item.lag >= 0 else None
                )
                for topic in group.topics
                for item in topic.partitions
                if item.start_offset >= 0 and not item.error_code
            }
    return found


def describe_classic_groups(
    connection: AdminConnection, coordinator: int, group_ids: Sequence[str]
) -> dict[str, GroupDescription | RefusedError]:
    """These groups of the classic protocol with their members; "Dead" is a group that is not
    there."""
    return _describe(
        connection,
        coordinator,
        group_ids,
        lambda some: DescribeGroupsRequest(groups=some),
        DescribeGroupsResponse,
        _of_classic_protocol,
    )


def describe_consumer_groups(
    connection: AdminConnection, coordinator: int, group_ids: Sequence[str]
) -> dict[str, GroupDescription | RefusedError]:
    """The same for groups of the new protocol (KIP-848)."""
    return _describe(
        connection,
        coordinator,
        group_ids,
        lambda some: ConsumerGroupDescribeRequest(group_ids=some),
        ConsumerGroupDescribeResponse,
        _of_new_protocol,
    )


def describe_share_groups(
    connection: AdminConnection, coordinator: int, group_ids: Sequence[str]
) -> dict[str, GroupDescription | RefusedError]:
    """The same for share groups; several members may have one partition."""
    return _describe(
        connection,
        coordinator,
        group_ids,
        lambda some: ShareGroupDescribeRequest(group_ids=some),
        ShareGroupDescribeResponse,
        _of_new_protocol,
    )


def _describe(
    connection: AdminConnection,
    coordinator: int,
    group_ids: Sequence[str],
    request: Callable[[list[str]], Any],
    answer: type[Any],
    read: Callable[[Any], tuple[str, list[GroupMember]]],
) -> dict[str, GroupDescription | RefusedError]:
    broker = next(
        (each for each in connection.describe_cluster().brokers if each.id == coordinator), Broker(coordinator, "", 0)
    )
    found: dict[str, GroupDescription | RefusedError] = {}
    for some in _parts(group_ids, _MOST_GROUPS):
        for group in connection.send(request(list(some)), answer, coordinator).groups:
            name = group.group_id
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                found[name] = GroupDescription(name, "Dead", "", broker)
            elif group.error_code:
                found[name] = refusal(group.error_code, about=f"group {name}")
            else:
                assignor, members = read(group)
                found[name] = GroupDescription(name, group.group_state, assignor, broker, members)
    return found


def _of_classic_protocol(group: Any) -> tuple[str, list[GroupMember]]:
    """The members; the assignor is not known here."""
    return "", [_classic_member(member) for member in group.members]


def _of_new_protocol(group: Any) -> tuple[str, list[GroupMember]]:
    """The assignor and the members, of consumer groups and of share groups."""
    return group.assignor_name, [_new_member(member) for member in group.members]


def _classic_member(member: Any) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assigned_partitions(bytes(member.member_assignment)),
    )


def _new_member(member: Any) -> GroupMember:
    partitions = [
        TopicPartition(item.topic_name, partition)
        for item in member.assignment.topic_partitions
        for partition in item.partitions
    ]
    instance_id = getattr(member, "instance_id", None)  # members of share groups have none
    return GroupMember(member.member_id, instance_id, member.client_id, member.client_host, sorted(partitions))


def _parts(group_ids: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(group_ids), most):
        yield group_ids[start : start + most]
