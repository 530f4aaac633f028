"""A program's polls: whether they are regular, and what a rebalance has to do inside of one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

__all__ = ["Polls"]


class Polls:
    """A context manager around each poll."""

    def __init__(self, most_ms: int) -> None:
        self._most_s = most_ms / 1000
        self._changes: deque[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = deque()
        self._last_s = 0.0
        self._is_polling = False

    def __enter__(self) -> Self:
        self._is_polling = True
        # A killed program leaves its poll when no loop runs any more.
        self._loop = asyncio.get_running_loop()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_polling = False
        self._last_s = self._loop.time()

    @property
    def are_regular(self) -> bool:
        """Whether the last one is not longer ago than ``max.poll.interval.ms``."""
        return self._is_polling or asyncio.get_running_loop().time() - self._last_s < self._most_s

    async def serve(self, change: Callable[[], Awaitable[None]]) -> None:
        """Have something done inside the program's next poll, as callbacks of a rebalance are."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.append((change, done))
        await done

    async def serve_changes(self) -> None:
        """Do what waits; a change that nothing waits for any more is left out."""
        while self._changes:
            change, done = self._changes.popleft()
            if done.done():
                continue
            try:
                await change()
            finally:
                if not done.done():
                    done.set_result(None)

    def forget_changes(self) -> None:
        """Nothing waits any more."""
        self._changes.clear()
