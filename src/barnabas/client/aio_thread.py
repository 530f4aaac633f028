"""A thread for the blocking calls of one asyncio client.

Kafka has no counterpart.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from barnabas.client.errors import ClosedError

__all__ = ["InOneThread"]

T = TypeVar("T")


class InOneThread:
    """Runs blocking calls in a thread of its own, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"barnabas-{name}")
        self._has_ended = False

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raised; `ClosedError` after `end`."""
        if self._has_ended:
            raise ClosedError(self._name)
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def end(self) -> None:
        """Let the thread end after the calls under way."""
        self._has_ended = True
        self._executor.shutdown(wait=False)
