"""Partitions move to other replicas (KIP-455): started, resumed after any crash, cancelled,
replaced by another move.

Kafka's `onPartitionReassignment`, `processApiPartitionReassignment`,
`processZkPartitionReassignment` and `maybeCompleteReassignment`. The topic's znode holds the
whole reassignment: all replicas, those that are added (``adding``) and those that are removed
(``removing``); the next controller finds it there and continues. For a move from {1,2,3} to
{4,5,6}:

    replicas        adding   removing  leader  in sync
    1,2,3                              1       1,2,3
    4,5,6,1,2,3     4,5,6    1,2,3     1       1,2,3         begun: the reassignment is written
    4,5,6,1,2,3     4,5,6    1,2,3     1       1,2,3,4,5,6   the leader took the new
                                                             replicas in, one by one
    4,5,6,1,2,3     4,5,6    1,2,3     4       1,2,3,4,5,6   ended: one that stays leads ...
    4,5,6,1,2,3     4,5,6    1,2,3     4       4,5,6         ... the others are out of
                                                             sync, stopped and deleted ...
    4,5,6                              4       4,5,6         ... and the reassignment is
                                                             removed, as the last write

Brokers get each new assignment under a raised leader epoch, because they ignore one that comes
under an epoch they know. When a move is cancelled or replaced by another, the replicas that are no
longer wanted end in the same way: they are deleted before the new reassignment is written, so that
no crash leaves a replica behind that no znode names.

No reassignment may lose records: one that leaves no replica in sync is refused.

Older tools write reassignments into ``/admin/reassign_partitions`` instead; an entry stays there
until its move has ended.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.base.excerpts import Tally
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import (
    Delete,
    Read,
    Send,
    SetData,
    Steps,
    Write,
    WriteResult,
    Written,
    Znode,
)
from barnabas.broker.cluster.znodes import (
    MAX_ASSIGNMENT_BYTES,
    REASSIGN_PARTITIONS,
    ReplicaAssignment,
    ZnodeFormatError,
    decode_reassignments,
    decode_topic_in_slices,
    encode_reassignments,
    encode_topic,
    topic_path,
)
from barnabas.broker.controller import topic_deletion
from barnabas.broker.controller.context import ControllerContext, PartitionAndReplica, PartitionState, ReplicaState
from barnabas.broker.controller.election_strategies import LEADER_EPOCH_ONLY, OFFLINE, REASSIGNMENT, RETIREMENT
from barnabas.broker.controller.partition_batches import find_in_turns, in_batches
from barnabas.broker.controller.partition_state_machine import bring_online, elect
from barnabas.broker.controller.partition_state_store import MAX_ROUNDS, read_leadership
from barnabas.broker.controller.replica_state_machine import move_replicas
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "maybe_complete",
    "process_api_reassignment",
    "process_list_reassignments",
    "process_znode_reassignment",
    "resume_on_brokers",
    "resume_reassignments",
]

logger = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas wanted; None to cancel."""

Answers = dict[TopicPartition, KafkaError | None]

_MOST_NAMED = 20


# Asked for


def process_api_reassignment(context: ControllerContext, batch: RequestBatch, targets: Targets) -> Steps[Answers]:
    """Begin, replace or cancel moves.

    Each partition's error, or None where its move began (or ended at once)."""
    answers: Answers = {}
    wanted: dict[TopicPartition, ReplicaAssignment] = {}
    for topic_partition, target in targets.items():
        yield None
        try:
            wanted[topic_partition] = _plan(context, topic_partition, target, must_live=True)
        except KafkaError as error:
            answers[topic_partition] = error.with_traceback(None)
    # The latest reassignment counts, wherever it came from.
    yield from _remove_entries(lambda topic_partition, _: topic_partition in wanted)
    answers.update((yield from _begin(context, batch, wanted)))
    return answers


def process_list_reassignments(
    context: ControllerContext, partitions: Iterable[TopicPartition] | None
) -> Steps[dict[TopicPartition, ReplicaAssignment]]:
    """The partitions, among the given ones (None: all), whose replicas are being moved."""
    yield from ()
    moving = context.reassigning if partitions is None else context.reassigning.intersection(partitions)
    return {topic_partition: context.assignment(topic_partition) for topic_partition in sorted(moving)}


