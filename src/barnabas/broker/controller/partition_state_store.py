"""Reads and writes the state znodes of partitions: leader, in-sync set, epochs
(Kafka's `updateLeaderAndIsr`).

Brokers and earlier controllers write them too, so every write is conditional on the
version that was read.
"""

import logging
from collections.abc import Iterable

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Read, SetData, Steps, Write, WriteResult, Written, Znode
from barnabas.broker.cluster.znodes import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ZnodeFormatError,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from barnabas.broker.controller.context import ControllerContext

__all__ = ["MAX_ROUNDS", "read_leadership", "read_states", "states_for_attempt", "update_leadership"]

logger = logging.getLogger(__name__)

MAX_ROUNDS = 10
"""Attempts to read, decide and write conditionally, while a leader changes the
in-sync set at the same time."""


def read_states(partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, LeaderIsrAndControllerEpoch]]:
    """The states of those partitions that have one that can be read."""
    names = list(partitions)
    if not names:
        return {}
    paths = [partition_state_path(topic_partition) for topic_partition in names]
    znodes: list[Znode | None] = yield Read(paths)
    states = {}
    for topic_partition, path, znode in zip(names, paths, znodes, strict=True):
        if znode is not None:
            try:
                states[topic_partition] = decode_partition_state(path, znode.data, znode.version)
            except ZnodeFormatError as error:
                logger.error("%s", error)
    return states


def states_for_attempt(
    context: ControllerContext, partitions: Iterable[TopicPartition], attempt: int
) -> Steps[dict[TopicPartition, LeaderIsrAndControllerEpoch]]:
    """The states to decide by: in attempt 0 as this controller knows them; those that
    it does not know are read.

    The first attempt may use them: if another writer has changed the znode, its version differs and
    the write fails. Later attempts use `read_states`.
    """
    wanted = list(partitions)
    leadership = context.leadership
    known = {} if attempt else {each: leadership[each] for each in wanted if each in leadership}
    read = yield from read_states(each for each in wanted if each not in known)
    return {**known, **read}


def read_leadership(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Take over what the state znodes say; brokers write them too when the ISR changes."""
    context.leadership.update((yield from read_states(partitions)))


def update_leadership(
    context: ControllerContext, proposals: dict[TopicPartition, LeaderAndIsr]
) -> Steps[tuple[set[TopicPartition], list[TopicPartition]]]:
    """Write leaderships conditional on their versions.

    Returns what was written and what must be tried again."""
    if not proposals:
        return set(), []
    written: list[Written] = yield Write(
        [
            SetData(
                partition_state_path(topic_partition), encode_partition_state(proposal, context.epoch), proposal.version
            )
            for topic_partition, proposal in proposals.items()
        ]
    )
    done, again = set(), []
    for (topic_partition, proposal), outcome in zip(proposals.items(), written, strict=True):
        if outcome.result is WriteResult.DONE:
            context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(
                proposal._replace(version=outcome.version), context.epoch
            )
            done.add(topic_partition)
        elif outcome.result is WriteResult.BAD_VERSION:
            again.append(topic_partition)
        else:
            logger.error("The state of partition %s could not be written: %s", topic_partition, outcome.result.value)
    return done, again
