"""OffsetDelete and DeleteGroups: which offsets and groups may be deleted, and one
answer for all of them.

In Kafka: `handleDeleteOffsets` and `handleDeleteGroups` of `GroupCoordinator`.
"""

from collections.abc import Callable, Container
from functools import partial
from typing import Any

from barnabas.base.clock import Now
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.groups.commits import PartitionsOf
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.groups.effects import Effect, Reply
from barnabas.broker.groups.group import Group, GroupState
from barnabas.wire.kafka.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsResponse,
)
from barnabas.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["GroupDeletion", "OffsetDeletion", "delete_offsets", "prepare_offset_deletion"]


class OffsetDeletion:
    """An OffsetDelete request with the answers for its partitions, those that do not
    exist or are not allowed answered already."""

    __slots__ = ("request", "response", "wanted")

    def __init__(self, request: OffsetDeleteRequest) -> None:
        self.request = request
        self.response = OffsetDeleteResponse(topics=[])
        self.wanted: list[tuple[TopicPartition, OffsetDeleteResponsePartition]] = []


def prepare_offset_deletion(
    request: OffsetDeleteRequest, allowed: Container[str], partitions_of: PartitionsOf
) -> Task[OffsetDeletion]:
    """What follows from the request, the topics that are allowed, and the metadata alone."""
    deletion = OffsetDeletion(request)
    for topic in request.topics:
        yield None  # it may be named without partitions
        answers: list[OffsetDeleteResponsePartition] = []
        deletion.response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        is_allowed = topic.name in allowed
        existing = partitions_of(topic.name) if is_allowed else ()
        for partition in topic.partitions:
            yield None
            index = partition.partition_index
            answer = OffsetDeleteResponsePartition(partition_index=index)
            answers.append(answer)
            if index in existing:
                deletion.wanted.append((TopicPartition(topic.name, index), answer))
            else:
                answer.error_code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
    return deletion


def delete_offsets(coordinator: GroupCoordinator, deletion: OffsetDeletion, to: Any, now: Now) -> list[Effect]:
    """Delete offsets of topics that no member subscribes to.

    Anything in an empty group (KIP-496)."""
    request, response = deletion.request, deletion.response
    group, error = _existing(coordinator, request.group_id)
    if group is None or error:
        return [Reply(to, OffsetDeleteResponse(error_code=error, topics=[]))]
    subscribed = _protected_topics(group)
    if subscribed is None:
        return [Reply(to, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[]))]
    used = {topic.name for topic in request.topics if subscribed(topic.name)}
    accepted: list[OffsetDeleteResponsePartition] = []
    gone: list[TopicPartition] = []
    for key, answer in deletion.wanted:
        if key.topic in used:
            answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            gone.append(key)
            accepted.append(answer)

    def written(failure: ErrorCode) -> None:
        for answer in accepted:
            answer.error_code = failure
        coordinator.reply(to, response)

    return coordinator.delete_offsets(group, gone, written, now)


def _protected_topics(group: Group) -> Callable[[str], bool] | None:
    """A test for topics whose offsets members depend on.

    None when that cannot be known, and all are protected."""
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


class GroupDeletion:
    """Deletes groups without members, one at a time.

    Answered when all are named (`end`) and settled."""

    def __init__(self, coordinator: GroupCoordinator, to: Any) -> None:
        self._coordinator = coordinator
        self._to = to
        self._response = DeleteGroupsResponse(results=[])
        self._unsettled = 1  # until `end`

    def delete(self, group_id: str, now: Now) -> list[Effect]:
        """Delete a group, if it may be."""
        group, error = _existing(self._coordinator, group_id, may_be_empty=True)
        result = DeletableGroupResult(group_id=group_id, error_code=error)
        self._response.results.append(result)
        if group is None:
            return []
        if group.state is not GroupState.EMPTY:
            result.error_code = ErrorCode.NON_EMPTY_GROUP
            return []
        self._unsettled += 1
        return self._coordinator.delete_group(group, partial(self._settle, result), now)

    def refuse(self, group_id: str, error: ErrorCode) -> None:
        """Leave a group as it is, and answer so."""
        self._response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))

    def end(self) -> list[Effect]:
        """All groups are named."""
        self._unsettled -= 1
        return [] if self._unsettled else [Reply(self._to, self._response)]

    def _settle(self, result: DeletableGroupResult, error: ErrorCode) -> None:
        result.error_code = error
        self._unsettled -= 1
        if not self._unsettled:
            self._coordinator.reply(self._to, self._response)
