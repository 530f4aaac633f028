"""OffsetFetch (key 9), versions 1 to 10.

A group's committed offsets.

- 2: null asks for all partitions; an error of the whole response.
- 5: the leader epoch of each offset (KIP-320).
- 7: whether offsets of open transactions are waited for (KIP-447).
- 8: several groups (KIP-709).
- 10: topic ids instead of names (KIP-848).

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR,
INVALID_GROUP_ID, UNKNOWN_TOPIC_ID.
"""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.groups.queries import fetch_offsets
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
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
    metadata: MetadataCache
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory."""
    serve(parts.runner, request, _fetch(parts, request))


def _fetch(parts: Parts, request: Request) -> Task[None]:
    message = request.message
    require_stable = message.require_stable
    coordinator = parts.groups.coordinator
    if request.version >= _SEVERAL_GROUPS_SINCE_VERSION:
        by_id = request.version >= _TOPIC_IDS_SINCE_VERSION
        groups = []
        for asked in message.groups:
            yield None
            if by_id:
                found = yield from _fetch_by_id(parts, asked, require_stable)
            else:
                found = yield from fetch_offsets(
                    coordinator, asked.group_id, _asked(asked), require_stable=require_stable
                )
            groups.append(found)
        request.reply(OffsetFetchResponse(groups=groups))
        return
    topics = _asked(message)
    group = yield from fetch_offsets(coordinator, message.group_id, topics, require_stable=require_stable)
    request.reply((yield from _of_one_group(group, topics, request.version)))


def _asked(part: OffsetFetchRequest | OffsetFetchRequestGroup) -> Asked:
    return None if part.topics is None else [(topic.name, topic.partition_indexes) for topic in part.topics]


def _fetch_by_id(parts: Parts, asked: OffsetFetchRequestGroup, require_stable: bool) -> Task[OffsetFetchResponseGroup]:
    """Offsets by topic id; offsets of topics that no longer have an id are omitted."""
    coordinator = parts.groups.coordinator
    if asked.topics is None:
        group = yield from fetch_offsets(coordinator, asked.group_id, None, require_stable=require_stable)
        for topic in group.topics:
            topic.topic_id = parts.metadata.topic_id(topic.name)
        group.topics = [topic for topic in group.topics if topic.topic_id != ZERO_UUID]
        return group
    names = [(parts.metadata.topic_name(topic.topic_id) or "", topic.partition_indexes) for topic in asked.topics]
    group = yield from fetch_offsets(coordinator, asked.group_id, names, require_stable=require_stable)
    # No topics beside an error.
    for topic, topic_asked in zip(group.topics, asked.topics, strict=False):
        topic.topic_id = topic_asked.topic_id
        if not topic.name:
            for partition in topic.partitions:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    return group


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
    lambda services: Parts(services.runner, services.metadata, services.groups),
    fail,
)
