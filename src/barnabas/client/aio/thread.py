"""A thread for the blocking calls of one asyncio client.

A call may call back, as a consumer does when partitions come and go. The callback may be a
coroutine function: the thread waits for it, and meanwhile makes the calls that it awaits, such as
`AsyncConsumer.seek`. Calls of other tasks wait as always.

Kafka has no counterpart.
"""

import asyncio
import inspect
import queue
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from barnabas.client.errors import ClosedError

__all__ = ["InOneThread"]

T = TypeVar("T")

_LOOK_S = 0.5  # how soon a callback that nothing runs any more is noticed


class _Calls:
    """The calls that a callback awaits. Only the loop's thread adds some, and ends it."""

    def __init__(self) -> None:
        self.is_open = True
        self.waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def end(self, _: object) -> None:
        self.is_open = False
        self.waiting.put(None)


class InOneThread:
    """Runs blocking calls in a thread of its own, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"barnabas-{name}")
        self._has_ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._of_callback: ContextVar[_Calls | None] = ContextVar(f"calls of a {name}'s callback", default=None)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raised; `ClosedError` after `end`."""
        if self._has_ended:
            raise ClosedError(self._name)
        self._loop = asyncio.get_running_loop()
        calls = self._of_callback.get()
        if calls is None or not calls.is_open:
            return await self._loop.run_in_executor(self._executor, function, *arguments)
        result: Future[T] = Future()
        calls.waiting.put(lambda: _settle(result, function, *arguments))
        return await asyncio.wrap_future(result)

    def call_back(self, callback: Callable[..., Awaitable[None] | None], *arguments: Any) -> None:
        """Call it from within a call of this thread, and wait for it in the loop if it
        is a coroutine function."""
        outcome = callback(*arguments)
        if not inspect.isawaitable(outcome):
            return
        assert self._loop is not None
        calls = _Calls()

        async def awaited() -> None:
            self._of_callback.set(calls)
            await outcome

        done = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        done.add_done_callback(calls.end)
        while True:
            try:
                call = calls.waiting.get(timeout=_LOOK_S)
            except queue.Empty:
                if self._loop.is_closed():
                    raise ClosedError(self._name) from None
                continue
            if call is None:
                break
            call()
        done.result()

    def end(self) -> None:
        """Let the thread end after the calls under way."""
        self._has_ended = True
        self._executor.shutdown(wait=False)


def _settle(result: "Future[T]", function: Callable[..., T], *arguments: Any) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(function(*arguments))
    except BaseException as error:
        result.set_exception(error)
