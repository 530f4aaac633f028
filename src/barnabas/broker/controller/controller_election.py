"""Who is controller: the ephemeral ``/controller``, and ``/controller_epoch``, whose version fences those replaced."""

import logging
from typing import NamedTuple

from barnabas.base.clock import Clock
from barnabas.base.ids import NO_BROKER
from barnabas.broker.cluster.steps import ControllerMovedError
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ZnodeFormatError,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import (
    WatchCallback,
    check,
    create,
    multi,
    multi_create,
    multi_delete,
    multi_set,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode

__all__ = ["Candidacy", "Incumbent", "Term"]

logger = logging.getLogger(__name__)


class Incumbent(NamedTuple):
    """Who holds the office. ``is_this_session``: this broker's own znode, perhaps made before a lost connection."""

    broker: int
    is_this_session: bool


class Term(NamedTuple):
    """An election that was won: the controller epoch, and the version of its znode that every write checks."""

    epoch: int
    epoch_version: int


class Candidacy:
    """One broker's claims to the office."""

    def __init__(self, broker_id: int, client: CoordinationClient, clock: Clock) -> None:
        self._broker_id = broker_id
        self._client = client
        self._clock = clock

    async def incumbent(self, watch: WatchCallback) -> Incumbent | None:
        """Who is controller now; ``watch`` is left on the office. None when there is nobody.

        Raises `ControllerMovedError` when the office changed during the look.
        """
        if await self._client.exists(CONTROLLER, watch) is None:
            return None
        try:
            data, stat = await self._client.get(CONTROLLER)
        except KeeperError as error:
            if error.code is Keeper.NO_NODE:
                raise ControllerMovedError("The controller went just now") from error
            raise
        try:
            broker = decode_controller(data)
        except ZnodeFormatError as error:
            logger.error("%s", error)
            broker = NO_BROKER
        return Incumbent(broker, stat.ephemeral_owner == self._client.session_id)

    async def claim(self, *, made_already: bool) -> Term:
        """Write ``/controller``, unless this session made it already, and raise the epoch, in one transaction.

        Raises `ControllerMovedError` when another broker was first, or nobody knows.
        """
        made = await self._client.batch([create(CONTROLLER_EPOCH, encode_controller_epoch(0))], retry=True)
        if isinstance(made[0], KeeperError) and made[0].code is not Keeper.NODE_EXISTS:
            raise made[0]
        data, stat = await self._client.get(CONTROLLER_EPOCH)
        epoch = decode_controller_epoch(data) + 1
        claim = [multi_set(CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version)]
        if not made_already:
            office = encode_controller(self._broker_id, self._clock.wall_ms())
            claim.insert(0, multi_create(CONTROLLER, office, CreateMode.EPHEMERAL))
        try:
            results = await self._client.run(multi(claim))
        except KeeperError as error:
            if error.code is Keeper.CONNECTION_LOSS:
                # Won or not? If so, the znode is our session's, and the next look finds it.
                raise ControllerMovedError("The connection was lost during the election") from error
            if error.code in (Keeper.NODE_EXISTS, Keeper.BAD_VERSION):
                raise ControllerMovedError("Another broker won the election") from error
            raise
        return Term(epoch, results[-1].version)

    async def give_up(self, epoch_version: int) -> None:
        """Remove ``/controller``, if this term has not ended yet."""
        (result,) = await self._client.batch(
            [multi([check(CONTROLLER_EPOCH, epoch_version), multi_delete(CONTROLLER)])], retry=True
        )
        if isinstance(result, KeeperError) and result.code is not Keeper.NO_NODE:
            logger.warning("The office of controller could not be given up: %s", result)
