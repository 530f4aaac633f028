"""What the controller does about each event, as steps for its runner.

Every function brings the `ControllerState` from what it was to what the znodes say now, and tells the brokers. Each
may be called again at any time, also when nothing changed: an event is a hint to look, not a fact.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_IDS,
    BROKER_TOPICS,
    FEATURE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    NO_LEADER,
    BrokerInfo,
    TopicAssignment,
    ZnodeFormatError,
    broker_path,
    decode_broker,
    decode_log_dir_event,
    decode_topic,
    delete_topic_path,
    encode_feature,
    encode_topic,
    topic_path,
)
from barnabas.broker.controller import leaders, reassignment, topic_deletion
from barnabas.broker.controller.context import ControllerState, Partition, Replica, TopicReplica
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Children, Create, Delete, Read, Send, SetData, Steps, Write, Znode
from barnabas.broker.controller.transitions import (
    bring_online,
    elect,
    move_partitions,
    move_replicas,
    offline_election,
    read_leadership,
    shutdown_election,
    trigger_online,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "NewTopicId",
    "broker_changed",
    "brokers_changed",
    "delete_topics",
    "leader_and_isr_answered",
    "log_dirs_failed",
    "partitions_changed",
    "retry_leaders",
    "shut_down",
    "stop_replica_answered",
    "take_over",
    "topics_changed",
    "topics_created",
]

log = logging.getLogger(__name__)


# Taking over


def take_over(state: ControllerState, batch: RequestBatch, new_topic_id: "NewTopicId") -> Steps[None]:
    """From an empty state to the cluster's: what a newly elected controller does first."""
    feature: list[Znode | None] = yield Read([FEATURE])
    if feature[0] is None:
        yield Write([Create(FEATURE, encode_feature())])
    for parent in (LOG_DIR_EVENTS, ISR_CHANGES):
        names: list[str] = yield Children(parent)
        yield Write([Delete(f"{parent}/{name}") for name in names])
    state.brokers = yield from _read_brokers()
    topics: list[str] = yield Children(BROKER_TOPICS)
    yield from _learn_topics(state, topics, new_topic_id)
    yield from read_leadership(state, state.partitions())
    orders: list[str] = yield Children(ADMIN_DELETE_TOPICS)
    if state.delete_topic_enabled:
        state.to_delete = set(orders) & state.topics.keys()

    # Brokers must know who is live before they are told whom to follow.
    batch.add_update_metadata([])
    yield Send(batch.take())
    _initial_states(state)
    online = [r for r in state.replicas_of(state.partitions()) if state.is_online(r.broker, r.partition)]
    offline = [r for r in state.replicas_of(state.partitions()) if not state.is_online(r.broker, r.partition)]
    yield from move_replicas(state, batch, online, Replica.ONLINE)
    yield Send(batch.take())
    yield from move_replicas(state, batch, offline, Replica.OFFLINE)
    yield Send(batch.take())
    yield from trigger_online(state, batch)
    yield Send(batch.take())
    begun = yield from reassignment.take_orders(state, batch)
    yield from reassignment.resume(state, batch, state.reassigning - begun)
    yield from delete_topics(state, batch)
    yield from leaders.prefer_leaders(state, batch)


def _initial_states(state: ControllerState) -> None:
    for partition in state.partitions():
        known = state.leadership.get(partition)
        if known is None:
            state.partition_states[partition] = Partition.NEW
        elif state.is_online(known.leader_and_isr.leader, partition):
            state.partition_states[partition] = Partition.ONLINE
        else:
            state.partition_states[partition] = Partition.OFFLINE
        state.replica_states[partition] = {
            broker: Replica.ONLINE if state.is_online(broker, partition) else Replica.INELIGIBLE
            for broker in state.assignment(partition).replicas
        }


# Brokers


def _read_brokers() -> Steps[dict[int, BrokerInfo]]:
    names: list[str] = yield Children(BROKER_IDS)
    ids = sorted(int(name) for name in names if name.isdecimal())
    znodes: list[Znode | None] = yield Read([broker_path(broker) for broker in ids])
    brokers = {}
    for broker, znode in zip(ids, znodes, strict=True):
        if znode is not None:
            try:
                brokers[broker] = decode_broker(broker, znode.data, znode.czxid)
            except ZnodeFormatError as error:
                log.error("Broker %d is left out: %s", broker, error)
    return brokers


