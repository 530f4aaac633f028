"""LeaderAndIsr (key 4), versions 2 to 7.

The controller makes this broker leader or follower of partitions. Each partition is checked against the leader epoch
and the topic id that this broker knows.

- 2: the broker epoch (KIP-380), and states grouped by topic.
- 3: replicas that are added and removed (KIP-455).
- 5: topic ids, and a response by topic id (KIP-516).
- 6: the leader recovery state (KIP-704).
- 7: whether the controller is a KRaft controller.

Errors: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH of the whole request; INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH
(an older leader epoch), KAFKA_STORAGE_ERROR of a partition.
"""

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.control_requests import check_epochs
from barnabas.broker.apis.services import Services
from barnabas.broker.replication.partition import StateChange
from barnabas.broker.replication.replica_manager import LeadershipOutcome
from barnabas.broker.requests.request import Request
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


def handle(services: Services, request: Request) -> None:
    """Change the roles, tell who asked to know, answer for each partition."""
    message: LeaderAndIsrRequest = request.message
    check_epochs(services, message.broker_epoch, message.controller_epoch)
    outcome = LeadershipOutcome()
    now_ms = services.clock.wall_ms()
    results: list[tuple[str, Uuid, int, ErrorCode]] = []
    states = [(state.topic_name, ZERO_UUID, state) for state in message.ungrouped_partition_states]
    states += [
        (topic.topic_name, topic.topic_id, state) for topic in message.topic_states for state in topic.partition_states
    ]
    for topic_name, topic_id, state in states:
        name = TopicPartition(topic_name, state.partition_index)
        code = services.replicas.change_state(name, topic_id, _change(state), now_ms, outcome)
        results.append((topic_name, topic_id, state.partition_index, code))
    services.replicas.announce(outcome)
    request.reply(_response(request.version, results))


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


API = ApiHandler(ApiKey.LEADER_AND_ISR, 2, 7, handle, inter_broker=True)
