"""The deletion of topics: an order in ``/admin/delete_topics``, carried out replica by replica.

    every replica:  online -> offline -> deleting -> deleted      (StopReplica, then StopReplica with delete)
    the topic:      all replicas deleted -> its znodes go, the order last

While a broker with a replica is away the topic waits: its replicas there are ineligible, and the deletion goes on when
the broker is back. So it waits while replicas of the topic are being moved, and goes on when the last has arrived. A
controller that takes over finds the order in the znode and begins again; deleting twice is harmless.
"""

import logging
from collections.abc import Iterable

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import (
    config_path,
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.broker.controller.context import ControllerState, Partition, Replica, TopicReplica
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Children, Delete, Send, Steps, Write
from barnabas.broker.controller.transitions import move_partitions, move_replicas

__all__ = ["enqueue", "fail_replicas", "finish_replicas", "resume"]

log = logging.getLogger(__name__)

_REPORTED = 10


def enqueue(state: ControllerState, batch: RequestBatch, topics: Iterable[str]) -> Steps[None]:
    """Begin to delete topics that exist."""
    known = set(topics) & state.topics.keys()
    state.to_delete |= known
    moving = {topic for topic in known if state.is_reassigning(topic)}
    if moving:
        state.ineligible_for_deletion |= moving
        log.info("The deletion of %s waits for their reassignment", ", ".join(sorted(moving)))
    yield from resume(state, batch)


def fail_replicas(state: ControllerState, batch: RequestBatch, replicas: Iterable[TopicReplica]) -> Steps[None]:
    """Brokers could not delete these, or went away: their topics wait."""
    failed = [replica for replica in replicas if state.is_deleting(replica.partition.topic)]
    if not failed:
        return
    yield from move_replicas(state, batch, failed, Replica.INELIGIBLE)
    yield Send(batch.take())
    state.ineligible_for_deletion |= {replica.partition.topic for replica in failed}
    yield from resume(state, batch)


def finish_replicas(state: ControllerState, batch: RequestBatch, replicas: Iterable[TopicReplica]) -> Steps[None]:
    """Brokers have deleted these."""
    done = [replica for replica in replicas if state.is_deleting(replica.partition.topic)]
    yield from move_replicas(state, batch, done, Replica.DELETED)
    yield from resume(state, batch)


def resume(state: ControllerState, batch: RequestBatch, topics: Iterable[str] = ()) -> Steps[None]:
    """Do what can be done now for every topic in deletion; ``topics`` need not wait any longer."""
    state.ineligible_for_deletion -= {topic for topic in topics if not state.is_reassigning(topic)}
    finished, retried, started = [], [], []
    for topic in sorted(state.to_delete):
        replicas = state.replica_states_of(topic)
        if all(replica is Replica.DELETED for replica in replicas):
            finished.append(topic)
            continue
        if Replica.DELETING in replicas:
            continue
        if Replica.INELIGIBLE in replicas:
            retried += state.replicas_in(topic, Replica.INELIGIBLE)
        if topic not in state.ineligible_for_deletion:
            started.append(topic)
    if finished:
        yield from _remove_znodes(state, finished)
        log.info("Deleted: %s", ", ".join(finished[:_REPORTED]) + (" ..." if len(finished) > _REPORTED else ""))
        for topic in finished:
            state.remove_topic(topic)
    if retried:
        yield from move_replicas(state, batch, retried, Replica.OFFLINE)
        yield Send(batch.take())
    if started:
        yield from _start(state, batch, started)


def _start(state: ControllerState, batch: RequestBatch, topics: list[str]) -> Steps[None]:
    partitions = state.partitions_of(topics)
    unseen = [partition for partition in partitions if partition.topic not in state.deletion_started]
    move_partitions(state, unseen, Partition.OFFLINE)
    move_partitions(state, unseen, Partition.ABSENT)
    state.deletion_started.update(topics)
    batch.add_update_metadata(partitions)  # brokers stop serving the topics at once
    yield Send(batch.take())

    replicas = state.replicas_of(partitions)
    alive = [replica for replica in replicas if state.is_online(replica.broker, replica.partition)]
    dead = sorted(set(replicas) - set(alive))
    todo = [r for r in alive if state.replica_states.get(r.partition, {}).get(r.broker) is not Replica.DELETED]
    # A replica comes to ineligible by way of offline; of dead brokers this is only bookkeeping.
    yield from move_replicas(state, batch, _not_in(state, dead, Replica.INELIGIBLE), Replica.OFFLINE)
    yield from move_replicas(state, batch, _not_in(state, dead, Replica.INELIGIBLE), Replica.INELIGIBLE)
    yield from move_replicas(state, batch, todo, Replica.OFFLINE)
    yield Send(batch.take())
    yield from move_replicas(state, batch, todo, Replica.DELETING)
    yield Send(batch.take())
    waiting = {replica.partition.topic for replica in dead}
    if waiting:
        state.ineligible_for_deletion |= waiting
        log.info("The deletion of %d topics waits for brokers that are away", len(waiting))


def _not_in(state: ControllerState, replicas: Iterable[TopicReplica], target: Replica) -> list[TopicReplica]:
    return [r for r in replicas if state.replica_states.get(r.partition, {}).get(r.broker) is not target]


def _remove_znodes(state: ControllerState, topics: list[str]) -> Steps[None]:
    """The topic's subtree, its configuration, and the order last: until then a successor finds it and goes on."""
    ops: list[Delete] = []
    for topic in topics:
        known = set(state.topics.get(topic, ()))
        children: list[str] = yield Children(partitions_path(topic))
        known |= {int(name) for name in children if name.isdecimal()}
        for index in sorted(known):
            partition = TopicPartition(topic, index)
            ops += [Delete(partition_state_path(partition)), Delete(partition_path(partition))]
        ops += [Delete(partitions_path(topic)), Delete(topic_path(topic)), Delete(config_path("topics", topic))]
        ops.append(Delete(delete_topic_path(topic)))
    yield Write(ops)
