"""How a broker becomes one of the cluster: its registration, made anew whenever it is lost, and the first news.

The broker is in the cluster when its znode stands, and of use when the controller's first UpdateMetadata that names it
has arrived. If the log dirs may have lost what was not synced (see `boot`), the registration waits for the end of the
earlier life's, whereupon the controller takes the broker from the in-sync sets.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.broker.cluster.znodes import BrokerInfo, broker_path
from barnabas.broker.membership.boot import has_kept_its_pages, note_boot
from barnabas.broker.membership.registration import Registration
from barnabas.broker.requests.request import Node
from barnabas.coordination.client.operations import WatchEvent
from barnabas.wire.jute.opcodes import EventType

__all__ = ["Joining"]

logger = logging.getLogger(__name__)

_METADATA_TIMEOUT_S = 60
_PREDECESSOR_PAUSE_S = 0.5
_MAX_BROKER_EPOCH = (1 << 63) - 1


class Joining:
    """One broker's way into its cluster; made on the loop."""

    def __init__(self, node: Node, info: Callable[[], BrokerInfo], *, is_closing: Callable[[], bool]) -> None:
        """``info`` gives what gets registered, when the listeners are open. Once ``is_closing()``, a lost registration is not made again."""
        self._node = node
        self._info = info
        self._registered: Registration | None = None
        self._is_closing = is_closing
        self._has_kept_all: bool | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def register(self) -> int:
        """Make the broker's znode (again) and watch it; returns the broker epoch. Raises `BrokerIdTakenError`."""
        node = self._node
        if self._has_kept_all is None:
            self._has_kept_all = has_kept_its_pages(node.files, node.log_dirs.online)
        if not self._has_kept_all:
            node.broker_epoch = _MAX_BROKER_EPOCH  # what the controller tells the earlier life is not for us
            await _end_of(self._registration())
            node.broker_epoch = -1
        node.broker_epoch = await self._registration().register()
        if not self._has_kept_all:
            self._has_kept_all = True
            note_boot(node.files, node.log_dirs.online)
        await self._watch_registration()
        return node.broker_epoch

    def _registration(self) -> Registration:
        if self._registered is None:
            self._registered = Registration(self._node.coordination, self._info(), self._node.clock)
        return self._registered

    async def first_news(self, listener: str) -> None:
        """Return when the controller has told of this broker; ``listener`` is the one it reaches the broker by.

        Raises `BarnabasError` when it does not.
        """
        try:
            async with asyncio.timeout(_METADATA_TIMEOUT_S):
                await self._ready
        except TimeoutError:
            raise BarnabasError(
                f"The controller (broker {self._node.controller.controller_id}) sent no metadata within "
                f"{_METADATA_TIMEOUT_S} s: look whether it can reach this broker's listener {listener}"
            ) from None

    def metadata_changed(self, *_: Any) -> None:
        """See whether the controller knows this broker."""
        node = self._node
        if not self._ready.done() and node.metadata.alive_broker(node.broker_id) is not None:
            self._ready.set_result(None)

    async def _watch_registration(self) -> None:
        node = self._node
        await node.coordination.exists(broker_path(node.broker_id), self._registration_changed)

    def _registration_changed(self, event: WatchEvent) -> None:
        if self._is_closing():
            return
        node = self._node
        if event.type is EventType.NODE_DELETED:
            logger.warning("Broker %d was taken for dead and registers anew", node.broker_id)
            node.controller.register_again()
        else:
            node.spawn(self._watch_registration())


async def _end_of(registration: Registration) -> None:
    """Wait until an earlier life's registration is over, and a moment more, in which the controller acts on that."""
    if not await registration.is_there():
        return
    logger.info("Waiting for the end of the registration that this broker left before its machine was started anew")
    while await registration.is_there():  # noqa: ASYNC110  # the coordination service is asked, nobody sets an event
        await asyncio.sleep(_PREDECESSOR_PAUSE_S)
    await asyncio.sleep(_PREDECESSOR_PAUSE_S)
