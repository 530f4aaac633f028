"""How a broker registers: the order of its steps, and what it does when its registration changes.

The broker is in the cluster when its znode exists, and can serve clients when the controller's
first UpdateMetadata that names it has arrived. If the log dirs may have lost what was not synced
(see `barnabas.log.dirs.boot`), the broker first waits for the end of its last life's registration.

`join` decides, and yields steps (`barnabas.broker.cluster.steps`). What changes in this broker
itself it calls: see `OwnState`.

In Kafka: the registration in `KafkaServer.startup`, and `BrokerLifecycleManager` in KRaft mode.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Children, CreateOwn, Pause, Read, ReadAllowed, Steps, Znode
from barnabas.broker.cluster.znodes import (
    BROKER_TOPICS,
    BrokerInfo,
    ZnodeFormatError,
    broker_path,
    decode_topic_in_slices,
    encode_broker,
    topic_path,
)
from barnabas.broker.membership.isr_withdrawal import MAX_WAIT_MS, leave_in_sync_sets
from barnabas.broker.membership.leadership_release import give_up_leaderships
from barnabas.broker.membership.registration import end_session, read_session, replace_predecessor
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import EventType

__all__ = ["OnChange", "OwnState", "join", "on_registration_changed", "read_replicas"]

logger = logging.getLogger(__name__)

_PREDECESSOR_PAUSE_MS = 500
_READ_AT_ONCE = 1000
_NO_EPOCH = -1
_MAX_BROKER_EPOCH = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OwnState:
    """What joining reads and changes in this broker."""

    wall_ms: Callable[[], int]
    set_epoch: Callable[[int], None]
    """From now on this is the broker epoch that requests of the controller must have."""
    note_boot: Callable[[], None]
    """The log dirs are used under this boot from now on."""
    note_gone: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, LostData]]
    """Takes the replicas of this broker; notes, and returns, those without a log."""
    note_dirs_checked: Callable[[], None]
    """Log dirs that were empty at the start are like all others from now on."""


def join(
    info: BrokerInfo,
    own: OwnState,
    *,
    has_kept_its_pages: bool,
    lost: Mapping[TopicPartition, LostData] | None = None,
    has_new_dir: bool = False,
) -> Steps[int]:
    """Register; returns the broker epoch. Raises `BrokerIdTakenError`.

    ``lost`` are the partitions whose logs are known to have lost records: see `isr_withdrawal`.
    With ``has_new_dir`` a log dir was empty at the start: the broker is new, or a disk was
    replaced, with all its replicas.
    """
    if not has_kept_its_pages:
        # The controller still sends requests to the earlier life. No such request
        # may reach this one.
        own.set_epoch(_MAX_BROKER_EPOCH)
        yield from _await_end_of_predecessor(info)
        # Not those that have a log here: a loss of power may have taken whole logs.
        yield from give_up_leaderships(info.id, (yield from read_replicas(info.id)))
        own.set_epoch(_NO_EPOCH)
    # After a reboot every replica that was busy may have lost a little, on other machines too. If
    # each stepped back for the others, the last one to start would lead, whatever it has. So this
    # holds for single damaged logs only, for those that a loss of power cannot have damaged, and
    # for replicas that are gone with their disk.
    leaving = {name: each for name, each in (lost or {}).items() if has_kept_its_pages or each.is_damage}
    if has_new_dir:
        leaving |= own.note_gone((yield from read_replicas(info.id)))
    if leaving:
        yield from _replace_predecessor(info)
        yield from leave_in_sync_sets(info.id, leaving)
        # Those whose set has no other member: it may lead again, but not in the epoch of before.
        yield from give_up_leaderships(info.id, list(leaving), max_wait_ms=MAX_WAIT_MS)
    while (epoch := (yield CreateOwn(broker_path(info.id), encode_broker(info, own.wall_ms())))) is None:
        yield from _replace_predecessor(info)
    own.set_epoch(epoch)
    logger.info("Broker %d is registered with epoch %d", info.id, epoch)
    if not has_kept_its_pages:
        own.note_boot()
    if has_new_dir:
        own.note_dirs_checked()
    return int(epoch)


def read_replicas(broker_id: int) -> Steps[list[TopicPartition]]:
    """The partitions that have a replica on a broker.

    A topic that cannot be read is logged, and left out."""
    topics = sorted((yield Children(BROKER_TOPICS)))
    replicas = []
    for first in range(0, len(topics), _READ_AT_ONCE):
        some = topics[first : first + _READ_AT_ONCE]
        znodes: list[Znode | KeeperError | None] = yield ReadAllowed([topic_path(topic) for topic in some])
        for topic, znode in zip(some, znodes, strict=True):
            if znode is not None:
                replicas += yield from _replicas_on(broker_id, topic, znode)
    return replicas


def _replicas_on(broker_id: int, topic: str, znode: Znode | KeeperError) -> Steps[list[TopicPartition]]:
    try:
        if isinstance(znode, KeeperError):
            raise znode
        assignment = yield from decode_topic_in_slices(topic, znode.data)
    except (KeeperError, ZnodeFormatError) as error:
        logger.error("%s cannot be read before the registration: %s", topic_path(topic), error)
        return []
    return [
        TopicPartition(topic, number)
        for number, partition in assignment.partitions.items()
        if broker_id in partition.replicas
    ]


def _replace_predecessor(info: BrokerInfo) -> Steps[None]:
    removals = replace_predecessor(info, (yield from read_session(info.id)))
    if removals:
        logger.info("Replacing the registration of an earlier life of broker %d", info.id)
        yield from end_session(removals, repeat=True)


def _is_registered(broker_id: int) -> Steps[bool]:
    """Whether a registration stands under this broker's id, be it an earlier life's."""
    (registration,) = yield Read([broker_path(broker_id)])
    return registration is not None


def _await_end_of_predecessor(info: BrokerInfo) -> Steps[None]:
    """Wait until the earlier life's registration is gone, and a moment more, in which the
    controller acts on that.

    Raises `BrokerIdTakenError` when the registration is another broker's, which may never end.
    """
    if not (yield from _is_registered(info.id)):
        return
    replace_predecessor(info, (yield from read_session(info.id)))
    logger.info("Waiting for the end of the registration from before this machine was restarted")
    while (yield from _is_registered(info.id)):
        yield Pause(_PREDECESSOR_PAUSE_MS)
    yield Pause(_PREDECESSOR_PAUSE_MS)


class OnChange(Enum):
    """What to do when the watch on this broker's own znode fires."""

    REGISTER_AGAIN = "register again"
    WATCH_AGAIN = "watch again"
    NOTHING = "nothing"


def on_registration_changed(event_type: EventType, *, is_closing: bool) -> OnChange:
    """A registration that is deleted while the broker runs is made again.

    A broker that stops lets it go."""
    if is_closing:
        return OnChange.NOTHING
    return OnChange.REGISTER_AGAIN if event_type is EventType.NODE_DELETED else OnChange.WATCH_AGAIN
