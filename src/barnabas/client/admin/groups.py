"""Consumer groups over an `AdminConnection`: list, describe, their offsets, deletion.

Errors are `KafkaError`.

In Kafka: `Admin.listConsumerGroups`.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.ids import TopicPartition
from barnabas.client.cluster.admin_connection import ROUTING_ERRORS, AdminConnection, Broker
from barnabas.client.cluster.each_broker import ask_each, raise_first
from barnabas.client.errors import ClientError, RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupsFound",
    "alter_group_offsets",
    "ask_coordinators",
    "assigned_partitions",
    "delete_group",
    "delete_group_offsets",
    "describe_group",
    "group_offsets",
    "groups_in_part",
    "list_groups",
    "prepare_groups",
    "remove_members",
]

_FETCH_GROUPS_FROM = 8  # the version of OffsetFetch from which it asks for several groups at once
_GROUPS_TOPIC = "__consumer_offsets"
_SECOND_LOOK_AFTER_S = 0.25
_OF_CONSUMERS = ("consumer", "")  # those without a kind only hold offsets
_LAST_VERSION_WITH_NAMES = 9  # of OffsetFetch and OffsetCommit; later ones name topics by id only


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it.

    State and type are "" if the broker does not send them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and the partitions it has."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group; its state is "Dead" where there is no such group."""

    group_id: str
    state: str
    assignor: str
    coordinator: Broker
    members: list[GroupMember] = field(default_factory=list)


