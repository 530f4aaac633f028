"""Leaders are elected on demand or to balance the cluster: preferred ones, unclean ones (KIP-460).

Kafka's `processReplicaLeaderElection`, `checkAndTriggerAutoLeaderRebalance` and
`processUncleanLeaderElectionEnable`.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from barnabas.base.excerpts import Tally
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Delete, Read, Send, Steps, Write, Znode
from barnabas.broker.cluster.znodes import PREFERRED_ELECTION, ZnodeFormatError, decode_partitions
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.election_strategies import PREFERRED, UNCLEAN, ElectionStrategy
from barnabas.broker.controller.partition_batches import find_in_turns, in_batches
from barnabas.broker.controller.partition_state_machine import bring_online, trigger_online
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "process_auto_preferred_leader_election",
    "process_preferred_replica_election",
    "process_replica_leader_election",
]

logger = logging.getLogger(__name__)


def process_replica_leader_election(
    context: ControllerContext, batch: RequestBatch, partitions: Iterable[TopicPartition], *, unclean: bool
) -> Steps[dict[TopicPartition, int | KafkaError]]:
    """Elect the preferred replica where another leads, or with ``unclean`` any live replica
    where there is no leader.

    Each partition's new leader, or error: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (it
    is being deleted), ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    results: dict[TopicPartition, int | KafkaError] = {}
    wanted: list[TopicPartition] = []
    unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    for topic_partition in partitions:
        yield None
        if not context.assignment(topic_partition).replicas:
            results[topic_partition] = unknown
        elif context.is_deleting(topic_partition.topic):
            results[topic_partition] = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
        elif not _is_needed(context, topic_partition, unclean=unclean):
            why = "Leader election not needed for topic partition."
            results[topic_partition] = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, why)
        else:
            wanted.append(topic_partition)
    elected = yield from _elect(context, batch, wanted, UNCLEAN if unclean else PREFERRED)
    for topic_partition in wanted:
        if topic_partition in elected:
            results[topic_partition] = context.leadership[topic_partition].leader_and_isr.leader
        elif unclean:
            why = "None of its replicas is on a live broker."
            results[topic_partition] = KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)
        else:
            why = "Its preferred replica is not in sync, or not on a live broker."
            results[topic_partition] = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
    return results


def _is_needed(context: ControllerContext, topic_partition: TopicPartition, *, unclean: bool) -> bool:
    known = context.leadership.get(topic_partition)
    if known is None:
        return True
    leader = known.leader_and_isr.leader
    if unclean:
        return not context.is_online(leader, topic_partition, shutting_down_too=True)
    return context.assignment(topic_partition).replicas[0] != leader


def _elect(
    context: ControllerContext, batch: RequestBatch, partitions: list[TopicPartition], election: ElectionStrategy
) -> Steps[set[TopicPartition]]:
    elected: set[TopicPartition] = set()
    for some in in_batches(partitions):
        elected |= yield from bring_online(context, batch, some, election)
        yield Send(batch.take())
    return elected


def process_preferred_replica_election(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """A tool asked for preferred leaders through ``/admin/preferred_replica_election``."""
    znodes: list[Znode | None] = yield Read([PREFERRED_ELECTION], watch_absent=True)
    if znodes[0] is None:
        return
    try:
        asked = decode_partitions(PREFERRED_ELECTION, znodes[0].data)
    except ZnodeFormatError as error:
        logger.error("%s", error)
        asked = []
    results = yield from process_replica_leader_election(context, batch, asked, unclean=False)
    kept: Tally[ErrorCode] = Tally()
    for topic_partition, result in results.items():
        if isinstance(result, KafkaError) and result.code is not ErrorCode.ELECTION_NOT_NEEDED:
            kept.add(result.code, topic_partition, result)
    for _, names, why in kept.lines():
        logger.warning("Partition %s keeps its leader: %s", names, why)
    yield Write([Delete(PREFERRED_ELECTION)])


def process_unclean_leader_election_enable(context: ControllerContext, batch: RequestBatch) -> Steps[None]:
    """Unclean elections are allowed now: try again where there is no leader."""
    yield from trigger_online(context, batch)


def process_auto_preferred_leader_election(
    context: ControllerContext, batch: RequestBatch, imbalance_percent: int
) -> Steps[None]:
    """Give leadership back to preferred replicas of brokers that lack more than
    their share of it."""
    preferred: dict[int, list[TopicPartition]] = {}
    number = 0
    for topic in list(context.topics):
        for index in list(context.topics.get(topic, ())):
            number += 1
            yield None
            topic_partition = TopicPartition(topic, index)
            replicas = context.assignment(topic_partition).replicas
            if replicas and not context.is_deleting(topic):
                preferred.setdefault(replicas[0], []).append(topic_partition)
    for broker, partitions in sorted(preferred.items()):
        elsewhere = yield from find_in_turns(partitions, partial(_led_elsewhere, context, broker))
        if len(elsewhere) * 100 > imbalance_percent * len(partitions):
            able = [p for p in elsewhere if _preferred_can_lead(context, p)]
            yield from _elect(context, batch, able, PREFERRED)


def _led_elsewhere(
    context: ControllerContext, broker: int, partitions: Sequence[TopicPartition]
) -> list[TopicPartition]:
    """The partitions that have a leader, which is not ``broker``."""
    leadership = context.leadership
    return [p for p in partitions if p in leadership and leadership[p].leader_and_isr.leader != broker]


def _preferred_can_lead(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    return (
        PREFERRED.choose(context, topic_partition, context.leadership[topic_partition].leader_and_isr, False)
        is not None
    )
