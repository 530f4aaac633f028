"""OffsetDelete and DeleteGroups: which offsets and groups may be deleted, and one answer for all of them.

In Kafka: `handleDeleteOffsets` and `handleDeleteGroups` of `GroupCoordinator`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.base.clock import Now
from barnabas.base.ids import TopicPartition
from barnabas.broker.groups.coordinator import GroupCoordinator, KnownPartitions
from barnabas.broker.groups.effects import Effect, Reply
from barnabas.broker.groups.group import Group, GroupState
from barnabas.wire.kafka.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["delete_groups", "delete_offsets"]


def delete_offsets(
    coordinator: GroupCoordinator,
    request: OffsetDeleteRequest,
    known: KnownPartitions,
    to: Any,
    now: Now,
) -> list[Effect]:
    """Delete offsets of topics that no member subscribes to; anything in an empty group (KIP-496)."""
    group, error = _existing(coordinator, request.group_id)
    if group is None or error:
        return [Reply(to, OffsetDeleteResponse(error_code=error, topics=[]))]
    subscribed = _protected_topics(group)
    if subscribed is None:
        return [Reply(to, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[]))]
    accepted: list[OffsetDeleteResponsePartition] = []
    gone: list[TopicPartition] = []
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            key = TopicPartition(topic.name, partition.partition_index)
            if known(key) is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed(topic.name):
                answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                gone.append(key)
                accepted.append(answer)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    response = OffsetDeleteResponse(topics=topics)

    def written(failure: ErrorCode) -> None:
        for answer in accepted:
            answer.error_code = failure
        coordinator.reply(to, response)

    return coordinator.delete_offsets(group, gone, written, now)


def _protected_topics(group: Group) -> Callable[[str], bool] | None:
    """A test for topics whose offsets members depend on; None when that cannot be known, and all are protected."""
    if group.state is GroupState.EMPTY:
        return lambda _: False
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    topics = group.subscribed_topics
    return (lambda _: True) if topics is None else topics.__contains__


def _existing(
    coordinator: GroupCoordinator, group_id: str, *, may_be_empty: bool = False
) -> tuple[Group | None, ErrorCode]:
    error = coordinator.check(group_id, may_be_empty=may_be_empty)
    if error:
        return None, error
    group = coordinator.find(group_id)
    if group is None or group.state is GroupState.DEAD:
        return None, ErrorCode.GROUP_ID_NOT_FOUND
    return group, ErrorCode.NONE


def delete_groups(coordinator: GroupCoordinator, request: DeleteGroupsRequest, to: Any, now: Now) -> list[Effect]:
    """Delete groups without members; answered when the last of them is settled."""
    results: dict[str, DeletableGroupResult] = {}
    unsettled: set[str] = set()
    response = DeleteGroupsResponse(results=[])

    def settle(group_id: str, error: ErrorCode) -> None:
        results[group_id].error_code = error
        unsettled.discard(group_id)
        if not unsettled:
            coordinator.reply(to, response)

    deletable = []
    for group_id in dict.fromkeys(request.groups_names):
        group, error = _existing(coordinator, group_id, may_be_empty=True)
        result = results[group_id] = DeletableGroupResult(group_id=group_id, error_code=error)
        response.results.append(result)
        if group is not None and group.state is not GroupState.EMPTY:
            result.error_code = ErrorCode.NON_EMPTY_GROUP
        elif group is not None:
            unsettled.add(group_id)
            deletable.append(group)
    if not deletable:
        return [Reply(to, response)]
    effects: list[Effect] = []
    for group in deletable:
        effects += coordinator.delete_group(group, partial(settle, group.group_id), now)
    return effects