def list_groups(
    connection: AdminConnection, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """The consumer groups of all brokers, by id.

    Raises when a broker does not answer, for the list would lack its groups."""
    connection.describe_cluster(fresh=True)
    answers = raise_first(_ask_for_groups(connection, states, types))
    return _by_id([group for listed in answers.values() for group in listed])


class GroupsFound(NamedTuple):
    """The groups of the brokers that answered, by id, and what keeps others out of the list."""

    groups: list[GroupListing]
    coordinators: dict[str, int]
    """The broker of each group."""
    unreachable: dict[int, ClientError]
    """The brokers that did not answer: groups of theirs are not in the list."""
    leaderless: list[TopicPartition]
    """The partitions of the groups' own topic without a leader: groups in them have
    no broker at present."""


def groups_in_part(
    connection: AdminConnection,
    states: Sequence[str] = (),
    types: Sequence[str] = (),
    protocol_types: Sequence[str] = _OF_CONSUMERS,
) -> GroupsFound:
    """The same for a reader that does not wait: all brokers are asked at once, and those that
    do not answer are named.

    Raises `ConnectError` when none answers.
    """
    leaderless = _partitions_without_leader(connection)
    answers = _ask_for_groups(connection, states, types, protocol_types)
    found: list[GroupListing] = []
    coordinators: dict[str, int] = {}
    unreachable: dict[int, ClientError] = {}
    for broker_id, answer in answers.items():
        if isinstance(answer, RefusedError) and answer.code not in ROUTING_ERRORS:
            raise answer
        if isinstance(answer, ClientError):
            unreachable[broker_id] = answer
            continue
        found += answer
        coordinators.update(dict.fromkeys((group.group_id for group in answer), broker_id))
    if answers and len(unreachable) == len(answers):
        raise next(iter(unreachable.values()))
    return GroupsFound(_by_id(found), coordinators, unreachable, leaderless)


def _ask_for_groups(
    connection: AdminConnection,
    states: Sequence[str],
    types: Sequence[str],
    protocol_types: Sequence[str] = _OF_CONSUMERS,
) -> dict[int, list[GroupListing] | ClientError]:
    """The groups of each broker, or why it does not list them; all are asked at once."""
    return ask_each(
        connection,
        [broker.id for broker in connection.describe_cluster().brokers],
        lambda asking, broker_id: _list_groups_of(asking, broker_id, states, types, protocol_types),
    )


def _list_groups_of(
    connection: AdminConnection,
    broker_id: int,
    states: Sequence[str],
    types: Sequence[str],
    protocol_types: Sequence[str],
) -> list[GroupListing]:
    """The groups that a broker coordinates."""
    from barnabas.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse

    def attempt() -> ListGroupsResponse:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return connection.send(request, ListGroupsResponse, broker_id)

    response = connection.retry(attempt, lambda answer: [answer.error_code])
    if response.error_code:
        raise refusal(response.error_code)
    # Groups of other kinds (Connect's workers) share the coordinator.
    return [
        GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
        for group in response.groups
        if group.protocol_type in protocol_types
    ]


def _by_id(listed: Iterable[GroupListing]) -> list[GroupListing]:
    found = {group.group_id: group for group in listed}
    return [found[group_id] for group_id in sorted(found)]


def _partitions_without_leader(connection: AdminConnection) -> list[TopicPartition]:
    """Those of the groups' topic; none where the topic is not there yet, or may not be described.

    Leaders of a topic that is being made, or that move, are there at a second look.
    """
    found: list[TopicPartition] = []
    for is_last in (False, True):
        found = [
            TopicPartition(_GROUPS_TOPIC, item.partition_index)
            for topic in connection.metadata([_GROUPS_TOPIC]).topics
            for item in topic.partitions
            if item.leader_id < 0
        ]
        if not found or is_last:
            break
        time.sleep(_SECOND_LOOK_AFTER_S)
    return found


def ask_coordinators(
    connection: AdminConnection,
    group_ids: Iterable[str],
    ask: Callable[[AdminConnection, str], T],
    coordinators: Mapping[str, int] | None = None,
) -> dict[str, T | ClientError]:
    """What ``ask(connection, group_id)`` returns for each group, or why it cannot be asked.

    All coordinators are asked at once. ``coordinators`` are those that are known already. What a
    coordinator refuses is raised.
    """
    found: dict[str, T | ClientError] = {}
    by_broker: dict[int, list[str]] = {}
    known = coordinators or {}
    asked = list(group_ids)
    leaderless = [] if known.keys() >= set(asked) else _partitions_without_leader(connection)
    for group_id in asked:
        broker_id = known.get(group_id)
        try:
            broker_id = _coordinator(connection, group_id, len(leaderless)) if broker_id is None else broker_id
        except RefusedError as error:
            found[group_id] = error
            continue
        by_broker.setdefault(broker_id, []).append(group_id)

    def ask_all(asking: AdminConnection, broker_id: int) -> None:
        for group_id in by_broker[broker_id]:
            try:
                found[group_id] = ask(asking, group_id)
            except RefusedError as error:
                found[group_id] = error

    for broker_id, failed in ask_each(connection, by_broker, ask_all).items():
        if failed is not None:
            found.update((group_id, failed) for group_id in by_broker[broker_id] if group_id not in found)
    for answer in found.values():
        if isinstance(answer, RefusedError) and answer.code not in ROUTING_ERRORS:
            raise answer
    return found


def _coordinator(connection: AdminConnection, group_id: str, leaderless: int) -> int:
    """Where a group belongs.

    It does not wait for a broker that must come back first, as partitions without a leader do."""
    if not leaderless:
        return connection.find_coordinator(group_id).id
    response = connection.ask_for_coordinator(group_id)
    if response.error_code:
        subject = "1 partition has" if leaderless == 1 else f"{leaderless} partitions have"
        raise refusal(
            response.error_code, f"group {group_id} has no coordinator: {subject} no leader in {_GROUPS_TOPIC}"
        )
    broker_id: int = response.node_id
    return broker_id


def describe_group(connection: AdminConnection, group_id: str) -> GroupDescription:
    """A group with its members; groups of the new protocol (KIP-848) too."""
    from barnabas.wire.kafka.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    coordinator = connection.find_coordinator(group_id)
    try:
        new = connection.send_to_coordinator(
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id]),
            ConsumerGroupDescribeResponse,
            lambda answer: [group.error_code for group in answer.groups],
        ).groups[0]
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
    else:
        if not new.error_code:
            members = [
                GroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    sorted(
                        TopicPartition(item.topic_name, partition)
                        for item in member.assignment.topic_partitions
                        for partition in item.partitions
                    ),
                )
                for member in new.members
            ]
            return GroupDescription(group_id, new.group_state, new.assignor_name, coordinator, members)
    return _describe_classic_group(connection, group_id, coordinator)


def _describe_classic_group(connection: AdminConnection, group_id: str, coordinator: Broker) -> GroupDescription:
    from barnabas.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    group = connection.send_to_coordinator(
        group_id,
        DescribeGroupsRequest(groups=[group_id]),
        DescribeGroupsResponse,
        lambda answer: [group.error_code for group in answer.groups],
    ).groups[0]
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group_id, "Dead", "", coordinator)
    if group.error_code:
        raise refusal(group.error_code, group.error_message, about=f"group {group_id}")
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(member.member_assignment),
        )
        for member in group.members
    ]
    return GroupDescription(group_id, group.group_state, group.protocol_data, coordinator, members)


