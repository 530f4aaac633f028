"""Leaders are elected though none is missing, or on demand: preferred ones, balanced ones, unclean ones (KIP-460)."""

import logging
from collections.abc import Iterable

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import PREFERRED_ELECTION, ZnodeFormatError, decode_partitions
from barnabas.broker.controller.context import ControllerState
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Delete, Read, Send, Steps, Write, Znode
from barnabas.broker.controller.transitions import (
    Election,
    bring_online,
    preferred_election,
    unclean_election,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["balance_leaders", "elect_leaders", "prefer_leaders"]

log = logging.getLogger(__name__)


def elect_leaders(
    state: ControllerState, batch: RequestBatch, partitions: Iterable[TopicPartition], *, unclean: bool
) -> Steps[dict[TopicPartition, int | KafkaError]]:
    """Elect the preferred replica where another leads, or with ``unclean`` any live one where nobody does.

    Each partition's new leader, or error: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (it is being deleted),
    ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    results: dict[TopicPartition, int | KafkaError] = {}
    wanted: list[TopicPartition] = []
    for partition in partitions:
        if not state.assignment(partition).replicas:
            results[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
        elif state.is_deleting(partition.topic):
            results[partition] = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
        elif not _is_needed(state, partition, unclean=unclean):
            results[partition] = KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        else:
            wanted.append(partition)
    elected = yield from _elect(state, batch, wanted, unclean_election if unclean else preferred_election)
    for partition in wanted:
        if partition in elected:
            results[partition] = state.leadership[partition].leader_and_isr.leader
        elif unclean:
            why = "None of its replicas is on a live broker."
            results[partition] = KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)
        else:
            why = "Its preferred replica is not in sync, or not on a live broker."
            results[partition] = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
    return results


def _is_needed(state: ControllerState, partition: TopicPartition, *, unclean: bool) -> bool:
    known = state.leadership.get(partition)
    if known is None:
        return True
    leader = known.leader_and_isr.leader
    if unclean:
        return not state.is_online(leader, partition, shutting_down_too=True)
    return state.assignment(partition).replicas[0] != leader


def _elect(
    state: ControllerState, batch: RequestBatch, partitions: list[TopicPartition], election: Election
) -> Steps[set[TopicPartition]]:
    elected = yield from bring_online(state, batch, partitions, election)
    yield Send(batch.take())
    return elected


def prefer_leaders(state: ControllerState, batch: RequestBatch) -> Steps[None]:
    """Someone asked for preferred leaders through ``/admin/preferred_replica_election``."""
    znodes: list[Znode | None] = yield Read([PREFERRED_ELECTION])
    if znodes[0] is None:
        return
    try:
        asked = decode_partitions(PREFERRED_ELECTION, znodes[0].data)
    except ZnodeFormatError as error:
        log.error("%s", error)
        asked = []
    results = yield from elect_leaders(state, batch, asked, unclean=False)
    for partition, result in results.items():
        if isinstance(result, KafkaError) and result.code is not ErrorCode.ELECTION_NOT_NEEDED:
            log.warning("Partition %s keeps its leader: %s", partition, result)
    yield Write([Delete(PREFERRED_ELECTION)])


def balance_leaders(state: ControllerState, batch: RequestBatch, imbalance_percent: int) -> Steps[None]:
    """Give leadership back to preferred replicas of brokers that lack more than their share of it."""
    preferred: dict[int, list[TopicPartition]] = {}
    for partition in state.partitions():
        replicas = state.assignment(partition).replicas
        if replicas and not state.is_deleting(partition.topic):
            preferred.setdefault(replicas[0], []).append(partition)
    for broker, partitions in sorted(preferred.items()):
        elsewhere = [
            p for p in partitions if p in state.leadership and state.leadership[p].leader_and_isr.leader != broker
        ]
        if len(elsewhere) * 100 > imbalance_percent * len(partitions):
            able = [p for p in elsewhere if _preferred_can_lead(state, p)]
            yield from _elect(state, batch, able, preferred_election)


def _preferred_can_lead(state: ControllerState, partition: TopicPartition) -> bool:
    return preferred_election(state, partition, state.leadership[partition].leader_and_isr, False) is not None
