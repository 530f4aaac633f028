"""StopReplica (key 5), versions 1 to 4.

The controller takes replicas away from this broker, with their data or without.

- 1: the broker epoch (KIP-380); one choice whether to delete for the whole request.
- 3: leader epochs, and a choice for each partition (KIP-570).
- 4: whether the controller is a KRaft controller.

Rights: CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH of the whole
request; FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR of a partition.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.base.ids import NO_LEADER_EPOCH, TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.control_requests import ControlRequests, error_response
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse

_STOPS_A_STEP = 16
"""By their number and not by time: one call stops them, and announces all of them together."""


class Parts(NamedTuple):
    """What the handler uses."""

    wall_ms: Callable[[], int]
    control_requests: ControlRequests
    replicas: ReplicaManager
    log_dirs: LogDirs


def handle(parts: Parts, request: Request) -> None:
    """Stop or delete partitions in the order of the controller's requests."""
    parts.control_requests.serve(request, _stop(parts, request))


def _stop(parts: Parts, request: Request) -> Task[None]:
    message: StopReplicaRequest = request.message
    parts.control_requests.check_epochs(message.broker_epoch, message.controller_epoch)
    now_ms = parts.wall_ms()
    stops = list(_partitions(message))
    errors: list[StopReplicaPartitionError] = []
    yield None
    for first in range(0, len(stops), _STOPS_A_STEP):
        some = stops[first : first + _STOPS_A_STEP]
        outcome = parts.replicas.stop_replicas(some, now_ms)
        errors += [
            StopReplicaPartitionError(
                topic_name=topic_partition.topic, partition_index=topic_partition.partition, error_code=code
            )
            for (topic_partition, _, _), code in zip(some, outcome.codes, strict=True)
        ]
        yield None
    parts.log_dirs.checkpoint_deletions()
    request.reply(StopReplicaResponse(partition_errors=errors))


def _partitions(message: StopReplicaRequest) -> Iterator[tuple[TopicPartition, int, bool]]:
    for ungrouped in message.ungrouped_partitions:
        yield (
            TopicPartition(ungrouped.topic_name, ungrouped.partition_index),
            NO_LEADER_EPOCH,
            message.delete_partitions,
        )
    for topic in message.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), NO_LEADER_EPOCH, message.delete_partitions
    for states in message.topic_states:
        for state in states.partition_states:
            topic_partition = TopicPartition(states.topic_name, state.partition_index)
            yield topic_partition, state.leader_epoch, state.delete_partition


def fail(message: StopReplicaRequest, version: int, code: ErrorCode) -> StopReplicaResponse | None:
    """As of all requests of controllers; a refusal for want of a right is for each partition, too:
    Apache's controllers see by it which replicas are not deleted."""
    refused: StopReplicaResponse | None = error_response(message, version, code)
    if refused is not None and code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        refused.partition_errors = [
            StopReplicaPartitionError(topic_name=name, partition_index=index, error_code=code)
            for (name, index), _, _ in _partitions(message)
        ]
    return refused


API = ApiHandler(
    ApiKey.STOP_REPLICA,
    1,
    4,
    handle,
    lambda services: Parts(services.clock.wall_ms, services.control_requests, services.replicas, services.log_dirs),
    fail,
    inter_broker=True,
)
