"""Brokers come, go, change their registration, shut down, and lose log dirs.

Kafka's `KafkaController`: `processBrokerChange`, `onBrokerStartup`, `onBrokerFailure`,
`processBrokerModification`, `processControlledShutdown`, `processLogDirEventNotification`,
`processLeaderAndIsrResponseReceived`.

Each function brings the context from what it was to what the znodes say now, and sends the brokers
what they must know. Each may be called again at any time, also when nothing changed: an event is a
hint to look, not a fact.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Children, Delete, Read, Send, Steps, Write, Znode
from barnabas.broker.cluster.znodes import (
    BROKER_IDS,
    LOG_DIR_EVENTS,
    NO_LEADER,
    BrokerInfo,
    ZnodeFormatError,
    broker_path,
    decode_broker,
    decode_log_dir_event,
)
from barnabas.broker.controller import reassignment, topic_deletion
from barnabas.broker.controller.context import ControllerContext, PartitionAndReplica, PartitionState, ReplicaState
from barnabas.broker.controller.election_strategies import CONTROLLED_SHUTDOWN
from barnabas.broker.controller.partition_batches import find_in_turns, in_batches
from barnabas.broker.controller.partition_state_machine import elect, move_partitions, trigger_online
from barnabas.broker.controller.replica_state_machine import move_replicas
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.broker.metadata.features import incompatible_features
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "process_broker_change",
    "process_broker_modification",
    "process_controlled_shutdown",
    "process_leader_and_isr_response",
    "process_log_dir_event_notification",
    "read_brokers",
]

logger = logging.getLogger(__name__)


def read_brokers(context: ControllerContext) -> Steps[dict[int, BrokerInfo]]:
    """The registered brokers, by id.

    A registration that cannot be read, or without the features of the cluster, is left out.
    """
    names: list[str] = yield Children(BROKER_IDS)
    ids = sorted(int(name) for name in names if name.isdecimal())
    znodes: list[Znode | None] = yield Read([broker_path(broker) for broker in ids])
    brokers = {}
    for broker, znode in zip(ids, znodes, strict=True):
        if znode is not None:
            try:
                info = decode_broker(broker, znode.data, znode.czxid)
                unsupported = incompatible_features(info.features, context.features.levels)
                if unsupported:
                    logger.warning("Broker %d is left out: it does not support %s", broker, ", ".join(unsupported))
                else:
                    brokers[broker] = info
            except ZnodeFormatError as error:
                logger.error("Broker %d is left out: %s", broker, error)
    return brokers


def process_broker_change(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """Brokers came, went, or came again under a new epoch between two looks."""
    current = yield from read_brokers(context)
    came = sorted(current.keys() - context.brokers.keys())
    went = sorted(context.brokers.keys() - current.keys())
    bounced = sorted(b for b in current.keys() & context.brokers.keys() if current[b].epoch > context.brokers[b].epoch)
    if came or went or bounced:
        logger.info("Brokers: new %s, gone %s, restarted %s, live %s", came, went, bounced, sorted(current))
    if came:
        context.brokers.update({broker: current[broker] for broker in came})
        yield from _on_broker_startup(context, batch, came)
    if bounced:
        for broker in bounced:
            del context.brokers[broker]
        yield from _on_broker_failure(context, batch, bounced)
        context.brokers.update({broker: current[broker] for broker in bounced})
        yield from _on_broker_startup(context, batch, bounced)
    if went:
        for broker in went:
            del context.brokers[broker]
        yield from _on_broker_failure(context, batch, went)


def _on_broker_startup(context: ControllerContext, batch: RequestBatch, brokers: Sequence[int]) -> Steps[None]:
    for broker in brokers:
        context.offline_dirs.pop(broker, None)
        context.shutting_down.discard(broker)
    batch.add_update_metadata([], [broker for broker in context.brokers if broker not in brokers])
    yield Send(batch.take())
    led = yield from find_in_turns(
        list(context.leadership.items()),
        lambda some: [p for p, known in some if known.leader_and_isr.leader != NO_LEADER],
    )
    batch.keep_topics_whole()
    # Without partitions, this still updates the live brokers.
    for partitions in in_batches(led) if led else [led]:
        batch.add_update_metadata(partitions, brokers)
        yield Send(batch.take())
    yield Send(batch.take_rest())
    theirs = yield from _replicas_on(context, brokers)
    for replicas in in_batches(theirs):
        yield from move_replicas(context, batch, replicas, ReplicaState.ONLINE)
        yield Send(batch.take())
    yield from trigger_online(context, batch)
    yield from reassignment.resume_on_brokers(context, batch, brokers)
    deleting = {
        replica.topic_partition.topic for replica in theirs if context.is_deleting(replica.topic_partition.topic)
    }
    if deleting:
        yield from topic_deletion.resume_deletions(context, batch, deleting)


def _on_broker_failure(context: ControllerContext, batch: RequestBatch, brokers: Sequence[int]) -> Steps[None]:
    for broker in brokers:
        context.offline_dirs.pop(broker, None)
        context.shutting_down.discard(broker)
    replicas = yield from _replicas_on(context, brokers)
    yield from _on_replicas_became_offline(context, batch, replicas)


def _replicas_on(context: ControllerContext, brokers: Iterable[int]) -> Steps[list[PartitionAndReplica]]:
    return (yield from find_in_turns(list(context.partitions()), partial(context.replicas_on, brokers)))


def _on_replicas_became_offline(
    context: ControllerContext, batch: RequestBatch, replicas: Sequence[PartitionAndReplica]
) -> Steps[None]:
    """Elect leaders where they are gone, then remove the replicas from their ISRs."""
    leaderless = yield from find_in_turns(list(context.leadership.items()), context.led_by_dead)
    move_partitions(context, leaderless, PartitionState.OFFLINE)
    yield None
    elected = yield from trigger_online(context, batch)
    kept = [replica for replica in replicas if not context.is_deleting(replica.topic_partition.topic)]
    for some in in_batches(kept):
        yield from move_replicas(context, batch, some, ReplicaState.OFFLINE)
        yield Send(batch.take())
    if not kept and not elected:
        batch.add_update_metadata([])  # otherwise no broker would learn which ones are gone
        yield Send(batch.take())
    yield from topic_deletion.fail_replicas(
        context, batch, [replica for replica in replicas if context.is_deleting(replica.topic_partition.topic)]
    )


def process_broker_modification(context: ControllerContext, batch: RequestBatch, broker: int) -> Steps[None]:
    """A live broker rewrote its registration: new endpoints, for instance."""
    znodes: list[Znode | None] = yield Read([broker_path(broker)])
    known = context.brokers.get(broker)
    if znodes[0] is None or known is None:
        return
    try:
        info = decode_broker(broker, znodes[0].data, znodes[0].czxid)
    except ZnodeFormatError as error:
        logger.error("The change of broker %d is left out: %s", broker, error)
        return
    if info.epoch == known.epoch and (info.endpoints, info.features) != (known.endpoints, known.features):
        context.brokers[broker] = info
        batch.add_update_metadata([])
        yield Send(batch.take())


def process_controlled_shutdown(
    context: ControllerContext, batch: RequestBatch, broker: int, broker_epoch: int
) -> Steps[list[TopicPartition]]:
    """A broker asks to stop: others take over what it leads. Returns what it still leads.

    Raises `KafkaError`: STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
    """
    info = context.brokers.get(broker)
    if info is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
    if 0 <= broker_epoch < info.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Received controlled shutdown request from an old broker epoch {broker_epoch} for broker {broker}. "
            f"Current broker epoch is {info.epoch}.",
        )
    context.shutting_down.add(broker)
    led: list[TopicPartition] = []
    followed: list[TopicPartition] = []
    for replica in (yield from _replicas_on(context, [broker])):
        topic_partition = replica.topic_partition
        known = context.leadership.get(topic_partition)
        if (
            known
            and len(context.assignment(topic_partition).replicas) > 1
            and not context.is_deleting(topic_partition.topic)
        ):
            (led if known.leader_and_isr.leader == broker else followed).append(topic_partition)
    for partitions in in_batches(led):
        yield from elect(context, batch, partitions, CONTROLLED_SHUTDOWN)
        yield Send(batch.take())
    for partitions in in_batches(followed):
        for topic_partition in partitions:
            batch.add_stop_replica([broker], topic_partition, delete=False)
        yield Send(batch.take())
    for partitions in in_batches(followed):
        leaving = [PartitionAndReplica(topic_partition, broker) for topic_partition in partitions]
        yield from move_replicas(context, batch, leaving, ReplicaState.OFFLINE)
        yield Send(batch.take())
    return (yield from find_in_turns(list(context.leadership.items()), partial(context.led_by, broker)))


def process_log_dir_event_notification(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """Brokers reported failed log dirs: send them LeaderAndIsr for all their replicas; the
    responses say which are lost."""
    names: list[str] = yield Children(LOG_DIR_EVENTS)
    paths = [f"{LOG_DIR_EVENTS}/{name}" for name in names]
    znodes: list[Znode | None] = yield Read(paths)
    brokers = set()
    for path, znode in zip(paths, znodes, strict=True):
        if znode is not None:
            try:
                brokers.add(decode_log_dir_event(path, znode.data))
            except ZnodeFormatError as error:
                logger.error("%s", error)
    live = yield from _replicas_on(context, [broker for broker in brokers if context.is_live(broker)])
    for replicas in in_batches(live):
        yield from move_replicas(context, batch, replicas, ReplicaState.ONLINE)
        yield Send(batch.take())
    yield Write([Delete(path) for path in paths])


def process_leader_and_isr_response(
    context: ControllerContext, batch: RequestBatch, broker: int, errors: Mapping[TopicPartition, int]
) -> Steps[None]:
    """A broker became leader and follower as it should, or reports which replicas
    are on failed log dirs."""
    before = context.offline_dirs.get(broker, set())
    now = before - {p for p, code in errors.items() if code == ErrorCode.NONE}
    now |= {p for p, code in errors.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
    if now or before:
        context.offline_dirs[broker] = now
    if now - before:
        yield from _on_replicas_became_offline(
            context, batch, [PartitionAndReplica(topic_partition, broker) for topic_partition in sorted(now - before)]
        )
