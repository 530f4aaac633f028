"""Notices at once that another broker's process died, long before its session with the coordination service ends.

The controller keeps an idle connection, a line, to every live broker, and every broker keeps one to the controller and
to the `_WITNESSES` brokers after it in the circle of ids. So the death of a controller is noticed, that of a broker that
dies with it, and, where the controller is Apache's and watches nobody, that of any of ours. A witness leaves some time
to the controller, which is the first to act if it can.

When a process dies its operating system closes its connections and refuses new ones. So a line that breaks is tried
again: a broker that takes the connection lives (a paused one does, its kernel answers for it); one whose port refuses
`_REFUSALS` times in a row, while its registration stays the one under which it took our connection, is gone. Any other
failure (time-outs, no route) proves nothing, and is left to the session. So is a broker that never took a connection
under its registration: Apache's register before they listen.

The sentence is carried out in the coordination service: the dead broker's ephemeral znodes are removed, as the end of
its session would do some seconds later. All else follows as ever. Should the broker live after all, nothing is at risk
but time: it finds its znode gone and registers anew, under a higher broker epoch; and whatever it led was moved by
raising the leader epoch in the partition's znode, so that it can neither change an in-sync set (the controller refuses
its old epochs) nor commit (the followers fetch from the new leader, and the high watermark waits for them). A witness
that a firewall refuses may be wrong once for each registration: it never takes a verdict about one that it could not
connect under.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from barnabas.base.network import Connection, Network
from barnabas.broker.cluster.znodes import CONTROLLER, ZnodeFormatError, broker_path, decode_controller
from barnabas.broker.requests.request import Node
from barnabas.coordination.client.operations import delete, get, multi
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["DeathWatch", "watched"]

logger = logging.getLogger(__name__)

_WITNESSES = 3
_WITNESS_GRACE_S = 0.25
_REFUSALS = 3
_BETWEEN_REFUSALS_S = 0.05
_AGAIN_S = 1.0
_CONNECT_TIMEOUT_MS = 2000
_MAX_FRAME_BYTES = 1024
_REFUSED = (ConnectionRefusedError, ConnectionResetError)


def watched(broker_id: int, alive: Iterable[int], controller: int) -> set[int]:
    """The brokers that this one keeps lines to; ``controller`` is its own id where it rules itself."""
    others = sorted(other for other in alive if other != broker_id)
    if controller == broker_id:
        return set(others)
    after = [other for other in others if other > broker_id] + [other for other in others if other < broker_id]
    return {*after[:_WITNESSES], controller}


class DeathWatch:
    """This broker's lines to those whose death it must notice. Made and closed by the server."""

    def __init__(self, node: Node, network: Network, listener: str) -> None:
        """``listener`` is the name of the listener that brokers use among themselves."""
        self._node = node
        self._network = network
        self._listener = listener
        self._lines: dict[int, _Line] = {}
        self._closed = False

    def metadata_changed(self, *_: object) -> None:
        """Keep lines to the brokers that this one must watch now."""
        if self._closed:
            return
        node = self._node
        alive = {broker.broker_id: broker for broker in node.metadata.alive_brokers()}
        controller = node.broker_id if node.controller.is_active else node.metadata.controller_id
        wanted = {
            broker_id: (endpoint.host, endpoint.port)
            for broker_id in watched(node.broker_id, alive, controller)
            if broker_id in alive and (endpoint := alive[broker_id].endpoint(self._listener)) is not None
        }
        for broker_id, line in tuple(self._lines.items()):
            if wanted.get(broker_id) != line.endpoint:
                line.close()
                del self._lines[broker_id]
        for broker_id, address in wanted.items():
            if broker_id not in self._lines:
                self._lines[broker_id] = _Line(self, self._network, broker_id, address)

    def is_first_to_act(self, broker_id: int) -> bool:
        """Whether nobody else is expected to notice: the controller, and for it all others."""
        node = self._node
        return node.controller.is_active or broker_id == node.metadata.controller_id

    async def registration(self, broker_id: int) -> int | None:
        """The czxid of a broker's registration; None when it is not registered."""
        stat = await self._node.coordination.exists(broker_path(broker_id))
        return None if stat is None else stat.czxid

    async def bury(self, broker_id: int, epoch: int) -> None:
        """Remove the registration of this epoch, and the office of controller if that session holds it."""
        client = self._node.coordination
        path = broker_path(broker_id)
        registered, office = await client.batch([get(path), get(CONTROLLER)])
        if isinstance(registered, KeeperError):
            return
        stat = registered[1]
        if stat.czxid != epoch:
            return  # it is back
        going = [delete(path, stat.version)]
        if not isinstance(office, KeeperError) and office[1].ephemeral_owner == stat.ephemeral_owner:
            with contextlib.suppress(ZnodeFormatError):
                if decode_controller(office[0]) == broker_id:
                    going.insert(0, delete(CONTROLLER, office[1].version))
        logger.warning("Broker %d is dead: its port refuses connections. Its registration %d goes", broker_id, epoch)
        (result,) = await client.batch([multi(going)])
        if isinstance(result, KeeperError) and result.code not in (ErrorCode.NO_NODE, ErrorCode.BAD_VERSION):
            raise result

    async def close(self) -> None:
        """Watch no more."""
        self._closed = True
        lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.close()
        await asyncio.gather(*(line.task for line in lines), return_exceptions=True)


