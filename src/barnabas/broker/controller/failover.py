"""The first steps of a newly elected controller (Kafka's `onControllerFailover` and
`initializeControllerContext`)."""

from collections.abc import Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Children, Delete, Send, Steps, Write
from barnabas.broker.cluster.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
)
from barnabas.broker.controller import reassignment, replica_leader_election
from barnabas.broker.controller.broker_change import read_brokers
from barnabas.broker.controller.context import ControllerContext, PartitionState, ReplicaState
from barnabas.broker.controller.election_strategies import OFFLINE
from barnabas.broker.controller.features import set_up_feature_versioning
from barnabas.broker.controller.partition_batches import in_batches
from barnabas.broker.controller.partition_state_machine import bring_online
from barnabas.broker.controller.partition_state_store import read_leadership
from barnabas.broker.controller.replica_state_machine import move_replicas
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.broker.controller.topic_change import NewTopicId, learn_topics, process_topic_deletion

__all__ = ["on_controller_failover"]


def on_controller_failover(context: ControllerContext, batch: RequestBatch, new_topic_id: NewTopicId) -> Steps[None]:
    """Bring the context from empty to what the znodes say, and every broker up to date."""
    yield from set_up_feature_versioning(context)
    for parent in (LOG_DIR_EVENTS, ISR_CHANGES):
        names: list[str] = yield Children(parent)
        yield Write([Delete(f"{parent}/{name}") for name in names])
    context.brokers = yield from read_brokers(context)
    topics: list[str] = yield Children(BROKER_TOPICS)
    yield from learn_topics(context, topics, new_topic_id)
    for partitions in in_batches(list(context.partitions())):
        yield from read_leadership(context, partitions)
    requested: list[str] = yield Children(ADMIN_DELETE_TOPICS)
    if context.delete_topic_enabled:
        context.to_delete = set(requested) & context.topics.keys()
    context.has_read_znodes = True

    # Brokers must know the live brokers before they get LeaderAndIsr with leaders to follow.
    batch.add_update_metadata([])
    yield Send(batch.take())
    yield from _initialize_states(context)
    batch.keep_topics_whole()
    for partitions in in_batches(_leaderless_first(context)):
        yield from _bring_up_to_date(context, batch, partitions)
        yield Send(batch.take())
    yield Send(batch.take_rest())
    begun = yield from reassignment.process_znode_reassignment(context, batch)
    yield from reassignment.resume_reassignments(context, batch, context.reassigning - begun)
    yield from process_topic_deletion(context, batch)
    yield from replica_leader_election.process_preferred_replica_election(context, batch)


def _leaderless_first(context: ControllerContext) -> list[TopicPartition]:
    """All partitions, and first those that no client can use before they have a leader."""
    leaderless: list[TopicPartition] = []
    led: list[TopicPartition] = []
    for topic_partition, state in context.partition_states.items():
        (led if state is PartitionState.ONLINE else leaderless).append(topic_partition)
    return leaderless + led


def _bring_up_to_date(
    context: ControllerContext, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[None]:
    """Elect leaders where they are gone, remove dead replicas from their ISRs, and inform
    all live replicas, once.

    Kafka moves all replicas, then all partitions, and so writes the state of a partition whose
    leader died twice, and sends up to three LeaderAndIsr for each replica. The outcome is the same,
    but for a leader epoch that is one lower.
    """
    waiting = [
        topic_partition
        for topic_partition in partitions
        if context.partition_states[topic_partition] is not PartitionState.ONLINE
        and not context.is_deleting(topic_partition.topic)
    ]
    yield from bring_online(context, batch, waiting, OFFLINE)
    replicas = context.replicas_of(partitions)
    online = [replica for replica in replicas if context.is_online(replica.broker, replica.topic_partition)]
    offline = [replica for replica in replicas if not context.is_online(replica.broker, replica.topic_partition)]
    yield from move_replicas(context, batch, offline, ReplicaState.OFFLINE)
    yield from move_replicas(context, batch, online, ReplicaState.ONLINE)


def _initialize_states(context: ControllerContext) -> Steps[None]:
    for partitions in in_batches(list(context.partitions())):
        for topic_partition in partitions:
            _initialize_state(context, topic_partition)
        yield None


def _initialize_state(context: ControllerContext, topic_partition: TopicPartition) -> None:
    known = context.leadership.get(topic_partition)
    if known is None:
        context.partition_states[topic_partition] = PartitionState.NEW
    elif context.is_online(known.leader_and_isr.leader, topic_partition):
        context.partition_states[topic_partition] = PartitionState.ONLINE
    else:
        context.partition_states[topic_partition] = PartitionState.OFFLINE
    for broker in context.assignment(topic_partition).replicas:
        is_online = context.is_online(broker, topic_partition)
        state = ReplicaState.ONLINE if is_online else ReplicaState.INELIGIBLE
        context.set_replica_state(topic_partition, broker, state)