def process_znode_reassignment(context: ControllerContext, batch: RequestBatch) -> Steps[set[TopicPartition]]:
    """Begin what ``/admin/reassign_partitions`` asks for and was not begun before.

    Returns those partitions. What cannot be done is removed from the znode.
    """
    znodes: list[Znode | None] = yield Read([REASSIGN_PARTITIONS], watch_absent=True)
    if znodes[0] is None:
        return set()
    try:
        targets = decode_reassignments(REASSIGN_PARTITIONS, znodes[0].data)
    except ZnodeFormatError as error:
        logger.error("%s is removed: %s", REASSIGN_PARTITIONS, error)
        yield Write([Delete(REASSIGN_PARTITIONS, znodes[0].version)])
        return set()
    refused: Answers = {}
    wanted: dict[TopicPartition, ReplicaAssignment] = {}
    for topic_partition, target in targets.items():
        try:
            planned = _plan(context, topic_partition, target, must_live=False)
        except KafkaError as error:
            refused[topic_partition] = error
        else:
            if topic_partition not in context.reassigning or planned != context.assignment(topic_partition):
                wanted[topic_partition] = planned
    refused.update((yield from _begin(context, batch, wanted)))
    not_begun: Tally[ErrorCode] = Tally()
    for topic_partition, refusal in refused.items():
        if refusal is not None:
            not_begun.add(refusal.code, topic_partition, refusal)
    for _, names, why in not_begun.lines():
        logger.warning("Partition %s is not reassigned: %s", names, why)
    yield from _remove_entries(lambda topic_partition, _: refused.get(topic_partition) is not None)
    return {topic_partition for topic_partition in wanted if refused[topic_partition] is None}


def _plan(
    context: ControllerContext, topic_partition: TopicPartition, target: Sequence[int] | None, *, must_live: bool
) -> ReplicaAssignment:
    """The assignment while the move is under way.

    Raises `KafkaError`: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
    """
    current = context.assignment(topic_partition)
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
    elif must_live and (away := [broker for broker in planned.adding if not context.is_live(broker)]):
        why = f"Brokers that are to get a replica are not alive: {_some(away)}; those alive: {context.broker_ids()}"
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return planned


def _some(brokers: Sequence[int]) -> str:
    """The first of them as text: clients take no message of more than 32,767 bytes."""
    return ", ".join(map(str, brokers[:_MOST_NAMED])) + (", ..." if len(brokers) > _MOST_NAMED else "")


def _begin(
    context: ControllerContext, batch: RequestBatch, wanted: Mapping[TopicPartition, ReplicaAssignment]
) -> Steps[Answers]:
    answers: Answers = {}
    there = {topic_partition for topic_partition in wanted if context.assignment(topic_partition).replicas}
    for some in in_batches([topic_partition for topic_partition in wanted if topic_partition in there]):
        yield from read_leadership(context, some)
    accepted: dict[TopicPartition, ReplicaAssignment] = {}
    for topic_partition, planned in wanted.items():
        yield None
        if topic_partition not in there or context.is_deleting(topic_partition.topic):
            answers[topic_partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
        elif not _keeps_records(context, topic_partition, planned):
            answers[topic_partition] = KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "None of the replicas that would be left is in sync."
            )
        else:
            accepted[topic_partition] = planned
            logger.info("Partition %s: replicas %s, adding %s, removing %s", topic_partition, *planned)
    before = {topic_partition: context.assignment(topic_partition) for topic_partition in accepted}
    for topic_partition, planned in accepted.items():
        context.set_assignment(topic_partition, planned)
    yield from _retire(
        context,
        batch,
        {p: [b for b in before[p].replicas if b not in planned.replicas] for p, planned in accepted.items()},
    )
    failed = yield from _write_assignments(context, [p for p, planned in accepted.items() if planned != before[p]])
    for topic_partition in accepted:
        if topic_partition.topic in failed:
            context.set_assignment(topic_partition, before[topic_partition])
            answers[topic_partition] = failed[topic_partition.topic]
        else:
            answers[topic_partition] = None
    yield from resume_reassignments(
        context, batch, [topic_partition for topic_partition in accepted if answers[topic_partition] is None]
    )
    return answers


def _keeps_records(context: ControllerContext, topic_partition: TopicPartition, planned: ReplicaAssignment) -> bool:
    """Whether the replicas that leave at once may leave: another one, that stays, is in sync."""
    if set(context.assignment(topic_partition).replicas) <= set(planned.replicas):
        return True
    known = context.leadership.get(topic_partition)
    return known is not None and any(member in planned.replicas for member in known.leader_and_isr.isr)


# Carried on


def resume_on_brokers(context: ControllerContext, batch: RequestBatch, brokers: Iterable[int]) -> Steps[None]:
    """Continue the moves to brokers that came back."""
    came = set(brokers)
    yield from resume_reassignments(
        context, batch, [p for p in sorted(context.reassigning) if not came.isdisjoint(context.assignment(p).target)]
    )


def resume_reassignments(
    context: ControllerContext, batch: RequestBatch, partitions: Iterable[TopicPartition]
) -> Steps[None]:
    """End those moves that can be ended, and send the assignments of the others."""
    names = sorted(partitions)
    if not names:
        return
    for some in in_batches(names):
        yield from read_leadership(context, some)
    ended = yield from _end(context, batch, (yield from _those_that_can_end(context, names)))
    for some in in_batches([topic_partition for topic_partition in names if topic_partition not in ended]):
        yield from _send_assignments(context, batch, some)


