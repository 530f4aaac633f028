"""In-sync sets change: leaders ask for it (KIP-497), or, older ones, write the znode themselves and leave a notification."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import ISR_CHANGES, LeaderAndIsr, ZnodeFormatError, decode_partitions
from barnabas.broker.controller import reassignment
from barnabas.broker.controller.context import ControllerState
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Children, Delete, Read, Send, Steps, Write, Znode
from barnabas.broker.controller.transitions import read_leadership, update_leadership
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["IsrChange", "alter_isr", "isr_changed"]

log = logging.getLogger(__name__)

_UNKNOWN_EPOCH = -1


class IsrChange(NamedTuple):
    """What a leader asks for in AlterPartition."""

    partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: int
    partition_epoch: int
    broker_epochs: tuple[int, ...] = ()
    """Of the members, in their order (KIP-903): under which registration each fetched; -1, and none at all: unknown."""


def alter_isr(
    state: ControllerState, batch: RequestBatch, broker: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> Steps[dict[TopicPartition, LeaderAndIsr | ErrorCode]]:
    """Leaders change their ISRs (KIP-497). Raises `KafkaError` STALE_BROKER_EPOCH for the whole request."""
    info = state.brokers.get(broker)
    if info is None or info.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    answers: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
    proposals: dict[TopicPartition, LeaderAndIsr] = {}
    for change in changes:
        answer = _judge_isr(state, broker, change)
        if answer is None:
            proposals[change.partition] = LeaderAndIsr(
                broker, change.leader_epoch, change.isr, change.recovery_state, change.partition_epoch
            )
        else:
            answers[change.partition] = answer
    done, changed_meanwhile = yield from update_leadership(state, proposals)
    # A write that is repeated after a lost connection finds its own version: the change is done, and nobody else would
    # tell the leader, who waits for an answer.
    yield from read_leadership(state, changed_meanwhile)
    for partition, proposal in proposals.items():
        found = state.leadership[partition].leader_and_isr if partition in state.leadership else None
        if partition in done or found == proposal._replace(version=proposal.version + 1):
            answers[partition] = state.leadership[partition].leader_and_isr
        elif partition in changed_meanwhile:
            answers[partition] = ErrorCode.INVALID_UPDATE_VERSION
        else:
            answers[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    batch.add_update_metadata([change.partition for change in changes if change.partition in state.leadership])
    yield Send(batch.take())
    return answers


def _judge_isr(state: ControllerState, broker: int, change: IsrChange) -> LeaderAndIsr | ErrorCode | None:
    """None to write the change; otherwise the answer: an error, or the state that is as wanted already."""
    known = state.leadership.get(change.partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    current = known.leader_and_isr
    if change.partition_epoch > current.version or change.leader_epoch > current.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows more than we: another controller rules
    if change.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if (broker, change.isr, change.recovery_state) == (current.leader, current.isr, current.recovery_state):
        return current
    if change.partition_epoch < current.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if broker != current.leader:
        return ErrorCode.INVALID_REQUEST
    if broker not in change.isr or len(set(change.isr)) != len(change.isr):
        return ErrorCode.INVALID_REQUEST  # a partition without its leader, or without anyone, could never be led again
    recovering = change.recovery_state != 0
    if recovering and (len(change.isr) > 1 or current.recovery_state == 0):
        return ErrorCode.INVALID_REQUEST
    if any(not state.is_live(member) for member in change.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    # One that was started anew since it fetched may have lost what it had then.
    for member, epoch in zip(change.isr, change.broker_epochs, strict=False):
        if member not in current.isr and epoch not in (_UNKNOWN_EPOCH, state.brokers[member].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return None


def isr_changed(state: ControllerState, batch: RequestBatch) -> Steps[None]:
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
                log.error("%s", error)
    known = sorted(partition for partition in partitions if partition in state.leadership)
    if known:
        yield from read_leadership(state, known)
        batch.add_update_metadata(known)
        yield Send(batch.take())
        yield from reassignment.complete(state, batch)
    yield Write([Delete(path) for path in paths])
