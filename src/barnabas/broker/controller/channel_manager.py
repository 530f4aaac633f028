"""The controller's requests on their way (Kafka's `ControllerChannelManager`): one
queue for each broker.

A broker must get every request in the order of the decisions, or miss all from some point on
because it is gone. So a request that fails is sent again as long as its broker is registered under
the same epoch. Brokers reject requests older than what they know, so a repetition does no harm.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from barnabas.broker.controller.context import ControllerContext

__all__ = ["ChannelsToBrokers", "ControllerChannelManager"]

logger = logging.getLogger(__name__)

_PAUSE_S = 0.1


class ChannelsToBrokers(Protocol):
    """How requests reach brokers, this one included."""

    def set_brokers(self, endpoints: Mapping[int, tuple[str, int]]) -> None:
        """Where live brokers listen for brokers."""
        ...

    async def send(self, broker_id: int, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The response; raises an exception when there is none."""
        ...


OnResponse = Callable[[int, int, Any, Any], None]
"""``(broker, controller epoch, request, response)``"""


class ControllerChannelManager:
    """All queues of one term as controller.

    `open` begins a term, `close` ends it and forgets what was not sent."""

    def __init__(
        self,
        channels: ChannelsToBrokers,
        on_response: OnResponse,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._channels = channels
        self._on_response = on_response
        self._spawn = spawn
        self._sleep = sleep
        self._term = 0
        self._is_open = False
        self._queues: dict[tuple[int, int], deque[Any]] = {}
        self._endpoints: dict[int, tuple[str, int]] = {}

    def open(self) -> None:
        self._term += 1
        self._is_open = True
        self._endpoints = {}

    def close(self) -> None:
        self._is_open = False
        self._term += 1
        self._queues = {}

    def send(self, context: ControllerContext, requests: Sequence[tuple[int, Any]], listener: str) -> None:
        """Queue requests; returns at once."""
        if not self._is_open:
            return
        endpoints = {
            info.id: (endpoint.host, endpoint.port)
            for info in context.brokers.values()
            if (endpoint := info.endpoint(listener)) is not None
        }
        if endpoints != self._endpoints:
            self._endpoints = endpoints
            self._channels.set_brokers(endpoints)
        for broker, request in requests:
            key = (broker, request.broker_epoch)
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque([request])
                self._spawn(self._drain(context, key, queue, self._term))
            else:
                queue.append(request)

    async def _drain(self, context: ControllerContext, key: tuple[int, int], queue: deque[Any], term: int) -> None:
        broker, broker_epoch = key
        while queue and term == self._term:
            info = context.brokers.get(broker)
            if info is None or info.epoch != broker_epoch:
                break
            try:
                response = await self._channels.send(broker, queue[0])
            except Exception as error:
                logger.warning("%s for broker %d waits: %s", type(queue[0]).__name__, broker, error)
                await self._sleep(_PAUSE_S)
                continue
            request = queue.popleft()
            if term == self._term:
                self._on_response(broker, context.epoch, request, response)
            # This broker answers itself at once: let the loop have its turn between two requests.
            await self._sleep(0)
        if term == self._term and self._queues.get(key) is queue:
            del self._queues[key]
