"""Decides about large schemas without holding the event loop: the long work is done on a thread.

One thread serves all requests, so that a client with many large schemas takes turns with itself,
and the loop gets its turns from Python's scheduler in between.

Confluent's registry has no counterpart: each request has a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from barnabas.registry.core.long_work import FinishedWork, NotDoneYetError
from barnabas.registry.core.registry import Registry

__all__ = ["Deliberation", "Deliberations"]

T = TypeVar("T")
Decided = TypeVar("Decided")


class Deliberations:
    """Those of one registry. Used on its event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="schemas")

    def about(self, decide: Callable[[], Decided]) -> "Deliberation[Decided]":
        """That of one request; ``decide`` is an operation of the registry, and may run several
        times."""
        return Deliberation(self._registry, self._threads, decide)

    def close(self) -> None:
        """Wait for nothing: what runs ends by itself, the rest is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Deliberation(Generic[Decided]):
    """One request's decision, and what long work has found for it so far."""

    def __init__(self, registry: Registry, threads: ThreadPoolExecutor, decide: Callable[[], Decided]) -> None:
        self._registry = registry
        self._threads = threads
        self._decide = decide
        self._finished: FinishedWork = {}

    def decide(self) -> Decided:
        """Decide at once. Raises `NotDoneYetError` while long work is missing."""
        with self._registry.long_work.kept_in(self._finished):
            return self._decide()

    async def decided(self) -> Decided:
        """Decide, when all long work is done."""

        async def now() -> Decided:
            return self.decide()

        return await self.carried_out(now)

    async def carried_out(self, step: Callable[[], Awaitable[T]]) -> T:
        """What a step returns that calls `decide`; it is taken again after each long work."""
        while True:
            try:
                return await step()
            except NotDoneYetError as missing:
                loop = asyncio.get_running_loop()
                self._finished[missing.key] = await loop.run_in_executor(self._threads, missing.run)
