"""The edge of the death watch: connections to the brokers whose death this one must notice.

`DeathWatch` performs the steps that `watching` decides. Kafka has no counterpart: its controller
waits for the end of the dead broker's session.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.base.network import Connection, Network
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.steps import Pause
from barnabas.broker.membership.death_watch import watching
from barnabas.broker.membership.death_watch.watching import ConnectOutcome
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.wire.jute.errors import KeeperError

__all__ = ["DeathWatch"]

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_MS = 2000
_MAX_FRAME_BYTES = 1024
_REFUSED = (ConnectionRefusedError, ConnectionResetError)


class DeathWatch:
    """This broker's connections to those whose death it must notice."""

    def __init__(
        self,
        broker_id: int,
        interpreter: Interpreter,
        network: Network,
        metadata: MetadataCache,
        *,
        listener: str,
        is_controller: Callable[[], bool],
    ) -> None:
        """``listener`` is the name of the listener that brokers use among themselves."""
        self._broker_id = broker_id
        self._interpreter = interpreter
        self._network = network
        self._metadata = metadata
        self._listener = listener
        self._is_controller = is_controller
        self._watches: dict[int, _BrokerWatch] = {}
        self._is_closed = False

    def metadata_changed(self, *_: object) -> None:
        """Keep connections to those that must be watched now, at their present addresses."""
        if self._is_closed:
            return
        alive = {broker.broker_id: broker for broker in self._metadata.alive_brokers()}
        controller = self._broker_id if self._is_controller() else self._metadata.controller_id
        wanted = {
            broker_id: (endpoint.host, endpoint.port)
            for broker_id in watching.watched(self._broker_id, alive, controller)
            if broker_id in alive and (endpoint := alive[broker_id].endpoint(self._listener)) is not None
        }
        for broker_id, watch in tuple(self._watches.items()):
            if wanted.get(broker_id) != watch.address:
                watch.close()
                del self._watches[broker_id]
        for broker_id, address in wanted.items():
            if broker_id not in self._watches:
                first = partial(self._is_first_to_act, broker_id)
                self._watches[broker_id] = _BrokerWatch(self, self._network, broker_id, address, first)

    def _is_first_to_act(self, broker_id: int) -> bool:
        """The controller acts first, and for the controller all others do."""
        return self._is_controller() or broker_id == self._metadata.controller_id

    async def read_epoch(self, broker_id: int) -> int | None:
        """The czxid of a broker's registration.

        None when it is not registered, or that is unknown now."""
        try:
            return await self._interpreter.perform(watching.registered_epoch(broker_id))
        except KeeperError as error:
            logger.debug("Broker %d cannot be watched now: %s", broker_id, error)
            return None

    async def remove_broker(self, broker_id: int, epoch: int) -> None:
        """Remove the registration of this epoch, and /controller if the same session holds it."""
        try:
            await self._interpreter.perform(watching.remove_dead(broker_id, epoch))
        except KeeperError as error:
            logger.debug("The registration of broker %d could not be removed: %s", broker_id, error)

    async def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.close()
        await asyncio.gather(*(watch.task for watch in watches), return_exceptions=True)


class _BrokerWatch:
    """The connection to one broker, and its handler: only the connection's end matters."""

    def __init__(
        self,
        watch: DeathWatch,
        network: Network,
        broker_id: int,
        address: tuple[str, int],
        is_first_to_act: Callable[[], bool],
    ) -> None:
        self.address = address
        self._watch = watch
        self._network = network
        self._broker_id = broker_id
        self._steps = watching.watch_broker(is_first_to_act)
        self._broken = asyncio.Event()
        self._connection: Connection | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self.task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        result: Any = None
        while True:
            result = await self._perform(self._steps.send(result))

    async def _perform(self, step: watching.WatchStep) -> Any:
        match step:
            case watching.ReadEpoch():
                return await self._watch.read_epoch(self._broker_id)
            case watching.ConnectToBroker():
                return await self._connect()
            case watching.AwaitEnd():
                return await self._await_end()
            case watching.RemoveBroker(epoch):
                return await self._watch.remove_broker(self._broker_id, epoch)
            case Pause(ms):
                return await asyncio.sleep(ms / 1000)

    async def _connect(self) -> ConnectOutcome:
        host, port = self.address
        self._broken.clear()
        try:
            self._connection = await self._network.connect(
                host, port, lambda _: self, max_frame_bytes=_MAX_FRAME_BYTES, timeout_ms=_CONNECT_TIMEOUT_MS
            )
        except _REFUSED:
            return ConnectOutcome.REFUSED
        except (OSError, TimeoutError) as error:
            logger.debug("Broker %d cannot be watched now: %s", self._broker_id, error)
            return ConnectOutcome.UNKNOWN
        return ConnectOutcome.ACCEPTED

    async def _await_end(self) -> int:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self._broken.wait()
        self._connection = None
        return int(1000 * (loop.time() - began_s))

    # The connection's handler

    def frame(self, data: memoryview) -> None:
        """Nothing was requested; what comes all the same is ignored."""

    def bad_length(self, prefix: bytes) -> None:
        """Like `frame`: only the end of the connection matters."""

    def closed(self, error: Exception | None) -> None:  # noqa: ARG002  # the seam's signature
        """The other side is gone, or closed an idle connection."""
        self._broken.set()