def brokers_changed(state: ControllerState, batch: RequestBatch) -> Steps[None]:
    """Brokers came, went, or came again under a new epoch between two looks."""
    current = yield from _read_brokers()
    came = sorted(current.keys() - state.brokers.keys())
    went = sorted(state.brokers.keys() - current.keys())
    bounced = sorted(b for b in current.keys() & state.brokers.keys() if current[b].epoch > state.brokers[b].epoch)
    if came or went or bounced:
        log.info("Brokers: new %s, gone %s, restarted %s, live %s", came, went, bounced, sorted(current))
    if came:
        state.brokers.update({broker: current[broker] for broker in came})
        yield from _brokers_came(state, batch, came)
    if bounced:
        for broker in bounced:
            del state.brokers[broker]
        yield from _brokers_went(state, batch, bounced)
        state.brokers.update({broker: current[broker] for broker in bounced})
        yield from _brokers_came(state, batch, bounced)
    if went:
        for broker in went:
            del state.brokers[broker]
        yield from _brokers_went(state, batch, went)


def _brokers_came(state: ControllerState, batch: RequestBatch, brokers: Sequence[int]) -> Steps[None]:
    for broker in brokers:
        state.offline_dirs.pop(broker, None)
        state.shutting_down.discard(broker)
    batch.add_update_metadata([], [broker for broker in state.brokers if broker not in brokers])
    yield Send(batch.take())
    led = [p for p, known in state.leadership.items() if known.leader_and_isr.leader != NO_LEADER]
    batch.add_update_metadata(led, brokers)
    yield Send(batch.take())
    theirs = state.replicas_on(brokers)
    yield from move_replicas(state, batch, theirs, Replica.ONLINE)
    yield Send(batch.take())
    yield from trigger_online(state, batch)
    yield Send(batch.take())
    yield from reassignment.resume_on_brokers(state, batch, brokers)
    deleting = {replica.partition.topic for replica in theirs if state.is_deleting(replica.partition.topic)}
    if deleting:
        yield from topic_deletion.resume(state, batch, deleting)


def _brokers_went(state: ControllerState, batch: RequestBatch, brokers: Sequence[int]) -> Steps[None]:
    for broker in brokers:
        state.offline_dirs.pop(broker, None)
        state.shutting_down.discard(broker)
    yield from _replicas_went(state, batch, state.replicas_on(brokers))


def _replicas_went(state: ControllerState, batch: RequestBatch, replicas: Sequence[TopicReplica]) -> Steps[None]:
    """Elect anew where a leader is gone, then take the replicas from their ISRs."""
    move_partitions(state, state.led_by_dead(), Partition.OFFLINE)
    elected = yield from trigger_online(state, batch)
    yield Send(batch.take())
    kept = [replica for replica in replicas if not state.is_deleting(replica.partition.topic)]
    yield from move_replicas(state, batch, kept, Replica.OFFLINE)
    if not kept and not elected:
        batch.add_update_metadata([])  # otherwise nobody would hear who is gone
    yield Send(batch.take())
    yield from topic_deletion.fail_replicas(
        state, batch, [replica for replica in replicas if state.is_deleting(replica.partition.topic)]
    )


def broker_changed(state: ControllerState, batch: RequestBatch, broker: int) -> Steps[None]:
    """A live broker rewrote its registration: new endpoints, for instance."""
    znodes: list[Znode | None] = yield Read([broker_path(broker)])
    known = state.brokers.get(broker)
    if znodes[0] is None or known is None:
        return
    try:
        info = decode_broker(broker, znodes[0].data, znodes[0].czxid)
    except ZnodeFormatError as error:
        log.error("The change of broker %d is left out: %s", broker, error)
        return
    if info.epoch == known.epoch and (info.endpoints, info.features) != (known.endpoints, known.features):
        state.brokers[broker] = info
        batch.add_update_metadata([])
        yield Send(batch.take())


def retry_leaders(state: ControllerState, batch: RequestBatch) -> Steps[None]:
    """Unclean elections were allowed meanwhile: try again where there is no leader."""
    yield from trigger_online(state, batch)
    yield Send(batch.take())


