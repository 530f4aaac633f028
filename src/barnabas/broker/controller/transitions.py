"""Moves partitions and replicas from state to state, with what each move writes and whom it tells.

The legal moves are the tables in `state`; an illegal one is logged and left out, the others go on. Requests gather in
the `RequestBatch` that is passed in; callers send it when the whole move is done, so that a broker hears of a thousand
partitions in one request.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import (
    NO_LEADER,
    LeaderAndIsr,
    PartitionState,
    ZnodeFormatError,
    config_path,
    decode_config,
    decode_partition_state,
    encode_partition_state,
    partition_path,
    partition_state_path,
    partitions_path,
)
from barnabas.broker.controller.context import (
    PARTITION_SOURCES,
    REPLICA_SOURCES,
    ControllerState,
    Partition,
    Replica,
    TopicReplica,
)
from barnabas.broker.controller.elections import (
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Create, Read, SetData, Steps, Write, WriteResult, Written, Znode

__all__ = [
    "Election",
    "bring_online",
    "elect",
    "epoch_only",
    "move_partitions",
    "move_replicas",
    "offline_election",
    "preferred_election",
    "read_leadership",
    "reassignment_election",
    "shutdown_election",
    "trigger_online",
    "unclean_election",
    "update_leadership",
]

log = logging.getLogger(__name__)

Election = Callable[[ControllerState, TopicPartition, LeaderAndIsr, bool], LeaderAndIsr | None]
"""``(state, partition, its leadership, unclean) -> the next leadership``, or None when nobody qualifies."""

_REPORTED = 10
_MAX_ROUNDS = 10  # of read, elect and conditional write, when a leader changes the ISR at the same time


def _live(state: ControllerState, partition: TopicPartition, replicas: Iterable[int]) -> list[int]:
    return [replica for replica in replicas if state.is_online(replica, partition)]


def offline_election(
    state: ControllerState, partition: TopicPartition, current: LeaderAndIsr, unclean: bool
) -> LeaderAndIsr | None:
    """See `elections.elect_offline`."""
    replicas = state.assignment(partition).replicas
    live = set(_live(state, partition, {*replicas, *current.isr}))
    return elect_offline(replicas, current, live, unclean=unclean)


def unclean_election(
    state: ControllerState, partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    """As `offline_election`, and where nobody in sync is left someone else, whatever the topic says."""
    return offline_election(state, partition, current, unclean=True)


def epoch_only(
    _state: ControllerState, _partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr:
    """Who leads stays; under a new leader epoch brokers take up an assignment that changed."""
    return current.with_leader(current.leader)


def preferred_election(
    state: ControllerState, partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    """See `elections.elect_preferred`."""
    replicas = state.assignment(partition).replicas
    return elect_preferred(replicas, current, _live(state, partition, replicas))


def reassignment_election(
    state: ControllerState, partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    """See `elections.elect_for_reassignment`."""
    target = state.assignment(partition).target
    return elect_for_reassignment(target, current, _live(state, partition, target))


def shutdown_election(
    state: ControllerState, partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    """See `elections.elect_for_shutdown`."""
    replicas = state.assignment(partition).replicas
    there = [replica for replica in replicas if state.is_online(replica, partition, shutting_down_too=True)]
    return elect_for_shutdown(replicas, current, there, state.shutting_down)


# Partitions


def move_partitions(state: ControllerState, partitions: Iterable[TopicPartition], target: Partition) -> None:
    """Moves that write and tell nothing: to new, offline and absent."""
    assert target is not Partition.ONLINE
    for partition in _legal_partitions(state, partitions, target):
        if target is Partition.ABSENT:
            state.partition_states.pop(partition, None)
        else:
            state.partition_states[partition] = target


def bring_online(
    state: ControllerState, batch: RequestBatch, partitions: Iterable[TopicPartition], election: Election
) -> Steps[set[TopicPartition]]:
    """Give each partition a leader: the first one to new partitions, an elected one to the others.

    Returns the partitions that got one.
    """
    legal = _legal_partitions(state, partitions, Partition.ONLINE)
    new = [partition for partition in legal if state.partition_states.get(partition) is Partition.NEW]
    known = [partition for partition in legal if state.partition_states.get(partition) is not Partition.NEW]
    online: set[TopicPartition] = set()
    if new:
        online |= yield from _initialize(state, batch, new)
    if known:
        online |= yield from elect(state, batch, known, election)
    for partition in online:
        state.partition_states[partition] = Partition.ONLINE
    return online


def trigger_online(state: ControllerState, batch: RequestBatch) -> Steps[set[TopicPartition]]:
    """Try to give a leader to every new and offline partition, those of topics being deleted aside."""
    waiting = [p for p in state.in_states(Partition.OFFLINE, Partition.NEW) if not state.is_deleting(p.topic)]
    return (yield from bring_online(state, batch, waiting, offline_election))


def _legal_partitions(
    state: ControllerState, partitions: Iterable[TopicPartition], target: Partition
) -> list[TopicPartition]:
    sources = PARTITION_SOURCES[target]
    legal = []
    for partition in partitions:
        current = state.partition_states.get(partition, Partition.ABSENT)
        if current in sources:
            legal.append(partition)
        else:
            log.error("Partition %s cannot become %s: it is %s", partition, target.value, current.value)
    return legal


def _initialize(
    state: ControllerState, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[set[TopicPartition]]:
    """The first leadership of new partitions: all live replicas are in sync, the first of them leads."""
    first: dict[TopicPartition, LeaderAndIsr] = {}
    for partition in partitions:
        live = _live(state, partition, state.assignment(partition).replicas)
        if live:
            first[partition] = LeaderAndIsr(live[0], 0, tuple(live))
        else:
            log.error("Partition %s gets no leader: none of its replicas %s is on a live broker",
                      partition, state.assignment(partition).replicas)  # fmt: skip
    if not first:
        return set()
    # A topic that has led partitions has their parent too; to create it again would only make the batch fail.
    grown = {
        p.topic for p in first if any(TopicPartition(p.topic, n) in state.leadership for n in state.topics[p.topic])
    }
    parents_of = [topic for topic in dict.fromkeys(p.topic for p in first) if topic not in grown]
    ops: list[Create] = [Create(partitions_path(topic)) for topic in parents_of]
    parents = len(ops)
    for partition in first:
        ops.append(Create(partition_path(partition)))
        ops.append(Create(partition_state_path(partition), encode_partition_state(first[partition], state.epoch)))
    written: list[Written] = yield Write(ops)
    taken = [p for p, w in zip(first, written[parents + 1 :: 2], strict=True) if w.result is WriteResult.EXISTS]
    # A state that is there already was written by this controller before a lost connection, or by its predecessor.
    for partition, known in (yield from _read_states(taken)).items():
        if known.controller_epoch <= state.epoch:
            first[partition] = known.leader_and_isr
        else:
            taken.append(partition)
    online = set()
    for partition, outcome in zip(first, written[parents + 1 :: 2], strict=True):
        if outcome.result is not WriteResult.DONE and partition not in taken:
            log.error("The state of partition %s could not be written: %s", partition, outcome.result.value)
            continue
        state.leadership[partition] = PartitionState(first[partition], state.epoch)
        batch.add_leader_and_isr(first[partition].isr, partition, is_new=True)
        online.add(partition)
    return online


def elect(
    state: ControllerState, batch: RequestBatch, partitions: Iterable[TopicPartition], election: Election
) -> Steps[set[TopicPartition]]:
    """Elect a leader for each partition, tell its replicas, and return the partitions that got one."""
    elected: set[TopicPartition] = set()
    leaderless: list[TopicPartition] = []
    remaining = list(partitions)
    for _ in range(_MAX_ROUNDS):
        if not remaining:
            break
        read = yield from _read_states(remaining)
        unclean = (yield from _unclean_topics(state, read)) if election is offline_election else set()
        proposals = {}
        for partition in remaining:
            known = read.get(partition)
            if known is None:
                log.error("Partition %s has no state to elect a leader from", partition)
            elif known.controller_epoch > state.epoch:
                log.error("Partition %s was written by the later controller epoch %d; no election in epoch %d",
                          partition, known.controller_epoch, state.epoch)  # fmt: skip
            else:
                proposal = election(state, partition, known.leader_and_isr, partition.topic in unclean)
                if proposal is None:
                    state.leadership[partition] = known
                    leaderless.append(partition)
                else:
                    proposals[partition] = proposal
        done, remaining = yield from update_leadership(state, proposals)
        for partition in done:
            batch.add_leader_and_isr(_told_of_election(state, partition, election), partition, is_new=False)
        elected |= done
    _report_leaderless(state, leaderless)
    for partition in remaining:
        log.error("Partition %s gets no leader: its state changed during each of %d attempts", partition, _MAX_ROUNDS)
    return elected


def _report_leaderless(state: ControllerState, partitions: Sequence[TopicPartition]) -> None:
    """In one line: a broker that went away may leave thousands."""
    if partitions:
        log.warning(
            "%d partitions have no replica in sync on a live broker (%s): %s%s",
            len(partitions),
            ", ".join(map(str, state.broker_ids())),
            ", ".join(map(str, partitions[:_REPORTED])),
            " ..." if len(partitions) > _REPORTED else "",
        )


def _told_of_election(state: ControllerState, partition: TopicPartition, election: Election) -> list[int]:
    replicas = state.assignment(partition).replicas
    leaving_too = election is shutdown_election
    return [r for r in replicas if state.is_online(r, partition, shutting_down_too=leaving_too)]


def _unclean_topics(state: ControllerState, states: dict[TopicPartition, PartitionState]) -> Steps[set[str]]:
    """The topics of partitions without a live replica in sync where one out of sync may lead."""
    topics = sorted({p.topic for p, known in states.items() if not _live(state, p, known.leader_and_isr.isr)})
    if not topics:
        return set()
    unclean = set()
    configs: list[Znode | None] = yield Read([config_path("topics", topic) for topic in topics])
    for topic, znode in zip(topics, configs, strict=True):
        try:
            texts = decode_config(config_path("topics", topic), znode.data if znode else None)
        except ZnodeFormatError as error:
            log.error("No unclean election in topic %s: %s", topic, error)
            continue
        text = texts.get("unclean.leader.election.enable")
        if state.unclean_default if text is None else text.strip().lower() == "true":
            unclean.add(topic)
    return unclean


def _read_states(partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, PartitionState]]:
    """The states of those partitions that have one that can be read."""
    names = list(partitions)
    if not names:
        return {}
    paths = [partition_state_path(partition) for partition in names]
    znodes: list[Znode | None] = yield Read(paths)
    states = {}
    for partition, path, znode in zip(names, paths, znodes, strict=True):
        if znode is not None:
            try:
                states[partition] = decode_partition_state(path, znode.data, znode.version)
            except ZnodeFormatError as error:
                log.error("%s", error)
    return states


def read_leadership(state: ControllerState, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Take over what the state znodes say; brokers write them too when the ISR changes."""
    state.leadership.update((yield from _read_states(partitions)))


