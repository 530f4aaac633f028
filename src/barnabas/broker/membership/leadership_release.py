"""A broker that may have lost records gives up the partitions that its last life led, before it
registers: all of them after a reboot of its machine, else those whose logs have lost records.

A leader that lost records must not lead on in the same leader epoch: it would write
other records at offsets and in an epoch in which followers already have some, and no follower would
notice, because truncation compares epochs. A controller that sees the broker die raises the epoch.
If all brokers die there is no controller, and the next one finds a leader that is registered and
has the epoch of before.

So the broker reads the states of its partitions while it is not registered. Where it
is still the leader:

- With a controller, wait until that has removed it, as it does with every broker that is gone. The
  wait is bounded: a controller does not touch the partitions of a topic that is being deleted.
- Without one, write what the controller would: no leader, the next leader epoch, the same
  in-sync set. The transaction checks the version of /controller_epoch, so it fails when a
  controller is elected meanwhile.

Then the controller elects a leader, this broker perhaps, in a new epoch. Kafka has no counterpart.

`give_up_leaderships` decides, and yields steps (`barnabas.broker.cluster.steps`).
"""

import logging
from collections.abc import Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Pause, SetData, Steps
from barnabas.broker.cluster.znodes import (
    NO_LEADER,
    LeaderIsrAndControllerEpoch,
    encode_partition_state,
    partition_state_path,
)
from barnabas.broker.membership.isr_withdrawal import (
    MAX_WRITES,
    StoredStates,
    read_state,
    read_stored_states,
    write_stored_states,
)

__all__ = ["give_up_leaderships"]

logger = logging.getLogger(__name__)

_PAUSE_MS = 200
_MAX_WAIT_MS = 30_000


def give_up_leaderships(
    broker_id: int, partitions: Sequence[TopicPartition], *, max_wait_ms: int = _MAX_WAIT_MS
) -> Steps[None]:
    """Return when this broker, which is not registered, leads none of the partitions, or a
    controller has not removed it from some for ``max_wait_ms``."""
    pending = list(partitions)
    waited_ms = 0
    has_written = False
    while pending:
        found = yield from read_stored_states(pending)
        led = _led_by(broker_id, pending, found)
        has_progressed = len(led) < len(pending)
        pending = list(led)
        if not pending:
            return
        if waited_ms >= max_wait_ms:
            logger.warning(
                "Broker %d is still the leader of %s, %d s after it began to give up what its last life led",
                broker_id,
                ", ".join(map(str, pending)),
                max_wait_ms // 1000,
            )
            return
        is_stuck = has_written and not has_progressed
        if found.has_controller or is_stuck:
            yield Pause(_PAUSE_MS)
            waited_ms += _PAUSE_MS
        if not found.has_controller:
            if not is_stuck:
                logger.info(
                    "Giving up the leadership of %s: records may be lost, so another leader epoch must begin",
                    ", ".join(map(str, pending)),
                )
            writes = [_without_leader(*item) for item in list(led.items())[:MAX_WRITES]]
            yield from write_stored_states(found.controller_epoch_version, writes, is_first_attempt=not is_stuck)
            has_written = True


def _led_by(
    broker_id: int, partitions: Sequence[TopicPartition], found: StoredStates
) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
    led = {}
    for topic_partition, znode in zip(partitions, found.states, strict=True):
        state = read_state(topic_partition, znode)
        if state is not None and state.leader_and_isr.leader == broker_id:
            led[topic_partition] = state
    return led


def _without_leader(topic_partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> SetData:
    before = state.leader_and_isr
    after = before.with_leader(NO_LEADER, list(before.isr))
    data = encode_partition_state(after, state.controller_epoch)
    return SetData(partition_state_path(topic_partition), data, before.version)
