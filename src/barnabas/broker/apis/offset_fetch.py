"""OffsetFetch (key 9), versions 1 to 10.

A group's committed offsets.

- 2: null asks for all partitions; an error of the whole response.
- 5: the leader epoch of each offset (KIP-320).
- 7: whether offsets of open transactions are waited for (KIP-447).
- 8: several groups (KIP-709).
- 10: topic ids instead of names (KIP-848).

Rights: DESCRIBE on each group and each topic. Where all partitions are asked for, topics that the
client may not see are left out.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tasks import Runner, Task, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.coordinators.confirmation import LeadershipConfirmation
from barnabas.broker.groups.queries import fetch_offsets
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
)

_ERROR_FOR_ALL_SINCE_VERSION = 2
_SEVERAL_GROUPS_SINCE_VERSION = 8
_TOPIC_IDS_SINCE_VERSION = 10

Asked = list[tuple[str, Sequence[int]]] | None
"""Topics with their partitions; None for all that have an offset."""


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    later: LaterAnswers
    auth_helper: AuthHelper
    metadata: MetadataCache
    groups: GroupService
    leadership_confirmation: LeadershipConfirmation


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory, if that cannot be too old."""
    if parts.leadership_confirmation.is_needed:
        parts.later.answer(request, _fetch_when_confirmed(parts, request))
    else:
        serve(parts.runner, request, _fetch(parts, request))


def _fetch_when_confirmed(parts: Parts, request: Request) -> Steps[None]:
    message, coordinator = request.message, parts.groups.coordinator
    if request.version >= _SEVERAL_GROUPS_SINCE_VERSION:
        group_ids = [group.group_id for group in message.groups]
    else:
        group_ids = [message.group_id]
    numbers = set()
    for group_id in group_ids:
        yield None
        numbers.add(coordinator.partition_for(group_id))
    for number in sorted(numbers):
        yield from parts.leadership_confirmation.confirm(TopicPartition(OFFSETS_TOPIC, number))
    serve(parts.runner, request, _fetch(parts, request))


def _fetch(parts: Parts, request: Request) -> Task[None]:
    message: OffsetFetchRequest = request.message
    several = request.version >= _SEVERAL_GROUPS_SINCE_VERSION
    asked: list[OffsetFetchRequestGroup] | list[OffsetFetchRequest] = message.groups if several else [message]
    names = (each.group_id for each in asked)
    allowed = yield from parts.auth_helper.filter_by_authorized(
        request, AclOperation.DESCRIBE, ResourceType.GROUP, names
    )
    topics = yield from _visible(
        parts, request, (name for each in asked if each.group_id in allowed for name in _names(parts, request, each))
    )
    groups: list[OffsetFetchResponseGroup] = []
    for each in asked:
        if groups:
            yield None
        if each.group_id in allowed:
            groups.append((yield from _fetch_group(parts, request, each, topics)))
        else:
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            groups.append(OffsetFetchResponseGroup(group_id=each.group_id, topics=[], error_code=error))
    if several:
        request.reply(OffsetFetchResponse(groups=groups))
    else:
        request.reply((yield from _of_one_group(groups[0], _asked(message), request.version)))


def _asked(part: OffsetFetchRequest | OffsetFetchRequestGroup) -> Asked:
    return None if part.topics is None else [(topic.name, topic.partition_indexes) for topic in part.topics]


def _names(parts: Parts, request: Request, asked: OffsetFetchRequest | OffsetFetchRequestGroup) -> Iterator[str]:
    """The names of the topics of a group that exist, or have a name in the request."""
    by_id = request.version >= _TOPIC_IDS_SINCE_VERSION
    return (name for name, *_ in _wanted(parts, asked, by_id=by_id) if name or not by_id)


def _wanted(
    parts: Parts, asked: OffsetFetchRequest | OffsetFetchRequestGroup, *, by_id: bool
) -> Iterator[tuple[str, Uuid, Sequence[int]]]:
    """What is asked of a group: topics, their ids and partitions."""
    for topic in asked.topics or ():
        topic_id = topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO_UUID
        name = (parts.metadata.topic_name(topic_id) or "") if by_id else topic.name
        yield name, topic_id, topic.partition_indexes


def _fetch_group(
    parts: Parts, request: Request, asked: OffsetFetchRequest | OffsetFetchRequestGroup, allowed: Container[str]
) -> Task[OffsetFetchResponseGroup]:
    """A group's offsets in the topics that are allowed, or in all that the client may see."""
    require_stable = request.message.require_stable
    by_id = request.version >= _TOPIC_IDS_SINCE_VERSION
    if asked.topics is None:
        group = yield from fetch_offsets(parts.groups.coordinator, asked.group_id, None, require_stable=require_stable)
        yield from _leave_out(parts, request, group, by_id=by_id)
        return group
    wanted = yield from list_of(_wanted(parts, asked, by_id=by_id))
    group = yield from fetch_offsets(
        parts.groups.coordinator,
        asked.group_id,
        ((name, indexes if name in allowed else ()) for name, _, indexes in wanted),
        require_stable=require_stable,
    )
    # No topics beside an error.
    for answer, (name, topic_id, indexes) in zip(group.topics, wanted, strict=False):
        yield None
        answer.topic_id = topic_id
        if by_id and not name:
            answer.partitions = _refused(indexes, ErrorCode.UNKNOWN_TOPIC_ID)
        elif name not in allowed:
            answer.partitions = _refused(indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return group


def _leave_out(parts: Parts, request: Request, group: OffsetFetchResponseGroup, *, by_id: bool) -> Task[None]:
    """Leave out topics that the client may not see, and with ids those that have none any more."""
    allowed = yield from _visible(parts, request, (topic.name for topic in group.topics))
    topics = []
    for topic in group.topics:
        yield None
        if by_id:
            topic.topic_id = parts.metadata.topic_id(topic.name)
        if topic.name in allowed and not (by_id and topic.topic_id == ZERO_UUID):
            topics.append(topic)
    group.topics = topics


def _visible(parts: Parts, request: Request, topics: Iterable[str]) -> Task[Container[str]]:
    return parts.auth_helper.filter_by_authorized(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)


def _refused(indexes: Sequence[int], code: ErrorCode) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
        )
        for index in indexes
    ]


def _of_one_group(group: OffsetFetchResponseGroup, asked: Asked, version: int) -> Task[OffsetFetchResponse]:
    if group.error_code and version < _ERROR_FOR_ALL_SINCE_VERSION:
        return _of_old_version(asked, group.error_code)
    topics = []
    for topic in group.topics:
        partitions = []
        for partition in topic.partitions:
            partitions.append(_as_old(partition))
            yield None
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _of_old_version(asked: Asked, code: int) -> OffsetFetchResponse:
    """The first versions have no place for an error but each partition."""
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name=name, partitions=[_failed(index, code) for index in indexes])
            for name, indexes in asked or []
        ]
    )


def _failed(index: int, code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)


def _as_old(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def fail(message: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    """The response for a request that failed as a whole."""
    if version >= _SEVERAL_GROUPS_SINCE_VERSION:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in message.groups]
        )
    if version < _ERROR_FOR_ALL_SINCE_VERSION:
        return _of_old_version(_asked(message), code)
    return OffsetFetchResponse(topics=[], error_code=code)


API = ApiHandler(
    ApiKey.OFFSET_FETCH,
    1,
    10,
    handle,
    lambda services: Parts(
        services.runner,
        services.later,
        services.auth_helper,
        services.metadata,
        services.groups,
        services.leadership_confirmation,
    ),
    fail,
)
