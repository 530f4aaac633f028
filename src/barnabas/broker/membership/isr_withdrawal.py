"""A broker whose logs have lost records leaves the in-sync sets before it registers.

The controller trusts a registered broker: any member of a partition's in-sync set may lead, and the
followers of a leader truncate to it. A replica that knows that it lost records
(`barnabas.log.lost_data`) must therefore not be in the set while another member may return. It
cannot ask the controller, who may not be there yet, or may be Apache Kafka's. It uses what Kafka's
protocol has: the znodes.

- As long as this broker is not registered, no controller elects it. A running controller removes it
  from every in-sync set that has another member, as it does with every broker that is gone. So
  while there is a controller, wait for that.
- Without a controller (all brokers were killed), write the state znode as the controller would: the
  set without this broker, no leader if this broker led, the next leader epoch. One transaction
  checks the version of /controller_epoch and of the state: a controller that is elected meanwhile
  makes it fail, and the broker waits for that controller instead. A controller that is elected
  later reads the new state.
- The last member of a set stays in it, for no other replica could lead. It leads with what
  it has, and logs an error. Its old leader epoch must end first: see `leadership_release`.
- A state that cannot be read, or must not be written, concerns its own partition only: it is
  logged, and the broker registers without that step.

Then the broker registers and follows. Another member leads when it returns, and this replica
truncates and copies. If none returns, ``unclean.leader.election.enable`` or an operator
(`leader-election --election-type unclean`) may let it lead. Kafka has no counterpart.

`leave_in_sync_sets` decides, and yields steps (`barnabas.broker.cluster.steps`).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import (
    Check,
    Committed,
    Pause,
    ReadAllowed,
    Refused,
    SetData,
    Steps,
    Transact,
    Znode,
)
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    NO_LEADER,
    LeaderIsrAndControllerEpoch,
    ZnodeFormatError,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError

__all__ = [
    "MAX_WAIT_MS",
    "MAX_WRITES",
    "StoredStates",
    "leave_in_sync_sets",
    "read_state",
    "read_stored_states",
    "write_stored_states",
]

logger = logging.getLogger(__name__)

_PAUSE_MS = 200
_REPORT_EVERY_MS = 10_000
MAX_WAIT_MS = 60_000
MAX_WRITES = 500  # in one transaction, which must fit into jute.maxbuffer


class StoredStates(NamedTuple):
    """States of partitions as they are stored, and whether there is a controller."""

    controller_epoch_version: int | None
    """The version of /controller_epoch; None while no controller was ever elected."""
    has_controller: bool
    states: Sequence[Znode | KeeperError | None]


def read_stored_states(partitions: Sequence[TopicPartition]) -> Steps[StoredStates]:
    """Read the states of partitions, after /controller_epoch and /controller."""
    paths = [CONTROLLER_EPOCH, CONTROLLER, *map(partition_state_path, partitions)]
    found: list[Znode | KeeperError | None] = yield ReadAllowed(paths)
    epoch, controller, *states = found
    # Without the version of /controller_epoch no write can be safe: then it is up to a controller.
    has_controller = controller is not None or isinstance(epoch, KeeperError)
    return StoredStates(epoch.version if isinstance(epoch, Znode) else None, has_controller, states)


def write_stored_states(
    controller_epoch_version: int | None, writes: Sequence[SetData], *, is_first_attempt: bool
) -> Steps[None]:
    """Write all or none, if /controller_epoch still has its version.

    A znode that changed meanwhile is no error, for the next read shows it. That ACLs
    forbid it is logged once.
    """
    checks = [] if controller_epoch_version is None else [Check(CONTROLLER_EPOCH, controller_epoch_version)]
    outcomes: list[Committed | Refused] = yield Transact([[*checks, *writes]], repeat=True)
    outcome = outcomes[0]
    if isinstance(outcome, Committed) or outcome.error.code in (Keeper.NO_NODE, Keeper.BAD_VERSION):
        return
    if outcome.error.code is not Keeper.NO_AUTH:
        raise outcome.error
    if is_first_attempt:
        logger.error(
            "This broker has no permission to write the states of partitions: check the ACLs below /brokers/topics"
        )


def leave_in_sync_sets(broker_id: int, lost: Mapping[TopicPartition, LostData]) -> Steps[None]:
    """Return when this broker, which is not registered, is in none of the in-sync
    sets, or alone in them.

    The wait for a controller is bounded: it does not touch the partitions of a topic that is being
    deleted, and they must not keep the broker out of the cluster. So are the attempts to write.
    """
    pending = list(lost)
    waited_ms = 0
    has_written = False
    while pending:
        found = yield from read_stored_states(pending)
        memberships = _memberships(broker_id, lost, dict(zip(pending, found.states, strict=True)))
        has_progressed = len(memberships) < len(pending)
        pending = list(memberships)
        if not pending:
            return
        if waited_ms >= MAX_WAIT_MS:
            logger.error(
                "Registering, although broker %d has lost records and %s in the in-sync sets of %s",
                broker_id,
                "the controller has left it" if found.has_controller else "is still",
                ", ".join(map(str, pending)),
            )
            return
        if found.has_controller and waited_ms % _REPORT_EVERY_MS == 0:
            logger.warning(
                "Waiting until the controller removes broker %d, which has lost records, from the in-sync sets of %s",
                broker_id,
                ", ".join(map(str, pending)),
            )
        is_stuck = has_written and not has_progressed
        if found.has_controller or is_stuck:
            yield Pause(_PAUSE_MS)
            waited_ms += _PAUSE_MS
        if not found.has_controller:
            chosen = dict(list(memberships.items())[:MAX_WRITES])
            if not is_stuck:
                _report(broker_id, chosen, lost)
            writes = [_without(broker_id, *item) for item in chosen.items()]
            yield from write_stored_states(found.controller_epoch_version, writes, is_first_attempt=not is_stuck)
            has_written = True


def read_state(
    topic_partition: TopicPartition, znode: Znode | KeeperError | None
) -> LeaderIsrAndControllerEpoch | None:
    """A partition's state; None if the topic is deleted, or if the state says
    nothing, which is logged."""
    if znode is None:
        return None
    path = partition_state_path(topic_partition)
    if isinstance(znode, KeeperError):
        logger.error("%s cannot be read before the registration: this broker has no permission to read it", path)
        return None
    try:
        return decode_partition_state(path, znode.data, znode.version)
    except ZnodeFormatError as error:
        logger.error("%s cannot be read before the registration: %s", path, error)
        return None


def _memberships(
    broker_id: int,
    lost: Mapping[TopicPartition, LostData],
    states: Mapping[TopicPartition, Znode | KeeperError | None],
) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
    """The partitions whose in-sync set has this broker and another one."""
    memberships = {}
    for topic_partition, znode in states.items():
        state = read_state(topic_partition, znode)
        if state is None:
            continue
        isr = state.leader_and_isr.isr
        if isr == (broker_id,):
            logger.error(
                "Partition %s has lost records, and there is no other in-sync replica: broker %d becomes leader with the "
                "records it has. %s",
                topic_partition,
                broker_id,
                lost[topic_partition].reason,
            )
        elif broker_id in isr:
            memberships[topic_partition] = state
    return memberships


def _report(
    broker_id: int,
    memberships: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
    lost: Mapping[TopicPartition, LostData],
) -> None:
    for topic_partition, state in memberships.items():
        isr = state.leader_and_isr.isr
        logger.error(
            "Partition %s has lost records: broker %d leaves its in-sync set %s, and waits for one of %s to lead. %s",
            topic_partition,
            broker_id,
            list(isr),
            [member for member in isr if member != broker_id],
            lost[topic_partition].reason,
        )


def _without(broker_id: int, topic_partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> SetData:
    before = state.leader_and_isr
    isr = [member for member in before.isr if member != broker_id]
    after = before.with_leader(NO_LEADER if before.leader == broker_id else before.leader, isr)
    data = encode_partition_state(after, state.controller_epoch)
    return SetData(partition_state_path(topic_partition), data, before.version)