def shut_down(
    state: ControllerState, batch: RequestBatch, broker: int, broker_epoch: int
) -> Steps[list[TopicPartition]]:
    """A broker asks to stop: others take over what it leads. Returns what it still leads.

    Raises `KafkaError`: STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
    """
    info = state.brokers.get(broker)
    if info is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
    if 0 <= broker_epoch < info.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Received controlled shutdown request from an old broker epoch {broker_epoch} for broker {broker}. "
            f"Current broker epoch is {info.epoch}.",
        )
    state.shutting_down.add(broker)
    led: list[TopicPartition] = []
    followed: list[TopicPartition] = []
    for replica in state.replicas_on([broker]):
        partition = replica.partition
        known = state.leadership.get(partition)
        if known and len(state.assignment(partition).replicas) > 1 and not state.is_deleting(partition.topic):
            (led if known.leader_and_isr.leader == broker else followed).append(partition)
    yield from elect(state, batch, led, shutdown_election)
    yield Send(batch.take())
    for partition in followed:
        batch.add_stop_replica([broker], partition, delete=False)
    yield Send(batch.take())
    yield from move_replicas(state, batch, [TopicReplica(p, broker) for p in followed], Replica.OFFLINE)
    yield Send(batch.take())
    return state.led_by(broker)


def log_dirs_failed(state: ControllerState, batch: RequestBatch) -> Steps[None]:
    """Brokers told of failed log dirs: ask them for all their replicas, the answers say which are lost."""
    names: list[str] = yield Children(LOG_DIR_EVENTS)
    paths = [f"{LOG_DIR_EVENTS}/{name}" for name in names]
    znodes: list[Znode | None] = yield Read(paths)
    brokers = set()
    for path, znode in zip(paths, znodes, strict=True):
        if znode is not None:
            try:
                brokers.add(decode_log_dir_event(path, znode.data))
            except ZnodeFormatError as error:
                log.error("%s", error)
    live = [replica for replica in state.replicas_on(brokers) if state.is_live(replica.broker)]
    yield from move_replicas(state, batch, live, Replica.ONLINE)
    yield Send(batch.take())
    yield Write([Delete(path) for path in paths])


