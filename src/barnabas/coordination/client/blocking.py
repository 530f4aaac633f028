"""The client for threads and tools without an event loop: it runs one in a thread of its own.

In ZooKeeper: the synchronous methods of the class `ZooKeeper`.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self, TypeVar

from barnabas.base.network import Network
from barnabas.base.randomness import Random
from barnabas.coordination.client.connection import CoordinationClient
from barnabas.coordination.client.session import SaslClient

__all__ = ["BlockingClient"]

T = TypeVar("T")

# Callers get errors; where no logging is set up, Python would print the warnings besides.
logging.getLogger("barnabas.coordination.client").addHandler(logging.NullHandler())


class BlockingClient:
    """A `CoordinationClient` on a loop and a thread of its own; every call waits."""

    def __init__(
        self,
        network: Callable[[], Network],
        servers: str,
        *,
        rng: Random,
        session_timeout_ms: int = 18_000,
        new_sasl_client: Callable[[], SaslClient] | None = None,
        patience_ms: int | None = None,
    ) -> None:
        """``patience_ms`` is how long a request waits while there is no connection.

        None is for as long as the session may live.
        """
        self._patience_ms = patience_ms
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="coordination-client", daemon=True)
        self._thread.start()

        async def build() -> CoordinationClient:
            return CoordinationClient(
                network(), servers, rng=rng, session_timeout_ms=session_timeout_ms, new_sasl_client=new_sasl_client
            )

        try:
            self.client = self._wait(build())
        except BaseException:
            self._end_thread()
            raise

    def start(self, timeout_ms: int) -> None:
        """See `CoordinationClient.start`."""
        self._wait(self.client.start(timeout_ms))

    def call(self, request: Callable[[CoordinationClient], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Wait for ``request(client)``: ``blocking.call(lambda client: client.get("/brokers"))``.

        Raises CONNECTION_LOSS when there has been no connection for ``patience_ms``, and
        TimeoutError after ``timeout_s``; without it a call waits for as long as it takes. The
        outcome is unknown in both cases.
        """
        return self._wait(self._run(request), timeout_s)

    async def _run(self, request: Callable[[CoordinationClient], Awaitable[T]]) -> T:
        if self._patience_ms is None:
            return await request(self.client)
        asked = asyncio.ensure_future(request(self.client))
        watching = asyncio.ensure_future(self.client.watch_connection(self._patience_ms))
        try:
            await asyncio.wait({asked, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                watching.result()
            return asked.result()
        finally:
            for task in (asked, watching):
                task.cancel()
            await asyncio.gather(asked, watching, return_exceptions=True)

    def close(self) -> None:
        """End the session and the thread."""
        try:
            self._wait(self.client.close())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise
