"""Fetch (key 1), versions 4 to 17.

Records for consumers and followers. `delayed_fetch` decides what a reader may see, and when the
response leaves; with a fetch session only the partitions that may have changed are looked at.
Records leave as ranges of segment files.

- 4: record batches of format 2, and the isolation level (KIP-98).
- 5: the reader's log start offset (KIP-107).
- 7: fetch sessions (KIP-227).
- 9: leader epochs (KIP-320).
- 10: zstd (KIP-110).
- 11: consumers read from followers in their rack (KIP-392).
- 12: diverging epochs (KIP-595).
- 13: topic ids (KIP-516).
- 15: the follower's broker epoch (KIP-903).
- 16: the new leader in tagged fields (KIP-951).

Rights: READ on each topic; CLUSTER_ACTION for a follower. They are those of each request, whatever
session it continues.

Errors: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR of the
whole response; TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID,
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
OFFSET_OUT_OF_RANGE, UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR of a partition.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.apis.leader_hints import LeaderHints
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.delayed_fetch import CONSUMER, FetchHandler, FetchParams
from barnabas.broker.replication.fetch_sessions import FetchContext, FetchPartitionData, FetchSessions, PartitionFetch
from barnabas.broker.replication.reads import LOG_END, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.topic_rights import TopicRights
from barnabas.broker.requests.request import Request
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_LEADER_HINTS = 16
_REPLICA_STATE = 15
_TOPIC_IDS = 13
_RACKS = 11
_ZSTD = 10
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_PARTITIONS_A_STEP = 256
"""How many partitions of a topic are handled between two looks at the clock, which
costs as much as a partition."""
_NOT_READ = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Errors of partitions that are not looked at."""


class Parts(NamedTuple):
    """What the handler uses."""

    config: BrokerConfig
    runner: Runner
    auth_helper: AuthHelper
    metadata: MetadataCache
    replicas: ReplicaManager
    fetch_sessions: FetchSessions
    fetch_handler: FetchHandler


def handle(parts: Parts, request: Request) -> None:
    """Open the session's context and read."""
    serve(parts.runner, request, _fetch(parts, request))


def _fetch(parts: Parts, request: Request) -> Task[None]:
    message: FetchRequest = request.message
    asked: list[PartitionFetch] = []
    for number, topic in enumerate(message.topics):
        if number:
            yield None
        for first in range(0, len(topic.partitions), _PARTITIONS_A_STEP):
            if first:
                yield None
            some = topic.partitions[first : first + _PARTITIONS_A_STEP]
            asked += _partitions(parts, request.version, topic, some)
    if request.is_abandoned:
        return
    params = _params(message, request, parts.config["fetch.max.bytes"])
    may_fetch = True
    if parts.auth_helper.is_enabled:
        may_fetch = _ask_rights(parts.auth_helper, request, params)
    by_id = request.version >= _TOPIC_IDS
    forgotten: list[Any] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in message.forgotten_topics_data
        for index in topic.partitions
    ]
    context = parts.fetch_sessions.open(
        message.session_id,
        message.session_epoch,
        asked,
        forgotten,
        request.received_ms,
        privileged=params.is_from_follower and may_fetch,
        uses_topic_ids=by_id,
    )
    if not isinstance(context, FetchContext):
        request.fail(context)
        return
    respond = partial(_reply, parts, request, context.session_id)
    if may_fetch:
        request.wait_in((yield from parts.fetch_handler.fetch(params, context, respond)))
    else:
        yield from parts.fetch_handler.refuse(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, respond)


