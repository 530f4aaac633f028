"""Moves partitions from one state to another (Kafka's `PartitionStateMachine`).

    ABSENT -> NEW -> ONLINE <-> OFFLINE -> ABSENT      NEW: assigned; ONLINE: it has a leader;
                                                       OFFLINE: its leader is gone

The legal moves are `context.PARTITION_STATE_SOURCES`; an illegal one is logged and left out, the
others are made. Requests gather in the `RequestBatch` that is passed in. Callers send it when the
whole move is done, so that a broker learns of a thousand partitions in one request.
"""

import logging
from collections.abc import Iterable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Create, Read, Send, Steps, Write, WriteResult, Written, Znode
from barnabas.broker.cluster.znodes import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ZnodeFormatError,
    config_path,
    decode_config,
    encode_partition_state,
    partition_path,
    partition_state_path,
    partitions_path,
)
from barnabas.broker.controller.context import PARTITION_STATE_SOURCES, ControllerContext, PartitionState
from barnabas.broker.controller.election_strategies import OFFLINE, ElectionStrategy
from barnabas.broker.controller.partition_batches import find_in_turns, in_batches
from barnabas.broker.controller.partition_state_store import (
    MAX_ROUNDS,
    read_states,
    states_for_attempt,
    update_leadership,
)
from barnabas.broker.controller.request_batch import RequestBatch

__all__ = ["bring_online", "elect", "move_partitions", "trigger_online"]

logger = logging.getLogger(__name__)

_REPORTED = 10
_WITHOUT_LEADER = (PartitionState.OFFLINE, PartitionState.NEW)


def move_partitions(context: ControllerContext, partitions: Iterable[TopicPartition], target: PartitionState) -> None:
    """Moves that write and send nothing: to new, offline and absent."""
    assert target is not PartitionState.ONLINE
    for topic_partition in _legal_partitions(context, partitions, target):
        if target is PartitionState.ABSENT:
            context.partition_states.pop(topic_partition, None)
        else:
            context.partition_states[topic_partition] = target


def bring_online(
    context: ControllerContext, batch: RequestBatch, partitions: Iterable[TopicPartition], election: ElectionStrategy
) -> Steps[set[TopicPartition]]:
    """Give each partition a leader: the first one to new partitions, an elected one to the others.

    Returns the partitions that got one.
    """
    legal = _legal_partitions(context, partitions, PartitionState.ONLINE)
    new = [
        topic_partition
        for topic_partition in legal
        if context.partition_states.get(topic_partition) is PartitionState.NEW
    ]
    known = [
        topic_partition
        for topic_partition in legal
        if context.partition_states.get(topic_partition) is not PartitionState.NEW
    ]
    online: set[TopicPartition] = set()
    if new:
        online |= yield from _initialize(context, batch, new)
    if known:
        online |= yield from elect(context, batch, known, election)
    for topic_partition in online:
        context.partition_states[topic_partition] = PartitionState.ONLINE
    return online


def trigger_online(context: ControllerContext, batch: RequestBatch) -> Steps[set[TopicPartition]]:
    """Try to give a leader to every new and offline partition, those of topics being deleted aside.

    Brokers are informed."""
    waiting = yield from find_in_turns(
        list(context.partition_states.items()),
        lambda some: [p for p, state in some if state in _WITHOUT_LEADER and not context.is_deleting(p.topic)],
    )
    online: set[TopicPartition] = set()
    for partitions in in_batches(waiting):
        online |= yield from bring_online(context, batch, partitions, OFFLINE)
        yield Send(batch.take())
    return online


def _legal_partitions(
    context: ControllerContext, partitions: Iterable[TopicPartition], target: PartitionState
) -> list[TopicPartition]:
    sources = PARTITION_STATE_SOURCES[target]
    legal = []
    for topic_partition in partitions:
        current = context.partition_states.get(topic_partition, PartitionState.ABSENT)
        if current in sources:
            legal.append(topic_partition)
        else:
            logger.error("Partition %s cannot become %s: it is %s", topic_partition, target.value, current.value)
    return legal