class _Line:
    """The connection to one broker; its handler too, for nothing but its end is ever heard on it."""

    def __init__(self, watch: DeathWatch, network: Network, broker_id: int, endpoint: tuple[str, int]) -> None:
        self.endpoint = endpoint
        self._watch = watch
        self._network = network
        self._broker_id = broker_id
        self._broken = asyncio.Event()
        self._connection: Connection | None = None
        self._known_epoch = -1
        """The registration under which the broker took our connection."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self.task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while True:
            try:
                epoch = await self._watch.registration(self._broker_id)
                if epoch is not None:
                    if not await self._is_dead():
                        self._known_epoch = epoch
                    elif self._known_epoch == epoch:
                        if not self._watch.is_first_to_act(self._broker_id):
                            await asyncio.sleep(_WITNESS_GRACE_S)
                        await self._watch.bury(self._broker_id, epoch)
            except (KeeperError, OSError, TimeoutError) as error:
                logger.debug("Broker %d cannot be watched now: %s", self._broker_id, error)
            if self._connection is None:
                await asyncio.sleep(_AGAIN_S)
            else:
                began_s = loop.time()
                await self._broken.wait()
                self._connection = None
                # One that is closed right after it was taken was turned away: the broker has all that it may have.
                is_short = loop.time() - began_s < _AGAIN_S
                pause_s = min(max(2 * pause_s, _BETWEEN_REFUSALS_S), _AGAIN_S) if is_short else 0.0
                await asyncio.sleep(pause_s)

    async def _is_dead(self) -> bool:
        """Connect; True when the port refused again and again. Raises OSError for what proves nothing."""
        host, port = self.endpoint
        for attempt in range(_REFUSALS):
            if attempt:
                await asyncio.sleep(_BETWEEN_REFUSALS_S)
            self._broken.clear()
            try:
                self._connection = await self._network.connect(
                    host,
                    port,
                    lambda _: self,
                    max_frame_bytes=_MAX_FRAME_BYTES,
                    timeout_ms=_CONNECT_TIMEOUT_MS,
                )
            except _REFUSED:
                continue
            return False
        return True

    # What the connection tells

    def frame(self, data: memoryview) -> None:
        """Nobody was asked anything; what comes all the same is not read."""

    def bad_length(self, prefix: bytes) -> None:
        """As `frame`: only the end of the connection matters."""

    def closed(self, error: Exception | None) -> None:  # noqa: ARG002  # the seam's signature
        """The other side is gone, or had enough of an idle connection."""
        self._broken.set()
