"""How a broker registers: the order of its steps, and what it does when its registration changes.

The broker is in the cluster when its znode exists, and can serve clients when the controller's first UpdateMetadata that names it has
arrived. If the log dirs may have lost what was not synced (see `boot`), the broker first waits for the end of its last
life's registration.

`join` decides. It yields steps to the edge (`service`) and gets their results:

    yield IsRegistered()       -> bool                whether this broker's id is registered
    yield CreateRegistration() -> int | None          the czxid of our new znode; None when there is one in the way
    yield ReadSession()        -> SessionZnodes       that znode, and /controller
    yield Remove(removals)     -> None                in one transaction; a znode that changed meanwhile stays
    yield SetEpoch(epoch)      -> None                the broker epoch that requests of the controller must have
    yield NoteBoot()           -> None                the log dirs are used under this boot from now on
    yield FindGone()           -> {partition: loss}   replicas of this broker, by the znodes, that have no log here
    yield NoteDirsChecked()    -> None                the new log dirs are like all others from now on
    yield Pause(ms)            -> None

In Kafka: the registration in `KafkaServer.startup`, and `BrokerLifecycleManager` in KRaft mode.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Pause
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.membership.isr_withdrawal import LeaveStep, leave_in_sync_sets
from barnabas.broker.membership.leadership_release import give_up_leaderships
from barnabas.broker.membership.registration import Removal, SessionZnodes, replace_predecessor
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.opcodes import EventType

__all__ = [
    "CreateRegistration",
    "FindGone",
    "IsRegistered",
    "JoinStep",
    "NoteBoot",
    "NoteDirsChecked",
    "OnChange",
    "ReadSession",
    "Remove",
    "SetEpoch",
    "join",
    "on_registration_changed",
]

logger = logging.getLogger(__name__)

_PREDECESSOR_PAUSE_MS = 500
_NO_EPOCH = -1
_MAX_BROKER_EPOCH = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class IsRegistered:
    """Whether there is a registration with this broker's id, perhaps of its last life."""


@dataclass(frozen=True, slots=True)
class CreateRegistration:
    """Make this broker's znode in its own session."""


@dataclass(frozen=True, slots=True)
class ReadSession:
    """Read the registration under this broker's id and ``/controller``, at one moment."""


class Remove(NamedTuple):
    """Delete znodes, all or none."""

    removals: Sequence[Removal]


class SetEpoch(NamedTuple):
    """Use this broker epoch from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NoteBoot:
    """Note the boot id in the log dirs."""


@dataclass(frozen=True, slots=True)
class ReadReplicas:
    """Read which partitions have a replica on this broker."""


@dataclass(frozen=True, slots=True)
class FindGone:
    """Read which partitions have a replica on this broker, and find those without a log."""


@dataclass(frozen=True, slots=True)
class NoteDirsChecked:
    """Note that no replica is missing in the new log dirs that others take for complete."""


JoinStep = (
    IsRegistered
    | CreateRegistration
    | ReadSession
    | Remove
    | SetEpoch
    | NoteBoot
    | ReadReplicas
    | FindGone
    | NoteDirsChecked
    | Pause
    | LeaveStep
)


def join(
    info: BrokerInfo,
    *,
    has_kept_its_pages: bool,
    lost: Mapping[TopicPartition, LostData] | None = None,
    has_new_dir: bool = False,
) -> Generator[JoinStep, Any, int]:
    """Register; returns the broker epoch. Raises `BrokerIdTakenError`.

    ``lost`` are the partitions whose logs are known to have lost records: see `isr_withdrawal`. With ``has_new_dir`` a log
    dir was empty at the start: the broker is new, or a disk was replaced, with all its replicas.
    """
    if not has_kept_its_pages:
        # The controller still sends requests to the earlier life. No such request may reach this one.
        yield SetEpoch(_MAX_BROKER_EPOCH)
        yield from _await_end_of_predecessor(info)
        # Not those that have a log here: a loss of power may have taken whole logs.
        yield from give_up_leaderships(info.id, (yield ReadReplicas()))
        yield SetEpoch(_NO_EPOCH)
    # After a reboot every replica that was busy may have lost a little, on other machines too. If each stepped back
    # for the others, the last one to start would lead, whatever it has. So this holds for single damaged logs only,
    # and for replicas that are gone with their disk.
    leaving = dict(lost or {}) if has_kept_its_pages else {}
    if has_new_dir:
        leaving |= yield FindGone()
    if leaving:
        yield from _replace_predecessor(info)
        yield from leave_in_sync_sets(info.id, leaving)
    while (epoch := (yield CreateRegistration())) is None:
        yield from _replace_predecessor(info)
    yield SetEpoch(epoch)
    logger.info("Broker %d is registered with epoch %d", info.id, epoch)
    if not has_kept_its_pages:
        yield NoteBoot()
    if has_new_dir:
        yield NoteDirsChecked()
    return int(epoch)


def _replace_predecessor(info: BrokerInfo) -> Generator[JoinStep, Any, None]:
    found: SessionZnodes = yield ReadSession()
    removals = replace_predecessor(info, found)
    if removals:
        logger.info("Replacing the registration of an earlier life of broker %d", info.id)
        yield Remove(removals)


def _await_end_of_predecessor(info: BrokerInfo) -> Generator[JoinStep, Any, None]:
    """Wait until the earlier life's registration is gone, and a moment more, in which the controller acts on that.

    Raises `BrokerIdTakenError` when the registration is another broker's, which may never end.
    """
    if not (yield IsRegistered()):
        return
    replace_predecessor(info, (yield ReadSession()))
    logger.info("Waiting for the end of the registration from before this machine was restarted")
    while (yield IsRegistered()):
        yield Pause(_PREDECESSOR_PAUSE_MS)
    yield Pause(_PREDECESSOR_PAUSE_MS)


class OnChange(Enum):
    """What to do when the watch on this broker's own znode fires."""

    REGISTER_AGAIN = "register again"
    WATCH_AGAIN = "watch again"
    NOTHING = "nothing"


def on_registration_changed(event_type: EventType, *, is_closing: bool) -> OnChange:
    """A registration that is deleted while the broker runs is made again; a broker that stops lets it go."""
    if is_closing:
        return OnChange.NOTHING
    return OnChange.REGISTER_AGAIN if event_type is EventType.NODE_DELETED else OnChange.WATCH_AGAIN
