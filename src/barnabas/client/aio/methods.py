"""Methods of a client for asyncio, made from those of the blocking client under it: their
signatures stand once, there.

Kafka has no counterpart.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from barnabas.client.aio.thread import InOneThread

__all__ = ["awaited", "direct"]

P = ParamSpec("P")
T = TypeVar("T")
Blocking = TypeVar("Blocking")
Blocking_co = TypeVar("Blocking_co", covariant=True)


class _Twin(Protocol[Blocking_co]):
    """A client for asyncio."""

    @property
    def blocking(self) -> Blocking_co:
        """The client underneath."""

    @property
    def thread(self) -> InOneThread:
        """The one in which it may block."""


def awaited(
    method: Callable[Concatenate[Blocking, P], T],
) -> Callable[Concatenate[_Twin[Blocking], P], Coroutine[Any, Any, T]]:
    """The same method, to be awaited: it runs in the client's thread, in turn."""

    @functools.wraps(method)
    async def call(self: _Twin[Blocking], /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self.thread.run(lambda: method(self.blocking, *arguments, **named))

    return call


def direct(method: Callable[Concatenate[Blocking, P], T]) -> Callable[Concatenate[_Twin[Blocking], P], T]:
    """The same method, which does not block."""

    @functools.wraps(method)
    def call(self: _Twin[Blocking], /, *arguments: P.args, **named: P.kwargs) -> T:
        return method(self.blocking, *arguments, **named)

    return call
