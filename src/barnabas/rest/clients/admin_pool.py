"""Questions about the cluster's state: a few threads, each with connections of its own.

A question that finds all threads busy waits; where too many wait, it is refused.

In Confluent's proxy: the `Admin` of `KafkaRestContext`.
"""

import asyncio
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.network.deadline import Deadline
from barnabas.rest.errors import RestCode, RestError

__all__ = ["AdminPool"]

T = TypeVar("T")

_THREADS = 4
_MOST_WAITING = 128


class AdminPool:
    """Runs blocking functions with a connection."""

    def __init__(self, properties: Mapping[str, str], timeout_s: float) -> None:
        """A function may take ``timeout_s``. Raises `ConfigError` for properties that are wrong."""
        self._properties = properties
        self._timeout_s = timeout_s
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="barnabas-rest-admin")
        self._free: queue.LifoQueue[Admin] = queue.LifoQueue()
        self._free.put(Admin(properties))
        self._running = 0

    async def run(self, function: Callable[[AdminConnection], T]) -> T:
        """What the function returns. Raises what it raises, and `RestError`."""
        if self._running >= _MOST_WAITING:
            raise RestError(RestCode.UNAVAILABLE, "too many requests wait for the cluster: try again later")
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._call, function)
        finally:
            self._running -= 1

    def _call(self, function: Callable[[AdminConnection], T]) -> T:
        try:
            admin = self._free.get_nowait()
        except queue.Empty:
            admin = Admin(self._properties)
        try:
            return function(admin.connection.with_deadline(Deadline(self._timeout_s)))
        finally:
            self._free.put(admin)

    async def close(self) -> None:
        """Close all connections, after the questions under way."""
        await asyncio.to_thread(self._executor.shutdown)
        while not self._free.empty():
            self._free.get_nowait().connection.close()
