"""The election of a controller, as steps (Kafka's `KafkaController.elect` and
`KafkaZkClient`'s part in it).

The controller holds the ephemeral ``/controller``. In the transaction that creates it
``/controller_epoch`` is raised; the version of that znode fences the controllers before: every
write of a controller depends on it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.base.ids import NO_BROKER
from barnabas.broker.cluster.steps import (
    Check,
    Committed,
    ControllerMovedError,
    Create,
    Delete,
    Read,
    Refused,
    SetData,
    Steps,
    Transact,
    WriteOp,
    WriteResult,
    WriteUnfenced,
    Written,
    Znode,
)
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ZnodeFormatError,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.opcodes import CreateMode

__all__ = [
    "MustElect",
    "OtherController",
    "StillController",
    "Term",
    "find_controller",
    "register_controller",
    "resign",
]

logger = logging.getLogger(__name__)


class OtherController(NamedTuple):
    """Another broker is controller; `NO_BROKER` if its znode cannot be read."""

    broker: int


@dataclass(frozen=True, slots=True)
class StillController:
    """This broker is controller, as before."""


class MustElect(NamedTuple):
    """This broker must try to become controller.

    ``is_znode_ours``: its session created the znode before a lost connection."""

    is_znode_ours: bool


class Term(NamedTuple):
    """An election that was won: the controller epoch, and the version of its znode
    that every write depends on."""

    epoch: int
    epoch_version: int


def find_controller(*, is_active: bool) -> Steps[OtherController | StillController | MustElect]:
    """Find out who is controller, and what follows for this broker."""
    znodes: list[Znode | None] = yield Read([CONTROLLER], watch_absent=True)
    znode = znodes[0]
    if znode is None:
        return MustElect(is_znode_ours=False)
    try:
        broker = decode_controller(znode.data)
    except ZnodeFormatError as error:
        logger.error("%s", error)
        broker = NO_BROKER
    if not znode.is_own_ephemeral:
        return OtherController(broker)
    return StillController() if is_active else MustElect(is_znode_ours=True)


def register_controller(broker: int, wall_ms: Callable[[], int], *, is_znode_ours: bool) -> Steps[Term]:
    """Write ``/controller``, unless this session did so already, and raise the
    epoch, in one transaction.

    Raises `ControllerMovedError` when another broker was first, or when the outcome is not known.
    """
    made: list[Written] = yield WriteUnfenced([Create(CONTROLLER_EPOCH, encode_controller_epoch(0))], repeat=True)
    made[0].or_raise(WriteResult.EXISTS)
    znodes: list[Znode | None] = yield Read([CONTROLLER_EPOCH])
    if znodes[0] is None:
        raise ControllerMovedError(f"{CONTROLLER_EPOCH} was deleted during the election")
    epoch = decode_controller_epoch(znodes[0].data) + 1
    ops: list[WriteOp] = [SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch), znodes[0].version)]
    if not is_znode_ours:
        ops.insert(0, Create(CONTROLLER, encode_controller(broker, wall_ms()), CreateMode.EPHEMERAL))
    outcomes: list[Committed | Refused] = yield Transact([ops])
    outcome = outcomes[0]
    if isinstance(outcome, Committed):
        return Term(epoch, outcome.versions[-1])
    if outcome.error.code is Keeper.CONNECTION_LOSS:
        # Won or not? If so, the znode is our session's, and the next election finds it.
        raise ControllerMovedError("The connection was lost during the election") from outcome.error
    if outcome.error.code in (Keeper.NODE_EXISTS, Keeper.BAD_VERSION):
        raise ControllerMovedError("Another broker won the election") from outcome.error
    raise outcome.error


def resign(epoch_version: int) -> Steps[None]:
    """Remove ``/controller``, if this term has not ended yet, so that the next
    election begins at once."""
    outcomes: list[Committed | Refused] = yield Transact(
        [[Check(CONTROLLER_EPOCH, epoch_version), Delete(CONTROLLER)]], repeat=True
    )
    outcome = outcomes[0]
    if isinstance(outcome, Refused) and outcome.error.code is not Keeper.NO_NODE:
        logger.warning("%s could not be removed: %s", CONTROLLER, outcome.error)
