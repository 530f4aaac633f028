"""FindCoordinator (key 10), versions 0 to 6.

Which broker coordinates a group: the leader of the group's partition of ``__consumer_offsets``.
And which one coordinates a transactional id: the leader of its partition of
``__transaction_state``. The first request has the topic created, and gets an error upon which
clients retry.

- 1: transactional ids (KIP-98), and an error message.
- 4: several keys (KIP-699).
- 6: share groups (KIP-932), which have no coordinator here.

Rights: DESCRIBE on each group or transactional id; CLUSTER_ACTION for share groups.

Errors: GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
CLUSTER_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE; INVALID_REQUEST for a type of key that has
no coordinator.
"""

from collections.abc import Container, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import EVERY_NAME, AuthHelper
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.topics import Topics
from barnabas.broker.transactions.service import TransactionService
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_SEVERAL_SINCE_VERSION = 4
_SHARE_SINCE_VERSION = 6


class _KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_RESOURCE_TYPES = {_KeyType.GROUP: ResourceType.GROUP, _KeyType.TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_DENIED = {
    _KeyType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _KeyType.TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    _KeyType.SHARE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Parts(NamedTuple):
    """What the handler uses."""

    broker_id: int
    runner: Runner
    auth_helper: AuthHelper
    metadata: MetadataCache
    groups: GroupService
    topics: Topics
    transactions: TransactionService


def handle(parts: Parts, request: Request) -> None:
    """Answer from the metadata."""
    serve(parts.runner, request, _find_all(parts, request))


def _find_all(parts: Parts, request: Request) -> Task[None]:
    message = request.message
    found = []
    keys = message.coordinator_keys if request.version >= _SEVERAL_SINCE_VERSION else [message.key]
    allowed = yield from _allowed(parts.auth_helper, request, keys)
    for key in keys:
        yield None
        if key in allowed:
            found.append(_find(parts, request, key))
        else:
            error = _DENIED[message.key_type]
            found.append(_unknown(key, error, error.message))
    if request.version >= _SEVERAL_SINCE_VERSION:
        request.reply(FindCoordinatorResponse(coordinators=found))
    else:
        request.reply(_of_one(found[0]))


def _allowed(auth_helper: AuthHelper, request: Request, keys: Sequence[str]) -> Task[Container[str]]:
    """The keys whose coordinator the client may know."""
    key_type = request.message.key_type
    if key_type == _KeyType.SHARE and request.version >= _SHARE_SINCE_VERSION:
        action = AclOperation.CLUSTER_ACTION
        is_allowed = auth_helper.authorize(request, action, ResourceType.CLUSTER, CLUSTER_NAME)
        return EVERY_NAME if is_allowed else ()
    resource_type = _RESOURCE_TYPES.get(key_type)
    if resource_type is None:  # there is no coordinator
        return EVERY_NAME
    return (yield from auth_helper.filter_by_authorized(request, AclOperation.DESCRIBE, resource_type, keys))


def _find(parts: Parts, request: Request, key: str) -> Coordinator:
    match request.message.key_type:
        case _KeyType.GROUP:
            number = parts.groups.coordinator.partition_for(key)
            return _find_in(parts, request.client.listener, key, OFFSETS_TOPIC, number)
        case _KeyType.SHARE if request.version >= _SHARE_SINCE_VERSION:
            return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not supported")
        case _KeyType.TRANSACTION:
            number = parts.transactions.partition_for(key)
            return _find_in(parts, request.client.listener, key, TRANSACTIONS_TOPIC, number)
        case other:
            return _unknown(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {other}")


def _find_in(parts: Parts, listener: str, key: str, topic: str, number: int) -> Coordinator:
    """The leader of the partition of an internal topic that is responsible for a key."""
    if parts.metadata.alive_broker(parts.broker_id) is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is starting")
    if topic not in parts.metadata:
        parts.topics.auto_create([topic])
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {topic} is being created")
    return _leader(parts, listener, key, topic, number)


def _leader(parts: Parts, listener: str, key: str, topic: str, number: int) -> Coordinator:
    topic_partition = TopicPartition(topic, number)
    state = parts.metadata.partition(topic_partition)
    end = parts.metadata.leader_endpoint(topic_partition, listener)
    if state is None or end is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_partition} has no leader")
    return Coordinator(key=key, node_id=state.leader, host=end.host, port=end.port, error_message="")


def _unknown(key: str, code: ErrorCode, why: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why)


def _of_one(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",  # error 0's name, as Apache's brokers send it
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def fail(message: FindCoordinatorRequest, version: int, code: ErrorCode) -> FindCoordinatorResponse:
    """The response for a request that failed as a whole."""
    if version >= _SEVERAL_SINCE_VERSION:
        return FindCoordinatorResponse(
            coordinators=[_unknown(key, code, code.message) for key in message.coordinator_keys]
        )
    return _of_one(_unknown(message.key, code, code.message))


API = ApiHandler(
    ApiKey.FIND_COORDINATOR,
    0,
    6,
    handle,
    lambda services: Parts(
        services.broker_id,
        services.runner,
        services.auth_helper,
        services.metadata,
        services.groups,
        services.topics,
        services.transactions,
    ),
    fail,
)
