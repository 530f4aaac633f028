"""TxnOffsetCommit (key 28), versions 0 to 5.

Stores a group's offsets as a part of a transaction (KIP-98): they become the group's when the
transaction is committed. Answered when they are replicated. Before a transaction's first
offsets in the partition of the group are stored, its coordinator must confirm that the
partition is part of it (KIP-890).

- 2: the leader epoch of each offset (KIP-320).
- 3: the member, its generation and its instance id, which fence members that the
  group has lost (KIP-447).
- 4: TRANSACTION_ABORTABLE (KIP-1050).
- 5: clients leave it to the broker to add the partition of the group to the transaction, where
  transaction.version is 2 (KIP-890).

Rights: WRITE on the transactional id, READ on the group, and READ on each topic.

Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS
(COORDINATOR_NOT_AVAILABLE before version 2, whose clients stop at it), NOT_COORDINATOR,
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, OFFSET_METADATA_TOO_LARGE,
UNKNOWN_TOPIC_OR_PARTITION, INVALID_GROUP_ID, INVALID_TXN_STATE, TRANSACTION_ABORTABLE,
INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID
from barnabas.base.tasks import Runner, Task, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.apis.offset_commit import topic_offsets
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.commits import CommitSender, OffsetCommit
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.produce_append import AppendTask, perform_wait
from barnabas.broker.replication.transaction_verification import TransactionalProducer
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_LOADING_SINCE_VERSION = 2
_ABORTABLE_SINCE_VERSION = 4
_LEAVES_ADDING_SINCE_VERSION = 5


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    first_updates: FirstUpdates
    metadata: MetadataCache
    groups: GroupService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Answer when the offsets are stored. As for OffsetCommit, a broker that has just started waits
    until the controller has named their topics.
    """
    message, auth_helper = request.message, parts.auth_helper
    if not auth_helper.authorize(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
        request.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if not auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    names = [topic.name for topic in message.topics] if parts.metadata.is_loading else []
    parts.first_updates.when_topics_known(
        request, names, lambda: serve(parts.runner, request, _commit(parts, request), perform_wait)
    )


def _commit(parts: Parts, request: Request) -> AppendTask[None]:
    message: TxnOffsetCommitRequest = request.message
    named = yield from list_of(topic.name for topic in message.topics)
    authorized = yield from parts.auth_helper.filter_by_authorized(
        request, AclOperation.READ, ResourceType.TOPIC, named
    )
    commit = yield from _read(message, authorized)
    response, committed = yield from _response_to(message, authorized)

    def reply(commit: OffsetCommit) -> None:
        codes: Iterable[ErrorCode] = commit.codes
        if request.version < _LOADING_SINCE_VERSION:
            codes = map(_before_loading, codes)
        for answer, code in zip(committed, codes, strict=True):
            answer.error_code = code
        request.reply(response)

    producer = TransactionalProducer(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        request.version >= _ABORTABLE_SINCE_VERSION,
        request.version >= _LEAVES_ADDING_SINCE_VERSION,
    )
    yield from parts.groups.commit_in_transaction(commit, producer, reply)


def _before_loading(code: ErrorCode) -> ErrorCode:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code


def _read(message: TxnOffsetCommitRequest, authorized: Container[str]) -> Task[OffsetCommit]:
    """What is committed: the offsets in topics that the client may read."""
    topics = []
    for topic in message.topics:
        yield None  # it may be named without partitions
        if topic.name in authorized:
            topics.append((yield from topic_offsets(topic.name, ZERO_UUID, topic.partitions)))
    sender = CommitSender(message.group_id, message.generation_id, message.member_id, message.group_instance_id)
    return OffsetCommit(sender, topics)


def _response_to(
    message: TxnOffsetCommitRequest, authorized: Container[str]
) -> Task[tuple[TxnOffsetCommitResponse, list[TxnOffsetCommitResponsePartition]]]:
    """The response, and its answers for what is committed, which have no error yet."""
    response = TxnOffsetCommitResponse(topics=[])
    committed: list[TxnOffsetCommitResponsePartition] = []
    for topic in message.topics:
        yield None
        answers = []
        error = ErrorCode.NONE if topic.name in authorized else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for partition in topic.partitions:
            yield None
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
        if error is ErrorCode.NONE:
            committed += answers
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return response, committed


def fail(message: TxnOffsetCommitRequest, version: int, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The response for a request that failed as a whole."""
    if version < _LOADING_SINCE_VERSION:
        code = _before_loading(code)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.TXN_OFFSET_COMMIT,
    0,
    5,
    handle,
    lambda services: Parts(
        services.runner, services.first_updates, services.metadata, services.groups, services.auth_helper
    ),
    fail,
)