@lru_cache(maxsize=4096)  # an assignment stays until the group's next rebalance
def assigned_partitions(data: bytes) -> list[TopicPartition]:
    """The partitions in a member's assignment, not to be changed.

    None while the group is rebalancing, or in a form of its own."""
    from barnabas.wire.kafka.consumer_protocol import decode_assignment

    if not data:
        return []
    try:
        assignment = decode_assignment(data)
    except CorruptDataError:
        return []
    return sorted(
        TopicPartition(item.topic, partition)
        for item in assignment.assigned_partitions
        for partition in item.partitions
    )


def group_offsets(connection: AdminConnection, group_id: str) -> dict[TopicPartition, int]:
    """Every offset that a group has committed."""
    from barnabas.wire.kafka.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponse,
    )

    def codes(answer: OffsetFetchResponse) -> list[int]:
        return [answer.groups[0].error_code if answer.groups else answer.error_code]

    coordinator = connection.find_coordinator(group_id)
    version = connection.negotiated(OffsetFetchRequest, coordinator.id, max_version=_LAST_VERSION_WITH_NAMES)
    if version >= _FETCH_GROUPS_FROM:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    else:
        request = OffsetFetchRequest(group_id=group_id, topics=None)
    response = connection.send_to_coordinator(
        group_id, request, OffsetFetchResponse, codes, max_version=_LAST_VERSION_WITH_NAMES
    )
    if code := codes(response)[0]:
        raise refusal(code, about=f"group {group_id}")
    offsets = {}
    for topic in response.groups[0].topics if response.groups else response.topics:
        for item in topic.partitions:
            if item.error_code:
                raise refusal(item.error_code, about=f"topic {topic.name}")
            if item.committed_offset >= 0:
                offsets[TopicPartition(topic.name, item.partition_index)] = item.committed_offset
    return offsets


def alter_group_offsets(
    connection: AdminConnection, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets for a group without members; returns each partition's outcome."""
    from barnabas.wire.kafka.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
    )

    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        )
    request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
    response = connection.send_to_coordinator(
        group_id,
        request,
        OffsetCommitResponse,
        lambda answer: [item.error_code for topic in answer.topics for item in topic.partitions],
        max_version=_LAST_VERSION_WITH_NAMES,
    )
    return {
        TopicPartition(topic.name, item.partition_index): ErrorCode.of(item.error_code)
        for topic in response.topics
        for item in topic.partitions
    }


def delete_group_offsets(
    connection: AdminConnection, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Forget a group's offsets; returns each partition's outcome.

    Raises what concerns the whole group."""
    from barnabas.wire.kafka.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, OffsetDeleteRequestTopic(name=topic)).partitions.append(
            OffsetDeleteRequestPartition(partition_index=partition)
        )
    request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
    response = connection.send_to_coordinator(
        group_id, request, OffsetDeleteResponse, lambda answer: [answer.error_code]
    )
    if response.error_code:
        raise refusal(response.error_code, about=f"group {group_id}")
    return {
        TopicPartition(topic.name, item.partition_index): ErrorCode.of(item.error_code)
        for topic in response.topics
        for item in topic.partitions
    }


def delete_group(connection: AdminConnection, group_id: str) -> None:
    """Delete a group without members, with its offsets."""
    from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    response = connection.send_to_coordinator(
        group_id,
        DeleteGroupsRequest(groups_names=[group_id]),
        DeleteGroupsResponse,
        lambda answer: [result.error_code for result in answer.results],
    )
    for result in response.results:
        if result.error_code:
            raise refusal(result.error_code, about=f"group {group_id}")


def remove_members(connection: AdminConnection, group_id: str) -> None:
    """Remove all members of a group, static ones too; those that live join again."""
    from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

    members = [
        MemberIdentity(member_id=member.member_id, group_instance_id=member.group_instance_id, reason="removed")
        for member in describe_group(connection, group_id).members
    ]
    if not members:
        return
    response = connection.send_to_coordinator(
        group_id,
        LeaveGroupRequest(group_id=group_id, members=members),
        LeaveGroupResponse,
        lambda answer: [answer.error_code],
    )
    for code in (response.error_code, *(member.error_code for member in response.members)):
        if code:
            raise refusal(code, about=f"group {group_id}")


def prepare_groups(bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
    """Ask for a coordinator, so that the cluster creates `__consumer_offsets` before the first
    group has to wait for it.

    Errors are left to the first group, which asks again.
    """
    with (
        contextlib.suppress(BarnabasError, OSError),
        AdminConnection(bootstrap_servers, {**(properties or {}), "request.timeout.ms": "5000"}) as admin,
    ):
        admin.find_coordinator("any")
