"""FindCoordinator (key 10), versions 0 to 6.

Which broker coordinates a group: the leader of the group's partition of ``__consumer_offsets``.
The first request has that topic created, and gets an error upon which clients retry. Only
Apache's brokers coordinate transactions, so a transactional id has a coordinator where the
cluster has ``__transaction_state``: an Apache broker created that topic, and leads its
partitions unless they were moved.

- 1: transactional ids (KIP-98), and an error message.
- 4: several keys (KIP-699).
- 6: share groups (KIP-932), which have no coordinator here.

Errors: COORDINATOR_NOT_AVAILABLE; INVALID_REQUEST for a type of key that has no coordinator;
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional ids of a cluster without
``__transaction_state``. It is the only error code after which every client stops at once: after
most others librdkafka tries again until its timeout.
"""

from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.topics import Topics
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_SEVERAL_SINCE_VERSION = 4
_SHARE_SINCE_VERSION = 6
_TRANSACTIONAL_ID = 1


class Parts(NamedTuple):
    """What the handler uses."""

    broker_id: int
    runner: Runner
    first_updates: FirstUpdates
    metadata: MetadataCache
    groups: GroupService
    topics: Topics


def handle(parts: Parts, request: Request) -> None:
    """Answer from the metadata. "No transactions here" ends a client, so that must come from
    metadata that is loaded."""
    if request.message.key_type == _TRANSACTIONAL_ID:
        parts.first_updates.when_topics_known(request, [TRANSACTIONS_TOPIC], lambda: _answer(parts, request))
    else:
        _answer(parts, request)


def _answer(parts: Parts, request: Request) -> None:
    serve(parts.runner, request, _find_all(parts, request))


def _find_all(parts: Parts, request: Request) -> Task[None]:
    message = request.message
    found = []
    for key in message.coordinator_keys if request.version >= _SEVERAL_SINCE_VERSION else [message.key]:
        yield None
        found.append(_find(parts, request, key))
    if request.version >= _SEVERAL_SINCE_VERSION:
        request.reply(FindCoordinatorResponse(coordinators=found))
    else:
        request.reply(_of_one(found[0]))


def _find(parts: Parts, request: Request, key: str) -> Coordinator:
    match request.message.key_type:
        case 0:
            return _find_group(parts, request.client.listener, key)
        case 2 if request.version >= _SHARE_SINCE_VERSION:
            return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not supported")
        case 1:
            return _find_transaction(parts, request.client.listener, key)
        case other:
            return _unknown(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {other}")


def _find_group(parts: Parts, listener: str, group_id: str) -> Coordinator:
    if parts.metadata.alive_broker(parts.broker_id) is None:
        return _unknown(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is starting")
    if OFFSETS_TOPIC not in parts.metadata:
        parts.topics.auto_create([OFFSETS_TOPIC])
        return _unknown(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the offsets topic is being created")
    return _leader(parts, listener, group_id, OFFSETS_TOPIC, parts.groups.coordinator.partition_for(group_id))


def _find_transaction(parts: Parts, listener: str, transactional_id: str) -> Coordinator:
    count = parts.metadata.partition_count(TRANSACTIONS_TOPIC) if TRANSACTIONS_TOPIC in parts.metadata else 0
    if not count:
        return _unknown(
            transactional_id,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Transactions are not supported by this version of the broker.",
        )
    return _leader(parts, listener, transactional_id, TRANSACTIONS_TOPIC, partition_of(transactional_id, count))


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
        services.broker_id, services.runner, services.first_updates, services.metadata, services.groups, services.topics
    ),
    fail,
)
