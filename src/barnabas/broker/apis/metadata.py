"""Metadata (key 3), versions 0 to 13.

Brokers, controller, topics and their leaders, as the controller last reported them to this broker.
A request for a missing topic creates it where auto.create.topics.enable and the request allow that;
the client gets an error upon which it retries, and finds the topic then. A request that names
10,000 more than twice the topics that there are is refused: its connection is closed.

- 1: the controller, racks, and which topics are internal; null asks for all topics, as an
  empty list does in version 0.
- 2: the cluster id.
- 4: whether a missing topic may be created.
- 5: offline replicas.
- 6: LISTENER_NOT_FOUND instead of LEADER_NOT_AVAILABLE.
- 7: leader epochs (KIP-320).
- 8: authorized operations; those of the cluster up to 10 (KIP-430).
- 10: topic ids (KIP-516).
- 12: topics named by id.
- 13: an error of the whole response.

Rights: DESCRIBE on each topic. A topic without is answered with an error that does not say whether
it exists, or left out where all topics are asked for. CREATE on the cluster or the topic to create
a missing one. DESCRIBE on the cluster for its authorized operations, which are none without.

Errors: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND, INVALID_REQUEST.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID, Uuid
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import EVERY_NAME, AuthHelper
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import INTERNAL_TOPICS
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import validate_topic_name
from barnabas.broker.topics.topics import Topics
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.wire.kafka.primitives import read_uvarint

__all__ = ["API"]

_MOST_UNKNOWN = 10_000
"""A request may name twice as many topics as there are, and this many more: clients ask for topics
that they use, or for all."""

_COMPACT_FROM_VERSION = 9
_IDS_FROM_VERSION = 12
_LISTENER_ERROR_FROM_VERSION = 6
_CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
_UNKNOWN_OPERATIONS = -(1 << 31)


class Parts(NamedTuple):
    """What the handler uses."""

    config: BrokerConfig
    runner: Runner
    auth_helper: AuthHelper
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
        lambda: _is_known(parts.first_updates, request),
    )


def _is_of_all(request: Request) -> bool:
    """Whether all topics are asked for."""
    return request.message.topics is None or (not request.version and not request.message.topics)


def _is_known(first_updates: FirstUpdates, request: Request) -> bool:
    """Whether all that is asked for is known."""
    return (
        not _is_of_all(request)
        and first_updates.metadata.has_brokers
        and all(
            first_updates.is_topic_known(request, topic.name)
            if topic.name is not None
            else first_updates.is_topic_id_known(request, topic.topic_id)
            for topic in request.message.topics
        )
    )


def _answer(parts: Parts, request: Request) -> None:
    serve(parts.runner, request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Task[None]:
    message: MetadataRequest = request.message
    topics = yield from _topics(parts, request)
    if message.include_topic_authorized_operations:
        topics = yield from _with_operations(parts.auth_helper, request, topics)
    response = MetadataResponse(
        brokers=parts.metadata.describe_brokers(request.client.listener),
        cluster_id=parts.metadata.cluster_id,
        controller_id=parts.metadata.controller_id,
        topics=topics,
    )
    if message.include_cluster_authorized_operations and request.version in _CLUSTER_OPERATIONS_VERSIONS:
        response.cluster_authorized_operations = _cluster_operations(parts.auth_helper, request)
    request.reply(response)


def _cluster_operations(auth_helper: AuthHelper, request: Request) -> int:
    if not auth_helper.authorize(request, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return auth_helper.authorized_operations(request, ResourceType.CLUSTER, CLUSTER_NAME)


def _topics(parts: Parts, request: Request) -> Task[list[MetadataResponseTopic]]:
    knows_listener_not_found = request.version >= _LISTENER_ERROR_FROM_VERSION
    metadata = parts.metadata
    found: list[MetadataResponseTopic] = []
    missing: list[str] = []
    is_of_all = _is_of_all(request)
    names = dict.fromkeys(metadata.topics()) if is_of_all else (yield from _named(metadata, request, found))
    allowed = yield from parts.auth_helper.filter_by_authorized(
        request, AclOperation.DESCRIBE, ResourceType.TOPIC, names, log_if_denied=not is_of_all
    )
    for name, topic_id in names.items():
        yield None
        if name not in allowed:
            if not is_of_all:
                found.append(_denied(name, topic_id))
            continue
        described = yield from metadata.describe_topic(
            name, request.client.listener, knows_listener_not_found=knows_listener_not_found
        )
        if described is not None:
            found.append(described)
        elif not is_of_all:  # else it was deleted meanwhile
            missing.append(name)
    if missing:
        found += yield from _missing(parts, request, missing)
    return found


def _named(
    metadata: MetadataCache, request: Request, found: list[MetadataResponseTopic]
) -> Task[dict[str, Uuid | None]]:
    """The topics that a request names, with their ids if it names them so.

    The answers for ids that are not known go to ``found``. Raises `KafkaError` INVALID_REQUEST.
    """
    wanted: dict[str, Uuid | None] = {}
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.message.topics)
    for topic in request.message.topics:
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
                error = ErrorCode.UNKNOWN_TOPIC_ID
                found.append(MetadataResponseTopic(error_code=error, name=None, topic_id=topic.topic_id))
            else:
                wanted[name] = topic.topic_id
    return wanted


def _denied(name: str, topic_id: Uuid | None) -> MetadataResponseTopic:
    """The answer for a topic that the client may not see: no more than the request says."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic_id is None:
        return MetadataResponseTopic(error_code=error, name=name)
    return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id)


def _missing(parts: Parts, request: Request, names: Sequence[str]) -> Task[list[MetadataResponseTopic]]:
    may_create = request.message.allow_auto_topic_creation and parts.config["auto.create.topics.enable"]
    creatable = (yield from _creatable(parts.auth_helper, request, names)) if may_create else EVERY_NAME
    answers = []
    to_create = []
    for name in names:
        yield None
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if name not in creatable:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
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


def _creatable(auth_helper: AuthHelper, request: Request, names: Sequence[str]) -> Task[Container[str]]:
    """Those of some missing topics that the client may create."""
    create = AclOperation.CREATE
    if auth_helper.authorize(request, create, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
        return EVERY_NAME
    return (yield from auth_helper.filter_by_authorized(request, create, ResourceType.TOPIC, names))


def _with_operations(
    auth_helper: AuthHelper, request: Request, topics: Sequence[MetadataResponseTopic]
) -> Task[list[MetadataResponseTopic]]:
    """Topics with what the client may do with them."""
    answers = []
    for topic in topics:
        yield None
        operations = _UNKNOWN_OPERATIONS
        if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED and topic.name is not None:
            operations = auth_helper.authorized_operations(request, ResourceType.TOPIC, topic.name)
        answers.append(
            # The topic is shared with other responses: a copy carries what this client asked for.
            MetadataResponseTopic(
                error_code=topic.error_code,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=topic.partitions,
                topic_authorized_operations=operations,
            )
        )
    return answers


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
        services.config,
        services.runner,
        services.auth_helper,
        services.first_updates,
        services.metadata,
        services.topics,
    ),
    _fail,
    refusal=_refusal,
)
