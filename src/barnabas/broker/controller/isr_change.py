"""In-sync sets change: leaders send AlterPartition (KIP-497), or, older ones, write the znode
and leave a notification.

Kafka's `processAlterPartition` and `processIsrChangeNotification`.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Children, Delete, Read, Send, Steps, Write, Znode
from barnabas.broker.cluster.znodes import ISR_CHANGES, LeaderAndIsr, ZnodeFormatError, decode_partitions
from barnabas.broker.controller import reassignment
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.partition_state_store import read_leadership, update_leadership
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["IsrChange", "process_alter_partition", "process_isr_change_notification"]

logger = logging.getLogger(__name__)

_UNKNOWN_EPOCH = -1


class IsrChange(NamedTuple):
    """The change of one partition that a leader requests in AlterPartition."""

    topic_partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: int
    partition_epoch: int
    broker_epochs: tuple[int, ...] = ()
    """The broker epoch under which each member fetched, in the order of isr (KIP-903); -1 or
    an empty tuple: unknown."""


def process_alter_partition(
    context: ControllerContext, batch: RequestBatch, broker: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> Steps[dict[TopicPartition, LeaderAndIsr | ErrorCode]]:
    """Leaders change their ISRs (KIP-497).

    Raises `KafkaError` STALE_BROKER_EPOCH for the whole request."""
    info = context.brokers.get(broker)
    if info is None or info.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    answers: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
    proposals: dict[TopicPartition, LeaderAndIsr] = {}
    for change in changes:
        answer = _validate_isr_change(context, broker, change)
        if answer is None:
            proposals[change.topic_partition] = LeaderAndIsr(
                broker, change.leader_epoch, change.isr, change.recovery_state, change.partition_epoch
            )
        else:
            answers[change.topic_partition] = answer
    done, changed_meanwhile = yield from update_leadership(context, proposals)
    # A write that is repeated after a lost connection finds its own version: the change is done,
    # and the leader waits for an answer that only this controller can give.
    yield from read_leadership(context, changed_meanwhile)
    for topic_partition, proposal in proposals.items():
        found = context.leadership[topic_partition].leader_and_isr if topic_partition in context.leadership else None
        if topic_partition in done or found == proposal._replace(version=proposal.version + 1):
            answers[topic_partition] = context.leadership[topic_partition].leader_and_isr
        elif topic_partition in changed_meanwhile:
            answers[topic_partition] = ErrorCode.INVALID_UPDATE_VERSION
        else:
            answers[topic_partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    batch.add_update_metadata(
        [change.topic_partition for change in changes if change.topic_partition in context.leadership]
    )
    yield Send(batch.take())
    return answers


def _validate_isr_change(context: ControllerContext, broker: int, change: IsrChange) -> LeaderAndIsr | ErrorCode | None:
    """None if the change is to be written.

    Otherwise the response: an error, or the state if it is already as requested."""
    known = context.leadership.get(change.topic_partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    current = known.leader_and_isr
    if change.partition_epoch > current.version or change.leader_epoch > current.leader_epoch:
        # The leader has a newer state, so another controller is active.
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if (broker, change.isr, change.recovery_state) == (current.leader, current.isr, current.recovery_state):
        return current
    if change.partition_epoch < current.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if broker != current.leader:
        return ErrorCode.INVALID_REQUEST
    if broker not in change.isr or len(set(change.isr)) != len(change.isr):
        return (
            ErrorCode.INVALID_REQUEST
        )  # with an ISR that lacks the leader, or is empty, the partition could never be led again
    recovering = change.recovery_state != 0
    if recovering and (len(change.isr) > 1 or current.recovery_state == 0):
        return ErrorCode.INVALID_REQUEST
    if any(not context.is_live(member) for member in change.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    # A replica that was restarted since it fetched may have lost what it had then.
    for member, epoch in zip(change.isr, change.broker_epochs, strict=False):
        if member not in current.isr and epoch not in (_UNKNOWN_EPOCH, context.brokers[member].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return None


def process_isr_change_notification(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """Leaders of older brokers wrote ISRs themselves and left notifications."""
    names: list[str] = yield Children(ISR_CHANGES)
    paths = [f"{ISR_CHANGES}/{name}" for name in names]
    znodes: list[Znode | None] = yield Read(paths)
    partitions: set[TopicPartition] = set()
    for path, znode in zip(paths, znodes, strict=True):
        if znode is not None:
            try:
                partitions.update(decode_partitions(path, znode.data))
            except ZnodeFormatError as error:
                logger.error("%s", error)
    known = sorted(topic_partition for topic_partition in partitions if topic_partition in context.leadership)
    if known:
        yield from read_leadership(context, known)
        batch.add_update_metadata(known)
        yield Send(batch.take())
        yield from reassignment.maybe_complete(context, batch)
    yield Write([Delete(path) for path in paths])
