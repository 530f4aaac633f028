"""Partitions move to other replicas (KIP-455): asked for, carried on after any crash, cancelled, replaced by another.

The topic's znode holds the whole order: all replicas, those that come (``adding``) and those that go (``removing``); so
the next controller finds it there and goes on. For a move from {1,2,3} to {4,5,6}:

    replicas        adding   removing  leader  in sync
    1,2,3                              1       1,2,3
    4,5,6,1,2,3     4,5,6    1,2,3     1       1,2,3         begun: the order is written
    4,5,6,1,2,3     4,5,6    1,2,3     1       1,2,3,4,5,6   the leader took the new replicas in, one by one
    4,5,6,1,2,3     4,5,6    1,2,3     4       1,2,3,4,5,6   ended: one that stays leads ...
    4,5,6,1,2,3     4,5,6    1,2,3     4       4,5,6         ... the others are out of sync, stopped and deleted ...
    4,5,6                              4       4,5,6         ... and the order is struck, as the last write

Whoever takes part hears of it under a raised leader epoch, for brokers ignore an assignment that comes under one they
know. A move that another replaces, or that is cancelled, ends for the replicas that are no longer wanted just so:
they are deleted before the new order is written, so that no crash leaves a replica behind that no znode speaks of.

No order may lose records: one that leaves no replica in sync is refused.

Older tools write orders into ``/admin/reassign_partitions`` instead; an entry stays there until its move has ended.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import (
    REASSIGN_PARTITIONS,
    Assignment,
    LeaderAndIsr,
    ZnodeFormatError,
    decode_reassignments,
    decode_topic,
    encode_reassignments,
    encode_topic,
    topic_path,
)
from barnabas.broker.controller import topic_deletion
from barnabas.broker.controller.context import ControllerState, Partition, Replica, TopicReplica
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Delete, Read, Send, SetData, Steps, Write, WriteResult, Written, Znode
from barnabas.broker.controller.transitions import (
    bring_online,
    elect,
    epoch_only,
    move_replicas,
    offline_election,
    read_leadership,
    reassignment_election,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["alter_reassignments", "complete", "resume", "resume_on_brokers", "take_orders", "under_way"]

log = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas wanted; None to cancel."""

Answers = dict[TopicPartition, KafkaError | None]

_MAX_ROUNDS = 10  # of read and conditional write, when someone else writes the same znode
_MOST_NAMED = 20


# Asked for


def alter_reassignments(state: ControllerState, batch: RequestBatch, targets: Targets) -> Steps[Answers]:
    """Begin, replace or cancel moves; each partition's error, or None where its move began (or ended at once)."""
    answers: Answers = {}
    wanted: dict[TopicPartition, Assignment] = {}
    for partition, target in targets.items():
        try:
            wanted[partition] = _plan(state, partition, target, must_live=True)
        except KafkaError as error:
            answers[partition] = error
    # The latest order counts, wherever it came from.
    yield from _strike_orders(lambda partition, _: partition in wanted)
    answers.update((yield from _begin(state, batch, wanted)))
    return answers


def under_way(
    state: ControllerState, partitions: Iterable[TopicPartition] | None
) -> Steps[dict[TopicPartition, Assignment]]:
    """Those of the partitions (None: of all) whose replicas are being moved."""
    yield from ()
    moving = state.reassigning if partitions is None else state.reassigning.intersection(partitions)
    return {partition: state.assignment(partition) for partition in sorted(moving)}


def take_orders(state: ControllerState, batch: RequestBatch) -> Steps[set[TopicPartition]]:
    """Begin what ``/admin/reassign_partitions`` asks for and was not begun before; returns those partitions.

    What cannot be is struck from the order.
    """
    znodes: list[Znode | None] = yield Read([REASSIGN_PARTITIONS])
    if znodes[0] is None:
        return set()
    try:
        targets = decode_reassignments(REASSIGN_PARTITIONS, znodes[0].data)
    except ZnodeFormatError as error:
        log.error("The order is struck: %s", error)
        yield Write([Delete(REASSIGN_PARTITIONS, znodes[0].version)])
        return set()
    refused: Answers = {}
    wanted: dict[TopicPartition, Assignment] = {}
    for partition, target in targets.items():
        try:
            planned = _plan(state, partition, target, must_live=False)
        except KafkaError as error:
            refused[partition] = error
        else:
            if partition not in state.reassigning or planned != state.assignment(partition):
                wanted[partition] = planned
    refused.update((yield from _begin(state, batch, wanted)))
    for partition, refusal in refused.items():
        if refusal is not None:
            log.warning("Partition %s is not reassigned: %s", partition, refusal)
    yield from _strike_orders(lambda partition, _: refused.get(partition) is not None)
    return {partition for partition in wanted if refused[partition] is None}


