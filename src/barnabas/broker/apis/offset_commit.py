"""OffsetCommit (key 8), versions 2 to 10.

Stores a group's offsets; answered when they are committed.

- 2: the retention time of the offsets, which only this version to 4 have.
- 6: the leader epoch of each offset (KIP-320).
- 7: static members (KIP-345).
- 10: topic ids instead of names (KIP-848).

Rights: READ on the group and on each topic.

Errors: GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
REBALANCE_IN_PROGRESS, OFFSET_METADATA_TOO_LARGE, TOPIC_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID, Uuid
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.commits import CommitSender, OffsetCommit, TopicOffsets
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
)

COMMIT_TOPIC_IDS = 10
"""The first version that names topics by their ids."""


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    first_updates: FirstUpdates
    metadata: MetadataCache
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer when the offsets are committed.

    librdkafka gives up a commit that was refused because of its topic, so that waits until the
    controller has named it.
    """
    metadata = parts.metadata
    if metadata.is_loading:
        names = [metadata.topic_name(topic.topic_id) or topic.name for topic in request.message.topics]
        parts.first_updates.when_topics_known(request, names, lambda: _commit(parts, request))
    else:
        _commit(parts, request)


def _commit(parts: Parts, request: Request) -> None:
    def commit() -> Task[None]:
        message, topic_name = request.message, parts.metadata.topic_name
        wanted = yield from read_message(message, request.version, topic_name)
        response = yield from response_to(wanted.topics)

        def reply(commit: OffsetCommit) -> None:
            set_codes(response, commit.codes)
            request.reply(response)

        yield from commit_allowed(parts.auth_helper, parts.groups, request.client, wanted, reply)

    serve(parts.runner, request, commit())


def commit_allowed(
    auth_helper: AuthHelper,
    groups: GroupService,
    client: ClientFacts,
    commit: OffsetCommit,
    to: Callable[[OffsetCommit], None],
) -> Task[None]:
    """Write what a client may commit of what it asks for, whichever reader read that.

    ``to`` gets the commit with its outcome."""
    if not auth_helper.is_enabled:
        return groups.commit_offsets(commit, to)
    return _commit_allowed(auth_helper, groups, client, commit, to)


def _commit_allowed(
    auth_helper: AuthHelper,
    groups: GroupService,
    client: ClientFacts,
    commit: OffsetCommit,
    to: Callable[[OffsetCommit], None],
) -> Task[None]:
    def may_read(resource_type: ResourceType, name: str) -> bool:
        return auth_helper.authorize_client(client, ApiKey.OFFSET_COMMIT, AclOperation.READ, resource_type, name)

    if not may_read(ResourceType.GROUP, commit.sender.group_id):
        commit.deny()
        to(commit)
        return
    decided: dict[str, bool] = {}
    for name, topic_id, *_ in commit.topics:
        yield None
        is_known = bool(name) or topic_id == ZERO_UUID
        if is_known and name not in decided:
            decided[name] = may_read(ResourceType.TOPIC, name)
    commit.denied = {name for name, is_allowed in decided.items() if not is_allowed}
    yield from groups.commit_offsets(commit, to)


def read_message(
    message: OffsetCommitRequest, version: int, topic_name: Callable[[Uuid], str | None]
) -> Task[OffsetCommit]:
    """The second reader: what a decoded request commits."""
    topics = []
    for topic in message.topics:
        yield None  # it may be named without partitions
        name = (topic_name(topic.topic_id) or "") if version >= COMMIT_TOPIC_IDS else topic.name
        topics.append((yield from topic_offsets(name, topic.topic_id, topic.partitions)))
    sender = CommitSender(
        message.group_id, message.generation_id_or_member_epoch, message.member_id, message.group_instance_id
    )
    return OffsetCommit(sender, topics, message.retention_time_ms)


def topic_offsets(
    name: str, topic_id: Uuid, asked: Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition]
) -> Task[TopicOffsets]:
    """What a decoded request commits of one topic."""
    columns: tuple[list[int], list[int], list[int], list[str]] = ([], [], [], [])
    partitions, offsets, leader_epochs, metadata = columns
    for partition in asked:
        yield None
        partitions.append(partition.partition_index)
        offsets.append(partition.committed_offset)
        leader_epochs.append(partition.committed_leader_epoch)
        metadata.append(partition.committed_metadata or "")
    return TopicOffsets(name, topic_id, partitions, offsets, leader_epochs, metadata if any(metadata) else None)


def response_to(topics: Sequence[TopicOffsets]) -> Task[OffsetCommitResponse]:
    """A response without errors; see `set_codes`."""
    response = OffsetCommitResponse(topics=[])
    for topic in topics:
        yield None
        answers = []
        for index in topic.partitions:
            yield None
            answers.append(OffsetCommitResponsePartition(partition_index=index))
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return response


def set_codes(response: OffsetCommitResponse | TxnOffsetCommitResponse, codes: Iterable[ErrorCode]) -> None:
    """Let a response say what became of each partition."""
    answers = (answer for topic in response.topics for answer in topic.partitions)
    for answer, code in zip(answers, codes, strict=True):
        answer.error_code = code


def fail(message: OffsetCommitRequest, _version: int, code: ErrorCode) -> OffsetCommitResponse:
    """The response for a request that failed as a whole."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.OFFSET_COMMIT,
    2,
    10,
    handle,
    lambda services: Parts(
        services.runner, services.auth_helper, services.first_updates, services.metadata, services.groups
    ),
    fail,
)
