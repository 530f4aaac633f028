"""LeaderAndIsr (key 4), versions 2 to 7.

The controller makes this broker leader or follower of partitions. Each partition is checked against
the leader epoch and the topic id that this broker knows.

- 2: the broker epoch (KIP-380), and states grouped by topic.
- 3: replicas that are added and removed (KIP-455).
- 5: topic ids, and a response by topic id (KIP-516).
- 6: the leader recovery state (KIP-704).
- 7: whether the controller is a KRaft controller.

Rights: CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH of the whole
request; INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH (an older leader epoch), KAFKA_STORAGE_ERROR
of a partition.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tasks import Beside, Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.control_requests import ControlRequests, error_response
from barnabas.broker.replication.partition import StateChange
from barnabas.broker.replication.replica_manager import ReplicaManager, new_folders, write_leader_epochs
from barnabas.broker.requests.request import Request
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

_BY_TOPIC_ID = 5

_CHANGES_A_STEP = 16
"""By their number and not by time: one call changes them, and announces all of them together."""


class Parts(NamedTuple):
    """What the handler uses."""

    broker_id: int
    wall_ms: Callable[[], int]
    runner: Runner
    control_requests: ControlRequests
    replicas: ReplicaManager
    log_dirs: LogDirs


def handle(parts: Parts, request: Request) -> None:
    """Change the roles in the order of the controller's requests."""
    parts.control_requests.serve(request, _change_roles(parts, request))


def _change_roles(parts: Parts, request: Request) -> Task[None]:
    """Make the folders of new partitions beside the event loop, then change roles and inform the
    subscribers.

    A role is changed and announced in one step: a fetcher, for instance, never meets a leader.
    """
    message: LeaderAndIsrRequest = request.message
    parts.control_requests.check_epochs(message.broker_epoch, message.controller_epoch)
    changes = [
        (TopicPartition(state.topic_name, state.partition_index), ZERO_UUID, _change(state))
        for state in message.ungrouped_partition_states
    ]
    for topic in message.topic_states:  # a topic of thousands of partitions comes whole
        for state in topic.partition_states:
            changes.append((TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, _change(state)))
            yield None
    yield None
    for folders in new_folders(parts.log_dirs, parts.broker_id, changes):
        yield Beside(folders.run)
        parts.log_dirs.new_folders.take(folders)
    now_ms = parts.wall_ms()
    results: list[tuple[str, Uuid, int, ErrorCode]] = []
    unwritten: list[PartitionLog] = []
    for first in range(0, len(changes), _CHANGES_A_STEP):
        some = changes[first : first + _CHANGES_A_STEP]
        outcome = parts.replicas.become_leader_or_follower(some, now_ms)
        results += [
            (topic_partition.topic, topic_id, topic_partition.partition, code)
            for (topic_partition, topic_id, _), code in zip(some, outcome.codes, strict=True)
        ]
        unwritten += outcome.unwritten
        yield None
    request.reply(_response(request.version, results))
    if unwritten:
        parts.runner.start(write_leader_epochs(unwritten))


def _change(state: LeaderAndIsrPartitionState) -> StateChange:
    return StateChange(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        controller_epoch=state.controller_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        is_new=state.is_new,
    )


def _response(version: int, results: list[tuple[str, Uuid, int, ErrorCode]]) -> LeaderAndIsrResponse:
    if version < _BY_TOPIC_ID:
        return LeaderAndIsrResponse(
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name=name, partition_index=index, error_code=code)
                for name, _, index, code in results
            ]
        )
    topics: dict[Uuid, LeaderAndIsrTopicError] = {}
    for _, topic_id, index, code in results:
        topic = topics.setdefault(topic_id, LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[]))
        topic.partition_errors.append(LeaderAndIsrPartitionError(partition_index=index, error_code=code))
    return LeaderAndIsrResponse(topics=list(topics.values()))


def fail(message: LeaderAndIsrRequest, version: int, code: ErrorCode) -> LeaderAndIsrResponse | None:
    """As of all requests of controllers; a refusal for want of a right is for each partition,
    too."""
    refused: LeaderAndIsrResponse | None = error_response(message, version, code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        results: list[tuple[str, Uuid, int, ErrorCode]] = [
            (topic.topic_name, topic.topic_id, state.partition_index, code)
            for topic in message.topic_states
            for state in topic.partition_states
        ]
        refused = _response(version, results)
        refused.error_code = code
    return refused


API = ApiHandler(
    ApiKey.LEADER_AND_ISR,
    2,
    7,
    handle,
    lambda services: Parts(
        services.broker_id,
        services.clock.wall_ms,
        services.runner,
        services.control_requests,
        services.replicas,
        services.log_dirs,
    ),
    fail,
    inter_broker=True,
)