def _plan(
    state: ControllerState, partition: TopicPartition, target: Sequence[int] | None, *, must_live: bool
) -> Assignment:
    """The assignment while the move is under way.

    Raises `KafkaError`: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
    """
    current = state.assignment(partition)
    if target is None:
        if not current.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return current.reassigned(current.origin)
    planned = current.reassigned(target)
    why = None
    if not target:
        why = "The list of replicas is empty."
    elif len(set(target)) != len(target):
        why = f"A replica is named twice: {_some(target)}"
    elif min(target) < 0:
        why = f"Broker ids are not negative: {_some(target)}"
    elif must_live and (away := [broker for broker in planned.adding if not state.is_live(broker)]):
        why = f"Brokers that are to get a replica are not alive: {_some(away)}; those alive: {state.broker_ids()}"
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return planned


def _some(brokers: Sequence[int]) -> str:
    """The first of them as text: clients take no message of more than 32,767 bytes."""
    return ", ".join(map(str, brokers[:_MOST_NAMED])) + (", ..." if len(brokers) > _MOST_NAMED else "")


def _begin(state: ControllerState, batch: RequestBatch, wanted: Mapping[TopicPartition, Assignment]) -> Steps[Answers]:
    answers: Answers = {}
    there = [partition for partition in wanted if state.assignment(partition).replicas]
    yield from read_leadership(state, there)
    accepted: dict[TopicPartition, Assignment] = {}
    for partition, planned in wanted.items():
        if partition not in there or state.is_deleting(partition.topic):
            answers[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
        elif not _keeps_records(state, partition, planned):
            answers[partition] = KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "None of the replicas that would be left is in sync."
            )
        else:
            accepted[partition] = planned
            log.info("Partition %s: replicas %s, adding %s, removing %s", partition, *planned)
    before = {partition: state.assignment(partition) for partition in accepted}
    for partition, planned in accepted.items():
        state.set_assignment(partition, planned)
    yield from _retire(
        state,
        batch,
        {p: [b for b in before[p].replicas if b not in planned.replicas] for p, planned in accepted.items()},
    )
    failed = yield from _write_assignments(state, [p for p, planned in accepted.items() if planned != before[p]])
    for partition in accepted:
        if partition.topic in failed:
            state.set_assignment(partition, before[partition])
            answers[partition] = failed[partition.topic]
        else:
            answers[partition] = None
    yield from resume(state, batch, [partition for partition in accepted if answers[partition] is None])
    return answers


def _keeps_records(state: ControllerState, partition: TopicPartition, planned: Assignment) -> bool:
    """Whether those replicas that are to go at once may go: another one, that stays, is in sync."""
    if set(state.assignment(partition).replicas) <= set(planned.replicas):
        return True
    known = state.leadership.get(partition)
    return known is not None and any(member in planned.replicas for member in known.leader_and_isr.isr)


# Carried on


def resume_on_brokers(state: ControllerState, batch: RequestBatch, brokers: Iterable[int]) -> Steps[None]:
    """These brokers came: go on with the moves to them."""
    came = set(brokers)
    yield from resume(state, batch, [p for p in state.reassigning if not came.isdisjoint(state.assignment(p).target)])