def leader_and_isr_answered(
    state: ControllerState, batch: RequestBatch, broker: int, errors: Mapping[TopicPartition, int]
) -> Steps[None]:
    """A broker took up its roles, or told which replicas are on failed log dirs."""
    before = state.offline_dirs.get(broker, set())
    now = before - {p for p, code in errors.items() if code == ErrorCode.NONE}
    now |= {p for p, code in errors.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
    if now or before:
        state.offline_dirs[broker] = now
    if now - before:
        yield from _replicas_went(state, batch, [TopicReplica(partition, broker) for partition in sorted(now - before)])


# Topics


NewTopicId = Callable[[], Uuid]
"""Draws an id, for topics that older brokers made without one."""


def _learn_topics(
    state: ControllerState, topics: Iterable[str], new_topic_id: NewTopicId
) -> Steps[list[TopicPartition]]:
    """Read the assignments of topics, giving an id to those that have none."""
    names = list(topics)
    znodes: list[Znode | None] = yield Read([topic_path(topic) for topic in names])
    learned: list[TopicPartition] = []
    without_id: list[SetData] = []
    for topic, znode in zip(names, znodes, strict=True):
        if znode is None:
            continue
        try:
            found = decode_topic(topic, znode.data)
        except ZnodeFormatError as error:
            log.error("Topic %s is left out: %s", topic, error)
            continue
        topic_id = found.topic_id
        if topic_id is None:
            topic_id = new_topic_id()
            without_id.append(SetData(topic_path(topic), encode_topic(topic_id, found.partitions), znode.version))
        learned += _learn_topic(state, topic, TopicAssignment(topic_id, found.partitions))
    if without_id:
        yield Write(without_id)
    return learned


def _learn_topic(state: ControllerState, topic: str, found: TopicAssignment) -> list[TopicPartition]:
    if found.topic_id is not None:
        state.topic_ids[topic] = found.topic_id
    state.topics[topic] = {}
    for index, assignment in found.partitions.items():
        state.set_assignment(TopicPartition(topic, index), assignment)
    return [TopicPartition(topic, index) for index in found.partitions]


def topics_changed(state: ControllerState, batch: RequestBatch, new_topic_id: NewTopicId) -> Steps[list[str]]:
    """Topics came or went; returns the new ones."""
    current: list[str] = yield Children(BROKER_TOPICS)
    for topic in state.topics.keys() - set(current):
        state.remove_topic(topic)
    new = sorted(set(current) - state.topics.keys())
    if new:
        learned = yield from _learn_topics(state, new, new_topic_id)
        yield from _partitions_came(state, batch, learned)
    return new


def topics_created(
    state: ControllerState, batch: RequestBatch, topics: Mapping[str, TopicAssignment]
) -> Steps[list[str]]:
    """Topics that this broker itself just wrote: as `topics_changed`, without reading them back."""
    learned: list[TopicPartition] = []
    new = [topic for topic in topics if topic not in state.topics]
    for topic in new:
        learned += _learn_topic(state, topic, topics[topic])
    yield from _partitions_came(state, batch, learned)
    return new


def partitions_changed(state: ControllerState, batch: RequestBatch, topic: str) -> Steps[None]:
    """A topic's assignment was rewritten: take its new partitions, unless it is being deleted."""
    if topic not in state.topics:
        return
    znodes: list[Znode | None] = yield Read([topic_path(topic)])
    if znodes[0] is None:
        return
    try:
        found = decode_topic(topic, znodes[0].data)
    except ZnodeFormatError as error:
        log.error("The change of topic %s is left out: %s", topic, error)
        return
    new = {index: a for index, a in found.partitions.items() if index not in state.topics[topic]}
    if not new:
        return
    if state.is_deleting(topic):
        log.warning("Topic %s gets no more partitions: it is being deleted", topic)
        known = encode_topic(state.topic_ids.get(topic), state.topics[topic])
        yield Write([SetData(topic_path(topic), known, znodes[0].version)])
        return
    for index, assignment in new.items():
        state.set_assignment(TopicPartition(topic, index), assignment)
    yield from _partitions_came(state, batch, [TopicPartition(topic, index) for index in new])


def _partitions_came(state: ControllerState, batch: RequestBatch, partitions: Sequence[TopicPartition]) -> Steps[None]:
    if not partitions:
        return
    move_partitions(state, partitions, Partition.NEW)
    yield from move_replicas(state, batch, state.replicas_of(partitions), Replica.NEW)
    yield from bring_online(state, batch, partitions, offline_election)
    yield from move_replicas(state, batch, state.replicas_of(partitions), Replica.ONLINE)
    yield Send(batch.take())


def delete_topics(state: ControllerState, batch: RequestBatch) -> Steps[None]:
    """Carry out the orders in ``/admin/delete_topics``, or strike them when deletion is disabled."""
    orders: list[str] = yield Children(ADMIN_DELETE_TOPICS)
    known = [topic for topic in orders if topic in state.topics]
    struck = [topic for topic in orders if topic not in state.topics or not state.delete_topic_enabled]
    if struck:
        log.warning("Topics that do not exist or may not be deleted: %s", ", ".join(sorted(struck)))
        yield Write([Delete(delete_topic_path(topic)) for topic in struck])
    if state.delete_topic_enabled and known:
        yield from topic_deletion.enqueue(state, batch, known)


def stop_replica_answered(
    state: ControllerState,
    batch: RequestBatch,
    broker: int,
    errors: Mapping[TopicPartition, int],
) -> Steps[None]:
    """A broker deleted replicas, or could not."""
    relevant = [
        TopicReplica(partition, broker)
        for partition in errors
        if state.replica_states.get(partition, {}).get(broker) is Replica.DELETING
    ]
    failed = [replica for replica in relevant if errors[replica.partition] != ErrorCode.NONE]
    deleted = [replica for replica in relevant if errors[replica.partition] == ErrorCode.NONE]
    if failed:
        yield from topic_deletion.fail_replicas(state, batch, failed)
    if deleted:
        yield from topic_deletion.finish_replicas(state, batch, deleted)