def _initialize(
    context: ControllerContext, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[set[TopicPartition]]:
    """The first leadership of new partitions: all live replicas are in sync, the
    first of them leads."""
    first: dict[TopicPartition, LeaderAndIsr] = {}
    nowhere: list[TopicPartition] = []
    for topic_partition in partitions:
        replicas = context.assignment(topic_partition).replicas
        live = [replica for replica in replicas if context.is_online(replica, topic_partition)]
        if live:
            first[topic_partition] = LeaderAndIsr(live[0], 0, tuple(live))
        else:
            nowhere.append(topic_partition)
    if nowhere:  # one line: a client may ask for thousands of them
        logger.error("Partition %s gets no leader: none of its replicas %s is on a live broker (and %d more partitions)",
                     nowhere[0], context.assignment(nowhere[0]).replicas, len(nowhere) - 1)  # fmt: skip
    if not first:
        return set()
    # A topic that has led partitions has their parent too; to create it again would
    # only make the batch fail.
    topics = dict.fromkeys(p.topic for p in first)
    grown = {t for t in topics if any((t, index) in context.leadership for index in context.topics[t])}
    parents_of = [topic for topic in topics if topic not in grown]
    ops: list[Create] = [Create(partitions_path(topic)) for topic in parents_of]
    parents = len(ops)
    for topic_partition in first:
        ops.append(Create(partition_path(topic_partition)))
        ops.append(
            Create(partition_state_path(topic_partition), encode_partition_state(first[topic_partition], context.epoch))
        )
    written: list[Written] = yield Write(ops)
    taken = {p: None for p, w in zip(first, written[parents + 1 :: 2], strict=True) if w.result is WriteResult.EXISTS}
    # A state that is there already was written by this controller before a lost
    # connection, or by its predecessor.
    for topic_partition, known in (yield from read_states(taken)).items():
        if known.controller_epoch <= context.epoch:
            first[topic_partition] = known.leader_and_isr
        else:
            taken[topic_partition] = None
    online = set()
    for topic_partition, outcome in zip(first, written[parents + 1 :: 2], strict=True):
        if outcome.result is not WriteResult.DONE and topic_partition not in taken:
            logger.error("The state of partition %s could not be written: %s", topic_partition, outcome.result.value)
            continue
        context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(first[topic_partition], context.epoch)
        batch.add_leader_and_isr(first[topic_partition].isr, topic_partition, is_new=True)
        online.add(topic_partition)
    return online


def elect(
    context: ControllerContext, batch: RequestBatch, partitions: Iterable[TopicPartition], election: ElectionStrategy
) -> Steps[set[TopicPartition]]:
    """Elect a leader for each partition and notify its replicas.

    Returns the partitions that got one."""
    elected: set[TopicPartition] = set()
    leaderless: list[TopicPartition] = []
    remaining = list(partitions)
    for attempt in range(MAX_ROUNDS):
        if not remaining:
            break
        read = yield from states_for_attempt(context, remaining, attempt)
        unclean = (yield from _unclean_topics(context, read)) if election.obeys_unclean_setting else set()
        proposals = {}
        to_read: list[TopicPartition] = []
        for topic_partition in remaining:
            known = read.get(topic_partition)
            if known is None:
                logger.error("Partition %s has no state to elect a leader from", topic_partition)
            elif known.controller_epoch > context.epoch:
                logger.error("Partition %s was written by the later controller epoch %d; no election in epoch %d",
                          topic_partition, known.controller_epoch, context.epoch)  # fmt: skip
            else:
                proposal = election.choose(
                    context, topic_partition, known.leader_and_isr, topic_partition.topic in unclean
                )
                # The state that this controller knows may be old: read it before a
                # partition is given up.
                if proposal is None and not attempt:
                    to_read.append(topic_partition)
                elif proposal is None:
                    context.leadership[topic_partition] = known
                    leaderless.append(topic_partition)
                else:
                    proposals[topic_partition] = proposal
        done, remaining = yield from update_leadership(context, proposals)
        remaining += to_read
        for topic_partition in done:
            batch.add_leader_and_isr(election.notified(context, topic_partition), topic_partition, is_new=False)
        elected |= done
    _report_leaderless(context, leaderless)
    for topic_partition in remaining:
        logger.error(
            "Partition %s gets no leader: its state changed during each of %d attempts", topic_partition, MAX_ROUNDS
        )
    return elected


def _report_leaderless(context: ControllerContext, partitions: Sequence[TopicPartition]) -> None:
    """In one line: a broker that went away may leave thousands."""
    if partitions:
        logger.warning(
            "%d partitions have no replica in sync on a live broker (%s): %s%s",
            len(partitions),
            ", ".join(map(str, context.broker_ids())),
            ", ".join(map(str, partitions[:_REPORTED])),
            " ..." if len(partitions) > _REPORTED else "",
        )


def _unclean_topics(
    context: ControllerContext, states: dict[TopicPartition, LeaderIsrAndControllerEpoch]
) -> Steps[set[str]]:
    """The topics of partitions without a live replica in sync where one out of sync may lead."""
    topics = sorted(
        {p.topic for p, known in states.items() if not any(context.is_online(b, p) for b in known.leader_and_isr.isr)}
    )
    if not topics:
        return set()
    unclean = set()
    configs: list[Znode | None] = yield Read([config_path("topics", topic) for topic in topics])
    for topic, znode in zip(topics, configs, strict=True):
        try:
            texts = decode_config(config_path("topics", topic), znode.data if znode else None)
        except ZnodeFormatError as error:
            logger.error("No unclean election in topic %s: %s", topic, error)
            continue
        text = texts.get("unclean.leader.election.enable")
        if context.unclean_default if text is None else text.strip().lower() == "true":
            unclean.add(topic)
    return unclean