def resume(state: ControllerState, batch: RequestBatch, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """End those moves that can be ended, and tell everyone of the others."""
    names = sorted(partitions)
    if not names:
        return
    yield from read_leadership(state, names)
    ready = [partition for partition in names if _can_end(state, partition)]
    ended = yield from _end(state, batch, ready)
    yield from _tell(state, batch, [partition for partition in names if partition not in ended])


def complete(state: ControllerState, batch: RequestBatch) -> Steps[None]:
    """In-sync sets changed: end those moves that can be ended now."""
    ready = [partition for partition in sorted(state.reassigning) if _can_end(state, partition)]
    if ready:
        yield from read_leadership(state, ready)
        yield from _end(state, batch, [partition for partition in ready if _can_end(state, partition)])


def _can_end(state: ControllerState, partition: TopicPartition) -> bool:
    """Whether all that stay are in sync, and one of them can lead."""
    known = state.leadership.get(partition)
    if known is None:
        return False
    target, isr = state.assignment(partition).target, known.leader_and_isr.isr
    if state.assignment(partition).is_reassigning and not set(target) <= set(isr):
        return False
    return any(replica in isr and state.is_online(replica, partition) for replica in target)


def _tell(state: ControllerState, batch: RequestBatch, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Have everyone hear of the assignment under a new leader epoch, new replicas among them."""
    unborn = [partition for partition in partitions if state.partition_states.get(partition) is Partition.NEW]
    born = yield from bring_online(state, batch, unborn, offline_election)
    told = yield from elect(state, batch, [p for p in partitions if p not in unborn], epoch_only)
    new: list[TopicReplica] = []
    for partition in sorted(told | born):
        assignment = state.assignment(partition)
        batch.add_leader_and_isr(assignment.origin, partition, is_new=False)
        # Where a log dir failed, an old replica must not be made anew in another dir; one that is added may.
        batch.add_leader_and_isr(assignment.adding, partition, is_new=True)
        known = state.replica_states.setdefault(partition, {})
        new += [TopicReplica(partition, broker) for broker in assignment.adding if broker not in known]
    yield from move_replicas(state, batch, new, Replica.NEW)
    yield Send(batch.take())
    if born:
        yield from complete(state, batch)


# Ended


def _end(
    state: ControllerState, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[set[TopicPartition]]:
    """Returns those that are ended."""
    if not partitions:
        return set()
    before = {partition: state.assignment(partition) for partition in partitions}
    added = [TopicReplica(p, broker) for p, assignment in before.items() for broker in assignment.adding]
    yield from move_replicas(state, batch, added, Replica.ONLINE)
    for partition, assignment in before.items():
        state.set_assignment(partition, Assignment(assignment.target))
    ended = yield from _settle_leaders(state, batch, partitions)
    yield Send(batch.take())
    for partition in before.keys() - ended:
        state.set_assignment(partition, before[partition])
    yield from _retire(state, batch, {partition: before[partition].removing for partition in sorted(ended)})
    moved = [partition for partition in sorted(ended) if before[partition].is_reassigning]
    yield from _write_assignments(state, moved)
    yield from _strike_orders(lambda p, replicas: p in ended and tuple(replicas) == state.assignment(p).replicas)
    batch.add_update_metadata(sorted(ended))
    yield Send(batch.take())
    for partition in moved:
        log.info("Partition %s is reassigned to %s", partition, state.assignment(partition).replicas)
    topics = {partition.topic for partition in ended if state.is_deleting(partition.topic)}
    if topics:
        yield from topic_deletion.resume(state, batch, topics)
    return ended


def _settle_leaders(
    state: ControllerState, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[set[TopicPartition]]:
    """See that one of those that stay leads, under a new leader epoch; returns the partitions where it does."""
    staying: list[TopicPartition] = []
    leaving: list[TopicPartition] = []
    for partition in partitions:
        leader = state.leadership[partition].leader_and_isr.leader
        stays = leader in state.assignment(partition).replicas and state.is_online(leader, partition)
        (staying if stays else leaving).append(partition)
    settled = yield from elect(state, batch, staying, epoch_only)
    settled |= yield from bring_online(state, batch, leaving, reassignment_election)
    return settled


def _retire(
    state: ControllerState, batch: RequestBatch, removed: Mapping[TopicPartition, Sequence[int]]
) -> Steps[None]:
    """Take replicas out of the ISR, stop and delete them; they are out of the state's assignments already."""
    losing = [p for p, brokers in removed.items() if brokers and _is_led_by_one_of(state, p, brokers)]
    if losing:
        yield from bring_online(state, batch, losing, _election_among_assigned)
        yield Send(batch.take())
    replicas = [
        TopicReplica(partition, broker)
        for partition, brokers in removed.items()
        for broker in brokers
        if broker in state.replica_states.get(partition, {})
    ]
    if not replicas:
        return
    yield from move_replicas(state, batch, replicas, Replica.OFFLINE)
    yield Send(batch.take())
    # Nobody waits for the answers: a broker that is away keeps its copy, which no assignment names any more.
    for step in (Replica.DELETING, Replica.DELETED, Replica.ABSENT):
        yield from move_replicas(state, batch, replicas, step)
    yield Send(batch.take())


def _is_led_by_one_of(state: ControllerState, partition: TopicPartition, brokers: Sequence[int]) -> bool:
    known = state.leadership.get(partition)
    return known is not None and known.leader_and_isr.leader in brokers


def _election_among_assigned(
    state: ControllerState, partition: TopicPartition, current: LeaderAndIsr, unclean: bool
) -> LeaderAndIsr | None:
    """As for the end of a move, but that those leaving it again are candidates too."""
    chosen = reassignment_election(state, partition, current, unclean)
    if chosen is not None:
        return chosen
    origin = Assignment(state.assignment(partition).origin)
    for replica in origin.replicas:
        if replica in current.isr and state.is_online(replica, partition):
            return current.with_leader(replica)
    return None


# Znodes


def _write_assignments(state: ControllerState, partitions: Iterable[TopicPartition]) -> Steps[dict[str, KafkaError]]:
    """Bring the topics' znodes to what the state says of these partitions; the rest of them stays as it is.

    Returns the topics that could not be written.
    """
    indexes: dict[str, list[int]] = {}
    for partition in partitions:
        indexes.setdefault(partition.topic, []).append(partition.partition)
    failed: dict[str, KafkaError] = {}
    remaining = list(indexes)
    for _ in range(_MAX_ROUNDS):
        if not remaining:
            break
        znodes: list[Znode | None] = yield Read([topic_path(topic) for topic in remaining])
        ops: dict[str, SetData] = {}
        for topic, znode in zip(remaining, znodes, strict=True):
            try:
                if znode is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
                found = decode_topic(topic, znode.data)
            except (KafkaError, ZnodeFormatError) as error:
                log.error("The assignment of topic %s could not be written: %s", topic, error)
                failed[topic] = KafkaError(getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR), str(error))
                continue
            for index in indexes[topic]:
                found.partitions[index] = state.assignment(TopicPartition(topic, index))
            data = encode_topic(found.topic_id or state.topic_id(topic), found.partitions)
            ops[topic] = SetData(topic_path(topic), data, znode.version)
        written: list[Written] = yield Write(list(ops.values()))
        remaining = [
            topic for topic, outcome in zip(ops, written, strict=True) if outcome.result is not WriteResult.DONE
        ]
    for topic in remaining:
        failed[topic] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The assignment of {topic} could not be written.")
    return failed


def _strike_orders(struck: Callable[[TopicPartition, Sequence[int]], bool]) -> Steps[None]:
    """Take those entries from the znode with the older tools' orders, and the znode away with the last."""
    for _ in range(_MAX_ROUNDS):
        znodes: list[Znode | None] = yield Read([REASSIGN_PARTITIONS])
        if znodes[0] is None:
            return
        try:
            orders = decode_reassignments(REASSIGN_PARTITIONS, znodes[0].data)
        except ZnodeFormatError:
            return  # `take_orders` hears of it, and says so
        left = {partition: replicas for partition, replicas in orders.items() if not struck(partition, replicas)}
        if len(left) == len(orders) and orders:
            return
        version = znodes[0].version
        change = SetData(REASSIGN_PARTITIONS, encode_reassignments(left), version)
        written: list[Written] = yield Write([change if left else Delete(REASSIGN_PARTITIONS, version)])
        if written[0].result is not WriteResult.BAD_VERSION:
            return
    log.error("%s was written by others all the time; finished orders stay in it", REASSIGN_PARTITIONS)
