"""Metadata (key 3), versions 0 to 13.

Brokers, controller, topics and their leaders, as the controller last reported them to this broker.
A request for a missing topic creates it where auto.create.topics.enable and the request allow that;
the client gets an error upon which it retries, and finds the topic then. A request that names
10,000 more than twice the topics that there are is refused: its connection is closed. Every client
may do everything here: authorized operations, where requested, are all of them.

- 1: the controller, racks, and which topics are internal; null asks for all topics.
- 2: the cluster id.
- 4: whether a missing topic may be created.
- 5: offline replicas.
- 6: LISTENER_NOT_FOUND instead of LEADER_NOT_AVAILABLE.
- 7: leader epochs (KIP-320).
- 8: authorized operations; those of the cluster up to 10 (KIP-430).
- 10: topic ids (KIP-516).
- 12: topics named by id.
- 13: an error of the whole response.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE,
LISTENER_NOT_FOUND, INVALID_REQUEST.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import INTERNAL_TOPICS
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import validate_topic_name
from barnabas.broker.topics.topics import Topics
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.wire.kafka.primitives import read_uvarint

__all__ = ["API", "CLUSTER_OPERATIONS", "TOPIC_OPERATIONS"]

# Bits are numbers of AclOperation: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
# CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12, CREATE_TOKENS
# 13, DESCRIBE_TOKENS 14.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_MOST_UNKNOWN = 10_000
"""A request may name twice as many topics as there are, and this many more: clients ask for topics
that they use, or for all."""

_COMPACT_FROM_VERSION = 9
_IDS_FROM_VERSION = 12
_LISTENER_ERROR_FROM_VERSION = 6
_CLUSTER_OPERATIONS_VERSIONS = range(8, 11)


class Parts(NamedTuple):
    """What the handler uses."""

    config: BrokerConfig
    runner: Runner
    first_updates: FirstUpdates
    metadata: MetadataCache
    topics: Topics


def _handle(parts: Parts, request: Request) -> None:
    """Answer once the controller's first updates have arrived.

    Some clients wait for minutes after a list without brokers, and many take a topic that is
    missing for a deleted one.
    """
    parts.first_updates.when_loaded(
        request,
        lambda: _answer(parts, request),
        lambda: _is_known(parts.metadata, request.message),
    )


def _is_known(metadata: MetadataCache, message: MetadataRequest) -> bool:
    """Whether all that is asked for is known."""
    return (
        message.topics is not None
        and metadata.has_brokers
        and all(
            topic.name in metadata if topic.name is not None else metadata.topic_name(topic.topic_id) is not None
            for topic in message.topics
        )
    )


def _answer(parts: Parts, request: Request) -> None:
    serve(parts.runner, request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Task[None]:
    message: MetadataRequest = request.message
    topics = yield from _topics(parts, request, message)
    if message.include_topic_authorized_operations:
        topics = [_with_operations(topic) for topic in topics]
    response = MetadataResponse(
        brokers=parts.metadata.describe_brokers(request.client.listener),
        cluster_id=parts.metadata.cluster_id,
        controller_id=parts.metadata.controller_id,
        topics=topics,
    )
    if message.include_cluster_authorized_operations and request.version in _CLUSTER_OPERATIONS_VERSIONS:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    request.reply(response)


def _topics(parts: Parts, request: Request, message: MetadataRequest) -> Task[list[MetadataResponseTopic]]:
    knows_listener_not_found = request.version >= _LISTENER_ERROR_FROM_VERSION
    metadata = parts.metadata
    found: list[MetadataResponseTopic] = []
    missing: dict[str, None] = {}
    if message.topics is None:
        names: Iterable[str] = metadata.topics()
    else:
        wanted: dict[str, None] = {}
        by_id = any(topic.topic_id != ZERO_UUID for topic in message.topics)
        for topic in message.topics:
            yield None
            if request.version < _IDS_FROM_VERSION and (topic.name is None or topic.topic_id != ZERO_UUID):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if not by_id:
                if topic.name is None:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                wanted[topic.name] = None
            elif topic.topic_id != ZERO_UUID:
                name = metadata.topic_name(topic.topic_id)
                if name is None:
                    found.append(
                        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id)
                    )
                else:
                    wanted[name] = None
        names = wanted
    for name in names:
        yield None
        described = yield from metadata.describe_topic(
            name, request.client.listener, knows_listener_not_found=knows_listener_not_found
        )
        if described is None:
            missing[name] = None
        else:
            found.append(described)
    if missing:
        found += yield from _missing(parts, missing, may_create=message.allow_auto_topic_creation)
    return found


def _missing(parts: Parts, names: Iterable[str], *, may_create: bool) -> Task[list[MetadataResponseTopic]]:
    may_create = may_create and parts.config["auto.create.topics.enable"]
    answers = []
    to_create = []
    for name in names:
        yield None
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            validate_topic_name(name)
        except KafkaError as wrong:
            error = wrong.code
        else:
            if may_create:
                to_create.append(name)
                error = ErrorCode.LEADER_NOT_AVAILABLE
        answers.append(MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS))
    if to_create:
        parts.topics.auto_create(to_create)
    return answers


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    # The topic is shared with other responses, so a copy carries what this client asked for.
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=TOPIC_OPERATIONS if topic.error_code == ErrorCode.NONE else -(1 << 31),
    )


def _fail(message: MetadataRequest, _version: int, code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in message.topics or ()
        ],
    )


def _refusal(parts: Parts, data: memoryview, offset: int, version: int) -> str | None:
    """A request that names far more topics than there are comes from no client of Kafka's, and
    would cost half a second."""
    if version >= _COMPACT_FROM_VERSION:
        count = read_uvarint(data, offset)[0] - 1
    else:
        count = int.from_bytes(data[offset : offset + 4], "big", signed=True)
    known = parts.metadata.count_topics()
    if count <= _MOST_UNKNOWN + 2 * known:
        return None
    return f"its Metadata request names {count} topics, and there are {known}"


API = ApiHandler(
    ApiKey.METADATA,
    0,
    13,
    _handle,
    lambda services: Parts(
        services.config, services.runner, services.first_updates, services.metadata, services.topics
    ),
    _fail,
    refusal=_refusal,
)