def _ask_rights(auth_helper: AuthHelper, request: Request, params: FetchParams) -> bool:
    """Whether a follower may fetch. What a consumer may read is asked topic by topic."""
    if params.is_from_follower:
        return auth_helper.authorize(request, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    params.rights = _read_rights(auth_helper, request)
    return True


def _read_rights(auth_helper: AuthHelper, request: Request) -> TopicRights:
    """What a consumer may read, each topic asked for once."""
    client = request.client
    valid_for = client.principal, client.host, auth_helper.rights_version
    return TopicRights(partial(auth_helper.authorize, request, AclOperation.READ), valid_for)


def _params(message: FetchRequest, request: Request, most_bytes: int) -> FetchParams:
    version = request.version
    state = message.replica_state
    replica_id, replica_epoch = message.replica_id, -1
    if state is not None:
        replica_epoch = state.replica_epoch
        if version >= _REPLICA_STATE:
            replica_id = state.replica_id
    isolation = LOG_END
    if replica_id == CONSUMER:
        isolation = READ_COMMITTED if message.isolation_level == READ_COMMITTED else READ_UNCOMMITTED
    may_read_elsewhere = replica_id == CONSUMER and version >= _RACKS
    max_bytes = min(message.max_bytes, most_bytes)
    return FetchParams(
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=min(message.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=isolation,
        only_leader=replica_id >= 0 or (replica_id == CONSUMER and not may_read_elsewhere),
        rack=message.rack_id if may_read_elsewhere else None,
        listener=request.client.listener,
        knows_zstd=version >= _ZSTD,
    )


def _partitions(
    parts: Parts, version: int, topic: FetchTopic, partitions: Sequence[FetchPartition]
) -> list[PartitionFetch]:
    """What the request asks of some partitions of a topic."""
    by_id = version >= _TOPIC_IDS
    name = parts.metadata.topic_name(topic.topic_id) if by_id else topic.topic
    topic_key = topic.topic_id if by_id else topic.topic
    topic_id = topic.topic_id if by_id else ZERO_UUID
    return [
        PartitionFetch(
            (topic_key, data.partition),
            topic_id,
            None if name is None else TopicPartition(name, data.partition),
            data.fetch_offset,
            data.partition_max_bytes,
            data.current_leader_epoch,
            data.last_fetched_epoch,
            data.log_start_offset,
        )
        for data in partitions
    ]


# The answer


def _reply(parts: Parts, request: Request, session_id: int, found: Sequence[FetchPartitionData]) -> None:
    serve(parts.runner, request, _respond(parts, request, session_id, found))


def _respond(parts: Parts, request: Request, session_id: int, found: Sequence[FetchPartitionData]) -> Task[None]:
    errors = [data.error_code for data in found if data.error_code is not ErrorCode.NONE]
    if errors:
        known = [data for data in found if data.error_code not in _NOT_READ]
        found = known + [data for data in found if data.error_code in _NOT_READ]
    topics: list[FetchableTopicResponse] = []
    last_key: object = None
    for number, data in enumerate(found, 1):
        wanted = data.wanted
        topic_key = wanted.key[0]
        if topic_key != last_key:
            last_key = topic_key
            name = "" if wanted.topic_partition is None else wanted.topic_partition.topic
            topics.append(FetchableTopicResponse(topic=name, topic_id=wanted.topic_id, partitions=[]))
        if data.error_code is not ErrorCode.NONE:
            partition = _refusal(wanted, data.error_code)
        else:
            partition = _answer(data)
        topics[-1].partitions.append(partition)
        if not number % _PARTITIONS_A_STEP:
            yield None
    response = FetchResponse(session_id=session_id, responses=topics)
    if request.version >= _LEADER_HINTS and any(code in _MOVED for code in errors):
        yield from _add_leader_hints(parts, request, found, response)
    request.reply(response)


def _answer(data: FetchPartitionData) -> PartitionData:
    read = data.read
    answer = PartitionData(
        partition_index=data.wanted.key[1],
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=data.preferred_read_replica,
        records=read.records,
    )
    if read.aborted_transactions is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in read.aborted_transactions
        ]
    if read.diverging_epoch is not None:
        answer.diverging_epoch = EpochEndOffset(epoch=read.diverging_epoch[0], end_offset=read.diverging_epoch[1])
    return answer


def _refusal(wanted: PartitionFetch, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.key[1],
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        # As Apache's brokers answer: what they refuse before or after the read has an empty list.
        aborted_transactions=[] if code in _NOT_READ or code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE else None,
        records=b"",
    )


def _add_leader_hints(
    parts: Parts, request: Request, found: Sequence[FetchPartitionData], response: FetchResponse
) -> Task[None]:
    """Add the current leaders of partitions that this broker does not lead (KIP-951)."""
    hints = LeaderHints(parts.replicas, parts.metadata, request.client.listener)
    answers = (partition for topic in response.responses for partition in topic.partitions)
    for number, (data, answer) in enumerate(zip(found, answers, strict=True), 1):
        if not number % _PARTITIONS_A_STEP:
            yield None
        topic_partition = data.wanted.topic_partition
        if answer.error_code in _MOVED and topic_partition is not None:
            leader = hints.leader(topic_partition)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in hints.endpoints()
    ]


API = ApiHandler(
    ApiKey.FETCH,
    4,
    17,
    handle,
    lambda services: Parts(
        services.config,
        services.runner,
        services.auth_helper,
        services.metadata,
        services.replicas,
        services.fetch_sessions,
        services.fetch_handler,
    ),
)
