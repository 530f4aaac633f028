"""A thread with an event loop for one server of a `barnabas.testing.Cluster`.

A thread of its own lets one server stand still, or wait for its slow disk, while the others go on.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["ServerThread", "ServiceThread"]

Result = TypeVar("Result")


class _Service(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


Service = TypeVar("Service", bound=_Service)


class ServerThread:
    """Runs from its construction to `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = _new_event_loop()
        self._continue = threading.Event()
        self._continue.set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Run a coroutine on the loop.

        The future may be waited for in any thread, and cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop, and wait for it."""
        return self.submit(work).result()

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call a function on the loop."""
        self._loop.call_soon_threadsafe(callback)

    def pause(self) -> None:
        """Stand still: the loop serves nothing, and its connections stay open.

        Returns when it does."""
        reached = threading.Event()
        self._continue.clear()

        def stand_still() -> None:
            reached.set()
            self._continue.wait()

        self._loop.call_soon_threadsafe(stand_still)
        reached.wait()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._continue.set()

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return not self._continue.is_set()

    def stop(self) -> None:
        """End the loop and the thread; what still runs on it is cancelled."""
        self.resume()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def end(self) -> None:
        """The same, called on the loop itself: the thread ends soon after."""
        self._loop.stop()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class ServiceThread(Generic[Service]):
    """A server beside the brokers, on a thread of its own."""

    def __init__(self, name: str, make: Callable[[], Service]) -> None:
        """Start what ``make`` makes there. Raises what keeps it from starting."""
        self._thread = ServerThread(name)
        self._is_stopped = False

        async def start() -> Service:
            service = make()
            await service.start()
            return service

        try:
            self.service = self._thread.call(start())
        except BaseException:
            self._thread.stop()
            raise

    def stop(self) -> None:
        """Stop it, cleanly; a second call does nothing."""
        if not self._is_stopped:
            self._is_stopped = True
            self._thread.call(self.service.close())
            self._thread.stop()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """A server's loop without its budget: these threads wait for each other's and the test's
    hold on the interpreter."""
    with contextlib.suppress(ImportError):
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()
