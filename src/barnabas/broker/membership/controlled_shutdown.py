"""Controlled shutdown: a broker that stops has the controller move its leaders first, so that clients miss none.

The controller of the moment may stop too (when brokers stop together), or be gone for as long as a session lasts: the
broker then asks the next one, as often as controlled.shutdown.max.retries allows. Nobody could move anything without the
coordination service: when that is away, the broker stops without.
"""

import asyncio
import contextlib
import logging

from barnabas.broker.requests.request import Node
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.controlled_shutdown import ControlledShutdownRequest

__all__ = ["leave_cluster"]

logger = logging.getLogger(__name__)

_COORDINATION_AWAY_MS = 2000


async def leave_cluster(node: Node) -> None:
    """Hand leadership over, if there is anyone to take it and a controller to arrange it."""
    if not node.settings["controlled.shutdown.enable"] or len(tuple(node.metadata.alive_brokers())) < 2:
        return
    leaving, cut_off = (asyncio.ensure_future(work) for work in (_leave(node), _cut_off(node)))
    await asyncio.wait((leaving, cut_off), return_when=asyncio.FIRST_COMPLETED)
    if leaving.done():
        leaving.result()
    else:
        logger.warning("Stopping without controlled shutdown: there is no coordination service")
    leaving.cancel()
    cut_off.cancel()
    await asyncio.wait((leaving, cut_off))


async def _leave(node: Node) -> None:
    """Ask controllers until one has moved our leaders, or as often as the settings say."""
    timeout_s = node.settings["controller.socket.timeout.ms"] / 1000
    for attempt in range(max(node.settings["controlled.shutdown.max.retries"], 1)):
        asked = _known_controllers(node)
        asking = asyncio.ensure_future(_ask_to_leave(node))
        try:
            await asyncio.wait((asking,), timeout=timeout_s)
            error = asking.exception() if asking.done() else f"no answer within {timeout_s} s"
        finally:
            asking.cancel()
        if error is None:
            if remaining := asking.result():
                logger.info("No other broker can lead %d of our partitions", remaining)
            return
        logger.warning("Controlled shutdown, attempt %d: %s", attempt + 1, error)
        await _another_controller(node, asked)


async def _ask_to_leave(node: Node) -> int:
    """Have the controller, this broker or another, move our leaders; how many partitions stay with us."""
    controller = node.controller
    if controller.is_active:
        return len(await controller.shut_down_broker(node.broker_id, node.broker_epoch))
    request = ControlledShutdownRequest(broker_id=node.broker_id, broker_epoch=node.broker_epoch)
    known = controller.controller_id if controller.controller_id >= 0 else node.metadata.controller_id
    response = await node.channels.send(known, request)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    return len(response.remaining_partitions)


def _known_controllers(node: Node) -> tuple[int, int]:
    """Who holds the office, and who spoke last as its holder."""
    return node.controller.controller_id, node.metadata.controller_id


async def _another_controller(node: Node, than: tuple[int, int]) -> None:
    """Wait for one to take over, when brokers stop together: a first attempt may fail because it stops too."""
    news = asyncio.Event()
    node.metadata.on_update(lambda *_: news.set())
    backoff_ms = node.settings["controlled.shutdown.retry.backoff.ms"]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(backoff_ms / 1000):
            while _known_controllers(node) == than:
                news.clear()
                await news.wait()


async def _cut_off(node: Node) -> None:
    """Return when the coordination service is away for good, and with it everyone who could arrange anything."""
    with contextlib.suppress(KeeperError):
        while True:
            await node.coordination.wait_connected(_COORDINATION_AWAY_MS)
            await asyncio.sleep(_COORDINATION_AWAY_MS / 1000)
