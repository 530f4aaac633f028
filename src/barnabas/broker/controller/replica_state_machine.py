"""Moves replicas from one state to another: what each move writes and sends (Kafka's
`ReplicaStateMachine`).

The legal moves are `context.REPLICA_STATE_SOURCES`; an illegal one is logged and left out, the
others are made. Requests gather in the `RequestBatch` that is passed in, and callers send it.
"""

import logging
from collections.abc import Iterable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.cluster.znodes import NO_LEADER, LeaderAndIsr, LeaderIsrAndControllerEpoch
from barnabas.broker.controller.context import (
    REPLICA_STATE_SOURCES,
    ControllerContext,
    PartitionAndReplica,
    ReplicaState,
)
from barnabas.broker.controller.partition_state_store import MAX_ROUNDS, states_for_attempt, update_leadership
from barnabas.broker.controller.request_batch import RequestBatch

__all__ = ["move_replicas"]

logger = logging.getLogger(__name__)


def move_replicas(
    context: ControllerContext, batch: RequestBatch, replicas: Iterable[PartitionAndReplica], target: ReplicaState
) -> Steps[None]:
    """Move replicas, broker by broker."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for replica in _legal_replicas(context, replicas, target):
        by_broker.setdefault(replica.broker, []).append(replica.topic_partition)
    for broker, partitions in by_broker.items():
        match target:
            case ReplicaState.NEW:
                _make_new(context, batch, broker, partitions)
            case ReplicaState.ONLINE:
                _make_online(context, batch, broker, partitions)
            case ReplicaState.OFFLINE:
                yield from _make_offline(context, batch, broker, partitions)
            case ReplicaState.DELETING:
                for topic_partition in partitions:
                    batch.add_stop_replica([broker], topic_partition, delete=True)
            case ReplicaState.ABSENT:
                for topic_partition in partitions:
                    context.set_assignment(topic_partition, context.assignment(topic_partition).without(broker))
                    context.drop_replica(topic_partition, broker)
                continue
        if target in (ReplicaState.DELETING, ReplicaState.DELETED, ReplicaState.INELIGIBLE):
            _set_replicas(context, broker, partitions, target)


def _legal_replicas(
    context: ControllerContext, replicas: Iterable[PartitionAndReplica], target: ReplicaState
) -> list[PartitionAndReplica]:
    sources = REPLICA_STATE_SOURCES[target]
    legal = []
    for replica in replicas:
        current = context.replica_states.get(replica.topic_partition, {}).get(replica.broker, ReplicaState.ABSENT)
        if current in sources:
            legal.append(replica)
        else:
            logger.error("The replica of %s on broker %d cannot become %s: it is %s",
                      replica.topic_partition, replica.broker, target.value, current.value)  # fmt: skip
    return legal


def _set_replicas(
    context: ControllerContext, broker: int, partitions: Iterable[TopicPartition], target: ReplicaState
) -> None:
    for topic_partition in partitions:
        context.set_replica_state(topic_partition, broker, target)


def _make_new(
    context: ControllerContext, batch: RequestBatch, broker: int, partitions: Iterable[TopicPartition]
) -> None:
    for topic_partition in partitions:
        known = context.leadership.get(topic_partition)
        if known is not None and known.leader_and_isr.leader == broker:
            logger.error("The replica of %s on broker %d cannot be new: it leads", topic_partition, broker)
            continue
        if known is not None:
            batch.add_leader_and_isr([broker], topic_partition, is_new=True)
        _set_replicas(context, broker, [topic_partition], ReplicaState.NEW)


def _make_online(
    context: ControllerContext, batch: RequestBatch, broker: int, partitions: Iterable[TopicPartition]
) -> None:
    for topic_partition in partitions:
        current = context.replica_states.get(topic_partition, {}).get(broker)
        if current is ReplicaState.NEW:
            assignment = context.assignment(topic_partition)
            if broker not in assignment.replicas:
                context.set_assignment(topic_partition, assignment._replace(replicas=(*assignment.replicas, broker)))
        elif topic_partition in context.leadership:
            batch.add_leader_and_isr([broker], topic_partition, is_new=False)
        _set_replicas(context, broker, [topic_partition], ReplicaState.ONLINE)


def _make_offline(
    context: ControllerContext, batch: RequestBatch, broker: int, partitions: Sequence[TopicPartition]
) -> Steps[None]:
    """Stop the replicas, remove them from the ISR (never its last member), and
    notify the others."""
    for topic_partition in partitions:
        batch.add_stop_replica([broker], topic_partition, delete=False)
    leaderless = [topic_partition for topic_partition in partitions if topic_partition not in context.leadership]
    removed = yield from _leave_isr(context, broker, [p for p in partitions if p in context.leadership])
    for topic_partition in removed:
        if not context.is_deleting(topic_partition.topic):
            others = [replica for replica in context.assignment(topic_partition).replicas if replica != broker]
            batch.add_leader_and_isr(others, topic_partition, is_new=False)
    if leaderless:
        batch.add_update_metadata(leaderless)
    _set_replicas(context, broker, [*removed, *leaderless], ReplicaState.OFFLINE)


def _leave_isr(
    context: ControllerContext, broker: int, partitions: Sequence[TopicPartition]
) -> Steps[list[TopicPartition]]:
    finished: list[TopicPartition] = []
    remaining = list(partitions)
    for attempt in range(MAX_ROUNDS):
        if not remaining:
            break
        read = yield from states_for_attempt(context, remaining, attempt)
        proposals: dict[TopicPartition, LeaderAndIsr] = {}
        for topic_partition in remaining:
            known = read.get(topic_partition)
            if known is None:
                if not context.is_deleting(topic_partition.topic):
                    logger.error("Broker %d stays in the ISR of %s: it has no state", broker, topic_partition)
                continue
            if known.controller_epoch > context.epoch:
                logger.error("Broker %d stays in the ISR of %s: a later controller wrote it", broker, topic_partition)
                continue
            current = known.leader_and_isr
            if broker not in current.isr:
                context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(current, context.epoch)
                finished.append(topic_partition)
                continue
            leader = NO_LEADER if current.leader == broker else current.leader
            isr = current.isr if len(current.isr) == 1 else tuple(r for r in current.isr if r != broker)
            proposals[topic_partition] = current.with_leader(leader, isr)
        done, remaining = yield from update_leadership(context, proposals)
        finished += done
    return finished
