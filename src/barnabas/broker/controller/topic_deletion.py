"""The deletion of topics that are queued in ``/admin/delete_topics``, replica by replica (Kafka's
`TopicDeletionManager`).

    every replica:  online -> offline -> deleting -> deleted
                    (StopReplica, then StopReplica with delete)
    the topic:      all replicas deleted -> its znodes go, the one in the queue last

While a broker with a replica is away the topic waits: its replicas there are ineligible, and
the deletion continues when the broker is back. It also waits while replicas of the topic are
being reassigned. A controller that takes over finds the topic in the queue and begins again;
deleting twice is harmless.
"""

import logging
from collections.abc import Iterable

from barnabas.base.excerpts import some_of
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Children, Delete, Send, Steps, Write
from barnabas.broker.cluster.znodes import (
    config_path,
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.broker.controller.context import ControllerContext, PartitionAndReplica, PartitionState, ReplicaState
from barnabas.broker.controller.partition_batches import in_batches
from barnabas.broker.controller.partition_state_machine import move_partitions
from barnabas.broker.controller.replica_state_machine import move_replicas
from barnabas.broker.controller.request_batch import RequestBatch

__all__ = ["enqueue", "fail_replicas", "finish_replicas", "resume_deletions"]

logger = logging.getLogger(__name__)

_REPORTED = 10
_MOST_OPS = 512
"""After this many of a topic's deletions the event loop serves everything else."""


def enqueue(context: ControllerContext, batch: RequestBatch, topics: Iterable[str]) -> Steps[None]:
    """Begin to delete topics that exist."""
    known = set(topics) & context.topics.keys()
    context.to_delete |= known
    moving = {topic for topic in known if context.is_reassigning(topic)}
    if moving:
        context.ineligible_for_deletion |= moving
        logger.info("The deletion of %s waits for their reassignment", some_of(sorted(moving)))
    yield from resume_deletions(context, batch)


def fail_replicas(
    context: ControllerContext, batch: RequestBatch, replicas: Iterable[PartitionAndReplica]
) -> Steps[None]:
    """Brokers could not delete these, or went away: their topics wait."""
    failed = [replica for replica in replicas if context.is_deleting(replica.topic_partition.topic)]
    if not failed:
        return
    for some in in_batches(failed):
        yield from move_replicas(context, batch, some, ReplicaState.INELIGIBLE)
        yield Send(batch.take())
    context.ineligible_for_deletion |= {replica.topic_partition.topic for replica in failed}
    yield from resume_deletions(context, batch)


def finish_replicas(
    context: ControllerContext, batch: RequestBatch, replicas: Iterable[PartitionAndReplica]
) -> Steps[None]:
    """Brokers have deleted these."""
    done = [replica for replica in replicas if context.is_deleting(replica.topic_partition.topic)]
    yield from move_replicas(context, batch, done, ReplicaState.DELETED)
    yield from _resume(context, batch, {replica.topic_partition.topic for replica in done})


def resume_deletions(context: ControllerContext, batch: RequestBatch, topics: Iterable[str] = ()) -> Steps[None]:
    """Do what can be done now for every topic in deletion; ``topics`` need not wait any longer."""
    context.ineligible_for_deletion -= {topic for topic in topics if not context.is_reassigning(topic)}
    yield from _resume(context, batch, context.to_delete)


def _resume(context: ControllerContext, batch: RequestBatch, topics: Iterable[str]) -> Steps[None]:
    finished, retried, started = [], [], []
    for topic in sorted(topics):
        if context.are_all_replicas_in(topic, ReplicaState.DELETED):
            finished.append(topic)
            continue
        if context.has_replicas_in(topic, ReplicaState.DELETING):
            continue
        if context.has_replicas_in(topic, ReplicaState.INELIGIBLE):
            retried += context.replicas_in(topic, ReplicaState.INELIGIBLE)
        if topic not in context.ineligible_for_deletion:
            started.append(topic)
    if finished:
        yield from _remove_znodes(context, finished)
        logger.info("Deleted: %s", ", ".join(finished[:_REPORTED]) + (" ..." if len(finished) > _REPORTED else ""))
        for topic in finished:
            context.remove_topic(topic)
    for some in in_batches(retried):
        yield from move_replicas(context, batch, some, ReplicaState.OFFLINE)
        yield Send(batch.take())
    if started:
        yield from _start(context, batch, started)


def _start(context: ControllerContext, batch: RequestBatch, topics: list[str]) -> Steps[None]:
    partitions = context.partitions_of(topics)
    new_topics = set(topics) - context.deletion_started
    context.deletion_started.update(topics)
    for some in in_batches(partitions):
        unseen = [topic_partition for topic_partition in some if topic_partition.topic in new_topics]
        move_partitions(context, unseen, PartitionState.OFFLINE)
        move_partitions(context, unseen, PartitionState.ABSENT)
        batch.add_update_metadata(some)  # brokers stop serving the topics at once
        yield Send(batch.take())
    waiting: set[str] = set()
    todo: list[PartitionAndReplica] = []
    for some in in_batches(partitions):
        replicas = context.replicas_of(some)
        alive = [replica for replica in replicas if context.is_online(replica.broker, replica.topic_partition)]
        dead = sorted(set(replicas) - set(alive))
        waiting.update(replica.topic_partition.topic for replica in dead)
        left = _not_in(context, alive, ReplicaState.DELETED)
        # A replica comes to ineligible by way of offline; of dead brokers this is only bookkeeping.
        lost = _not_in(context, dead, ReplicaState.INELIGIBLE)
        yield from move_replicas(context, batch, lost, ReplicaState.OFFLINE)
        yield from move_replicas(context, batch, lost, ReplicaState.INELIGIBLE)
        yield from move_replicas(context, batch, left, ReplicaState.OFFLINE)
        yield Send(batch.take())
        todo += left
    for some_replicas in in_batches(todo):
        yield from move_replicas(context, batch, some_replicas, ReplicaState.DELETING)
        yield Send(batch.take())
    if waiting:
        context.ineligible_for_deletion |= waiting
        logger.info("The deletion of %d topics waits for brokers that are away", len(waiting))


def _not_in(
    context: ControllerContext, replicas: Iterable[PartitionAndReplica], target: ReplicaState
) -> list[PartitionAndReplica]:
    return [r for r in replicas if context.replica_states.get(r.topic_partition, {}).get(r.broker) is not target]


def _remove_znodes(context: ControllerContext, topics: list[str]) -> Steps[None]:
    """The topic's subtree, its configuration, and its place in the queue last: until then a
    successor finds it and continues."""
    ops: list[Delete] = []
    for topic in topics:
        known = set(context.topics.get(topic, ()))
        children: list[str] = yield Children(partitions_path(topic))
        known |= {int(name) for name in children if name.isdecimal()}
        for indexes in in_batches(sorted(known)):
            for index in indexes:
                topic_partition = TopicPartition(topic, index)
                ops += [Delete(partition_state_path(topic_partition)), Delete(partition_path(topic_partition))]
            if len(ops) >= _MOST_OPS:
                yield Write(ops)
                ops = []
        ops += [Delete(partitions_path(topic)), Delete(topic_path(topic)), Delete(config_path("topics", topic))]
        ops.append(Delete(delete_topic_path(topic)))
    yield Write(ops)