def maybe_complete(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """In-sync sets changed: end those moves that can be ended now."""
    ready = yield from _those_that_can_end(context, list(context.reassigning))
    if ready:
        for some in in_batches(ready):
            yield from read_leadership(context, some)
        yield from _end(context, batch, (yield from _those_that_can_end(context, ready)))


def _those_that_can_end(
    context: ControllerContext, partitions: Sequence[TopicPartition]
) -> Steps[list[TopicPartition]]:
    return sorted((yield from find_in_turns(partitions, lambda some: [p for p in some if _can_end(context, p)])))


def _can_end(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    """Whether all that stay are in sync, and one of them can lead."""
    known = context.leadership.get(topic_partition)
    if known is None:
        return False
    target, isr = context.assignment(topic_partition).target, known.leader_and_isr.isr
    if context.assignment(topic_partition).is_reassigning and not set(target) <= set(isr):
        return False
    return any(replica in isr and context.is_online(replica, topic_partition) for replica in target)


def _send_assignments(
    context: ControllerContext, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[None]:
    """Send the assignment to all its replicas, new ones too, under a new leader epoch."""
    unborn = {
        topic_partition: None
        for topic_partition in partitions
        if context.partition_states.get(topic_partition) is PartitionState.NEW
    }
    born = yield from bring_online(context, batch, unborn, OFFLINE)
    notified = yield from elect(context, batch, [p for p in partitions if p not in unborn], LEADER_EPOCH_ONLY)
    new: list[PartitionAndReplica] = []
    for topic_partition in sorted(notified | born):
        assignment = context.assignment(topic_partition)
        batch.add_leader_and_isr(assignment.origin, topic_partition, is_new=False)
        # Where a log dir failed, an old replica must not be created again in another
        # dir; one that is added may.
        batch.add_leader_and_isr(assignment.adding, topic_partition, is_new=True)
        known = context.replica_states.get(topic_partition, {})
        new += [PartitionAndReplica(topic_partition, broker) for broker in assignment.adding if broker not in known]
    yield from move_replicas(context, batch, new, ReplicaState.NEW)
    yield Send(batch.take())
    if born:
        yield from maybe_complete(context, batch)


# Ended


def _end(
    context: ControllerContext, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[set[TopicPartition]]:
    """Returns those that are ended."""
    if not partitions:
        return set()
    before = {topic_partition: context.assignment(topic_partition) for topic_partition in partitions}
    ended: set[TopicPartition] = set()
    for some in in_batches(partitions):
        ended |= yield from _settle(
            context, batch, {topic_partition: before[topic_partition] for topic_partition in some}
        )
    moved = [topic_partition for topic_partition in sorted(ended) if before[topic_partition].is_reassigning]
    yield from _write_assignments(context, moved)
    yield from _remove_entries(lambda p, replicas: p in ended and tuple(replicas) == context.assignment(p).replicas)
    for some in in_batches(sorted(ended)) if ended else [()]:
        batch.add_update_metadata(some)
        yield Send(batch.take())
    for topic_partition in moved:
        yield None
        logger.info("Partition %s is reassigned to %s", topic_partition, context.assignment(topic_partition).replicas)
    topics = {topic_partition.topic for topic_partition in ended if context.is_deleting(topic_partition.topic)}
    if topics:
        yield from topic_deletion.resume_deletions(context, batch, topics)
    return ended


def _settle(
    context: ControllerContext, batch: RequestBatch, before: Mapping[TopicPartition, ReplicaAssignment]
) -> Steps[set[TopicPartition]]:
    """Let a replica that stays lead, and the others go; returns the partitions where one does."""
    added = [PartitionAndReplica(p, broker) for p, assignment in before.items() for broker in assignment.adding]
    yield from move_replicas(context, batch, added, ReplicaState.ONLINE)
    for topic_partition, assignment in before.items():
        context.set_assignment(topic_partition, ReplicaAssignment(assignment.target))
    ended = yield from _settle_leaders(context, batch, list(before))
    yield Send(batch.take())
    for topic_partition in before.keys() - ended:
        context.set_assignment(topic_partition, before[topic_partition])
    yield from _retire(
        context, batch, {topic_partition: before[topic_partition].removing for topic_partition in sorted(ended)}
    )
    return ended


def _settle_leaders(
    context: ControllerContext, batch: RequestBatch, partitions: Sequence[TopicPartition]
) -> Steps[set[TopicPartition]]:
    """Let a replica that stays lead, under a new leader epoch.

    Returns the partitions where one does."""
    staying: list[TopicPartition] = []
    leaving: list[TopicPartition] = []
    for topic_partition in partitions:
        leader = context.leadership[topic_partition].leader_and_isr.leader
        stays = leader in context.assignment(topic_partition).replicas and context.is_online(leader, topic_partition)
        (staying if stays else leaving).append(topic_partition)
    settled = yield from elect(context, batch, staying, LEADER_EPOCH_ONLY)
    settled |= yield from bring_online(context, batch, leaving, REASSIGNMENT)
    return settled


def _retire(
    context: ControllerContext, batch: RequestBatch, removed: Mapping[TopicPartition, Sequence[int]]
) -> Steps[None]:
    """Remove replicas from the ISR, stop and delete them.

    The context's assignments lack them already."""
    losing = [p for p, brokers in removed.items() if brokers and _is_led_by_one_of(context, p, brokers)]
    if losing:
        yield from bring_online(context, batch, losing, RETIREMENT)
        yield Send(batch.take())
    replicas = [
        PartitionAndReplica(topic_partition, broker)
        for topic_partition, brokers in removed.items()
        for broker in brokers
        if broker in context.replica_states.get(topic_partition, {})
    ]
    if not replicas:
        return
    yield from move_replicas(context, batch, replicas, ReplicaState.OFFLINE)
    yield Send(batch.take())
    # The responses are not waited for: a broker that is away keeps its copy, which no
    # assignment names any more.
    for step in (ReplicaState.DELETING, ReplicaState.DELETED, ReplicaState.ABSENT):
        yield from move_replicas(context, batch, replicas, step)
    yield Send(batch.take())


def _is_led_by_one_of(context: ControllerContext, topic_partition: TopicPartition, brokers: Sequence[int]) -> bool:
    known = context.leadership.get(topic_partition)
    return known is not None and known.leader_and_isr.leader in brokers


# Znodes


def _write_assignments(
    context: ControllerContext, partitions: Iterable[TopicPartition]
) -> Steps[dict[str, KafkaError]]:
    """Write these partitions' assignments of the context into the topics' znodes.

    The rest of them stays as it is. Returns the topics that could not be written.
    """
    indexes: dict[str, list[int]] = {}
    for topic_partition in partitions:
        indexes.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    failed: dict[str, KafkaError] = {}
    remaining = list(indexes)
    for _ in range(MAX_ROUNDS):
        if not remaining:
            break
        znodes: list[Znode | None] = yield Read([topic_path(topic) for topic in remaining])
        ops: dict[str, SetData] = {}
        for topic, znode in zip(remaining, znodes, strict=True):
            try:
                if znode is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
                found = yield from decode_topic_in_slices(topic, znode.data)
            except (KafkaError, ZnodeFormatError) as error:
                logger.error("The assignment of topic %s could not be written: %s", topic, error)
                failed[topic] = KafkaError(getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR), str(error))
                continue
            for index in indexes[topic]:
                found.partitions[index] = context.assignment(TopicPartition(topic, index))
            data = encode_topic(found.topic_id or context.topic_id(topic), found.partitions)
            if len(data) > max(MAX_ASSIGNMENT_BYTES, len(znode.data or b"")):
                failed[topic] = KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"The coordination service cannot store {len(data)} bytes for the assignment of topic {topic}: move fewer "
                    f"of its partitions at once.",
                )
                continue
            ops[topic] = SetData(topic_path(topic), data, znode.version)
        written: list[Written] = yield Write(list(ops.values()))
        remaining = [
            topic for topic, outcome in zip(ops, written, strict=True) if outcome.result is not WriteResult.DONE
        ]
    for topic in remaining:
        failed[topic] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The assignment of {topic} could not be written.")
    return failed


def _remove_entries(is_done: Callable[[TopicPartition, Sequence[int]], bool]) -> Steps[None]:
    """Remove entries from the znode of the older tools, and the znode with the last of them."""
    for _ in range(MAX_ROUNDS):
        znodes: list[Znode | None] = yield Read([REASSIGN_PARTITIONS], watch_absent=True)
        if znodes[0] is None:
            return
        try:
            entries = decode_reassignments(REASSIGN_PARTITIONS, znodes[0].data)
        except ZnodeFormatError:
            return  # `process_znode_reassignment` reports it
        left = {
            topic_partition: replicas
            for topic_partition, replicas in entries.items()
            if not is_done(topic_partition, replicas)
        }
        if len(left) == len(entries) and entries:
            return
        version = znodes[0].version
        change = SetData(REASSIGN_PARTITIONS, encode_reassignments(left), version)
        written: list[Written] = yield Write([change if left else Delete(REASSIGN_PARTITIONS, version)])
        if written[0].result is not WriteResult.BAD_VERSION:
            return
    logger.error("%s was written by others all the time; finished reassignments stay in it", REASSIGN_PARTITIONS)