def update_leadership(
    state: ControllerState, proposals: dict[TopicPartition, LeaderAndIsr]
) -> Steps[tuple[set[TopicPartition], list[TopicPartition]]]:
    """Write leaderships conditional on their versions; returns what was written and what must be tried again."""
    if not proposals:
        return set(), []
    written: list[Written] = yield Write(
        [
            SetData(partition_state_path(partition), encode_partition_state(proposal, state.epoch), proposal.version)
            for partition, proposal in proposals.items()
        ]
    )
    done, again = set(), []
    for (partition, proposal), outcome in zip(proposals.items(), written, strict=True):
        if outcome.result is WriteResult.DONE:
            state.leadership[partition] = PartitionState(proposal._replace(version=outcome.version), state.epoch)
            done.add(partition)
        elif outcome.result is WriteResult.BAD_VERSION:
            again.append(partition)
        else:
            log.error("The state of partition %s could not be written: %s", partition, outcome.result.value)
    return done, again


# Replicas


def move_replicas(
    state: ControllerState, batch: RequestBatch, replicas: Iterable[TopicReplica], target: Replica
) -> Steps[None]:
    """Move replicas, broker by broker."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for replica in _legal_replicas(state, replicas, target):
        by_broker.setdefault(replica.broker, []).append(replica.partition)
    for broker, partitions in by_broker.items():
        match target:
            case Replica.NEW:
                _make_new(state, batch, broker, partitions)
            case Replica.ONLINE:
                _make_online(state, batch, broker, partitions)
            case Replica.OFFLINE:
                yield from _make_offline(state, batch, broker, partitions)
            case Replica.DELETING:
                for partition in partitions:
                    batch.add_stop_replica([broker], partition, delete=True)
            case Replica.ABSENT:
                for partition in partitions:
                    state.set_assignment(partition, state.assignment(partition).without(broker))
                    state.replica_states[partition].pop(broker, None)
                continue
        if target in (Replica.DELETING, Replica.DELETED, Replica.INELIGIBLE):
            _set_replicas(state, broker, partitions, target)


def _legal_replicas(state: ControllerState, replicas: Iterable[TopicReplica], target: Replica) -> list[TopicReplica]:
    sources = REPLICA_SOURCES[target]
    legal = []
    for replica in replicas:
        current = state.replica_states.get(replica.partition, {}).get(replica.broker, Replica.ABSENT)
        if current in sources:
            legal.append(replica)
        else:
            log.error("The replica of %s on broker %d cannot become %s: it is %s",
                      replica.partition, replica.broker, target.value, current.value)  # fmt: skip
    return legal


def _set_replicas(state: ControllerState, broker: int, partitions: Iterable[TopicPartition], target: Replica) -> None:
    for partition in partitions:
        state.replica_states.setdefault(partition, {})[broker] = target


def _make_new(state: ControllerState, batch: RequestBatch, broker: int, partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        known = state.leadership.get(partition)
        if known is not None and known.leader_and_isr.leader == broker:
            log.error("The replica of %s on broker %d cannot be new: it leads", partition, broker)
            continue
        if known is not None:
            batch.add_leader_and_isr([broker], partition, is_new=True)
        _set_replicas(state, broker, [partition], Replica.NEW)


def _make_online(
    state: ControllerState, batch: RequestBatch, broker: int, partitions: Iterable[TopicPartition]
) -> None:
    for partition in partitions:
        current = state.replica_states.get(partition, {}).get(broker)
        if current is Replica.NEW:
            assignment = state.assignment(partition)
            if broker not in assignment.replicas:
                state.set_assignment(partition, assignment._replace(replicas=(*assignment.replicas, broker)))
        elif partition in state.leadership:
            batch.add_leader_and_isr([broker], partition, is_new=False)
        _set_replicas(state, broker, [partition], Replica.ONLINE)


def _make_offline(
    state: ControllerState, batch: RequestBatch, broker: int, partitions: Sequence[TopicPartition]
) -> Steps[None]:
    """Stop the replicas, take them from the ISR (never its last member), and tell the others."""
    for partition in partitions:
        batch.add_stop_replica([broker], partition, delete=False)
    leaderless = [partition for partition in partitions if partition not in state.leadership]
    removed = yield from _leave_isr(state, broker, [p for p in partitions if p in state.leadership])
    for partition in removed:
        if not state.is_deleting(partition.topic):
            others = [replica for replica in state.assignment(partition).replicas if replica != broker]
            batch.add_leader_and_isr(others, partition, is_new=False)
    if leaderless:
        batch.add_update_metadata(leaderless)
    _set_replicas(state, broker, [*removed, *leaderless], Replica.OFFLINE)


def _leave_isr(
    state: ControllerState, broker: int, partitions: Sequence[TopicPartition]
) -> Steps[list[TopicPartition]]:
    finished: list[TopicPartition] = []
    remaining = list(partitions)
    for _ in range(_MAX_ROUNDS):
        if not remaining:
            break
        read = yield from _read_states(remaining)
        proposals: dict[TopicPartition, LeaderAndIsr] = {}
        for partition in remaining:
            known = read.get(partition)
            if known is None:
                if not state.is_deleting(partition.topic):
                    log.error("Broker %d stays in the ISR of %s: it has no state", broker, partition)
                continue
            if known.controller_epoch > state.epoch:
                log.error("Broker %d stays in the ISR of %s: a later controller wrote it", broker, partition)
                continue
            current = known.leader_and_isr
            if broker not in current.isr:
                state.leadership[partition] = PartitionState(current, state.epoch)
                finished.append(partition)
                continue
            leader = NO_LEADER if current.leader == broker else current.leader
            isr = current.isr if len(current.isr) == 1 else tuple(r for r in current.isr if r != broker)
            proposals[partition] = current.with_leader(leader, isr)
        done, remaining = yield from update_leadership(state, proposals)
        finished += done
    return finished
