"""Topics and partitions are created, and topics deleted.

Kafka's `KafkaController`: `processTopicChange`, `processPartitionModifications`,
`onNewPartitionCreation`, `processTopicDeletion`, `processTopicDeletionStopReplicaResponseReceived`.

Each function may be called again at any time, also when nothing changed: an event is a
hint to look, not a fact.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.base.excerpts import some_of
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.steps import (
    Children,
    Delete,
    Read,
    Send,
    SetData,
    Steps,
    Watch,
    Write,
    Znode,
)
from barnabas.broker.cluster.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_TOPICS,
    TopicAssignment,
    ZnodeFormatError,
    decode_topic_in_slices,
    delete_topic_path,
    encode_topic,
    topic_path,
)
from barnabas.broker.controller import topic_deletion
from barnabas.broker.controller.context import ControllerContext, PartitionAndReplica, PartitionState, ReplicaState
from barnabas.broker.controller.election_strategies import OFFLINE
from barnabas.broker.controller.partition_batches import in_batches
from barnabas.broker.controller.partition_state_machine import bring_online, move_partitions
from barnabas.broker.controller.replica_state_machine import move_replicas
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import ErrorCode

__all__ = [
    "NewTopicId",
    "learn_topics",
    "process_created_topics",
    "process_partition_modifications",
    "process_stop_replica_response",
    "process_topic_change",
    "process_topic_deletion",
]

logger = logging.getLogger(__name__)

NewTopicId = Callable[[], Uuid]
"""Draws an id, for topics that older brokers made without one."""


def learn_topics(
    context: ControllerContext, topics: Iterable[str], new_topic_id: NewTopicId
) -> Steps[list[TopicPartition]]:
    """Read the assignments of topics, and give an id to those that have none.

    Returns their partitions."""
    learned: list[TopicPartition] = []
    for names in in_batches(list(topics)):
        learned += yield from _learn_some_topics(context, names, new_topic_id)
    return learned


def _learn_some_topics(
    context: ControllerContext, names: Sequence[str], new_topic_id: NewTopicId
) -> Steps[list[TopicPartition]]:
    znodes: list[Znode | None] = yield Read([topic_path(topic) for topic in names])
    learned: list[TopicPartition] = []
    without_id: list[SetData] = []
    for topic, znode in zip(names, znodes, strict=True):
        if znode is None:
            continue
        try:
            found = yield from decode_topic_in_slices(topic, znode.data)
        except ZnodeFormatError as error:
            logger.error("Topic %s is left out: %s", topic, error)
            continue
        topic_id = found.topic_id
        if topic_id is None:
            topic_id = new_topic_id()
            without_id.append(SetData(topic_path(topic), encode_topic(topic_id, found.partitions), znode.version))
        learned += yield from _learn_topic(context, topic, TopicAssignment(topic_id, found.partitions))
    if without_id:
        yield Write(without_id)
    return learned


def _learn_topic(context: ControllerContext, topic: str, found: TopicAssignment) -> Steps[list[TopicPartition]]:
    if found.topic_id is not None:
        context.topic_ids[topic] = found.topic_id
    context.topics[topic] = {}
    partitions: list[TopicPartition] = []
    for indexes in in_batches(list(found.partitions)):
        for index in indexes:
            topic_partition = TopicPartition(topic, index)
            context.set_assignment(topic_partition, found.partitions[index])
            partitions.append(topic_partition)
        if len(partitions) < len(found.partitions):
            yield None
    return partitions


def process_topic_change(context: ControllerContext, batch: RequestBatch, new_topic_id: NewTopicId) -> Steps[list[str]]:
    """Topics came or went; returns the new ones."""
    current: list[str] = yield Children(BROKER_TOPICS)
    for topic in context.topics.keys() - set(current):
        context.remove_topic(topic)
    new = sorted(set(current) - context.topics.keys())
    if new:
        learned = yield from learn_topics(context, new, new_topic_id)
        yield from _on_new_partition_creation(context, batch, learned)
    return new


def process_created_topics(
    context: ControllerContext, batch: RequestBatch, topics: Mapping[str, TopicAssignment]
) -> Steps[list[str]]:
    """Topics that this broker itself just wrote: as `process_topic_change`, without
    reading them back."""
    learned: list[TopicPartition] = []
    new = [topic for topic in topics if topic not in context.topics]
    for topic in new:
        learned += yield from _learn_topic(context, topic, topics[topic])
    yield from _on_new_partition_creation(context, batch, learned)
    if new:
        yield Watch([topic_path(topic) for topic in new])
    return new


def process_partition_modifications(context: ControllerContext, batch: RequestBatch, topic: str) -> Steps[None]:
    """A topic's assignment was rewritten: take its new partitions, unless it is being deleted."""
    if topic not in context.topics:
        return
    znodes: list[Znode | None] = yield Read([topic_path(topic)])
    if znodes[0] is None:
        return
    try:
        found = yield from decode_topic_in_slices(topic, znodes[0].data)
    except ZnodeFormatError as error:
        logger.error("The change of topic %s is left out: %s", topic, error)
        return
    new = {index: a for index, a in found.partitions.items() if index not in context.topics[topic]}
    if not new:
        return
    if context.is_deleting(topic):
        logger.warning("Topic %s gets no more partitions: it is being deleted", topic)
        known = encode_topic(context.topic_ids.get(topic), context.topics[topic])
        yield Write([SetData(topic_path(topic), known, znodes[0].version)])
        return
    for index, assignment in new.items():
        context.set_assignment(TopicPartition(topic, index), assignment)
    yield from _on_new_partition_creation(context, batch, [TopicPartition(topic, index) for index in new])


def _on_new_partition_creation(
    context: ControllerContext, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[None]:
    batch.keep_topics_whole()
    for some in in_batches(partitions):
        move_partitions(context, some, PartitionState.NEW)
        yield from move_replicas(context, batch, context.replicas_of(some), ReplicaState.NEW)
        yield from bring_online(context, batch, some, OFFLINE)
        yield None
        yield from move_replicas(context, batch, context.replicas_of(some), ReplicaState.ONLINE)
        yield None
        yield Send(batch.take())
    yield Send(batch.take_rest())


def process_topic_deletion(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """Delete the topics in ``/admin/delete_topics``, or remove the requests when
    deletion is disabled."""
    requested: list[str] = yield Children(ADMIN_DELETE_TOPICS)
    known = [topic for topic in requested if topic in context.topics]
    refused = [topic for topic in requested if topic not in context.topics or not context.delete_topic_enabled]
    if refused:
        logger.warning("Topics that do not exist or may not be deleted: %s", some_of(sorted(refused)))
        yield Write([Delete(delete_topic_path(topic)) for topic in refused])
    if context.delete_topic_enabled and known:
        yield from topic_deletion.enqueue(context, batch, known)


def process_stop_replica_response(
    context: ControllerContext,
    batch: RequestBatch,
    broker: int,
    errors: Mapping[TopicPartition, int],
) -> Steps[None]:
    """A broker deleted replicas, or could not."""
    relevant = [
        PartitionAndReplica(topic_partition, broker)
        for topic_partition in errors
        if context.replica_states.get(topic_partition, {}).get(broker) is ReplicaState.DELETING
    ]
    failed = [replica for replica in relevant if errors[replica.topic_partition] != ErrorCode.NONE]
    deleted = [replica for replica in relevant if errors[replica.topic_partition] == ErrorCode.NONE]
    if failed:
        yield from topic_deletion.fail_replicas(context, batch, failed)
    if deleted:
        yield from topic_deletion.finish_replicas(context, batch, deleted)
