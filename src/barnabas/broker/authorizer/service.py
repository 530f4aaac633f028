"""Keeps the authorizer to the znodes while the broker runs, and changes them: the edge here.

All that reads or writes the znodes here is done one after the other, some patterns at a time.

In Kafka: `AclAuthorizer`, with its lock and its change listeners.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas.base.clock import CallLater
from barnabas.broker.authorizer.acl_store import UNREADABLE_RETRY_MS, AclDeleteResult, AclStore
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.cluster.service import Interpreter, WatchFor, ZnodeFollower
from barnabas.broker.cluster.steps import Done, Steps, Wait
from barnabas.coordination.client import SessionEvent
from barnabas.coordination.client.operations import WatchCallback
from barnabas.security.acls import AclBinding, AclBindingFilter, PatternType
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["AclManager"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AclManager:
    """Reads all entries at the start, then what the notes of brokers name; adds and removes
    entries."""

    def __init__(
        self,
        authorizer: Authorizer,
        store: AclStore,
        interpreter: Interpreter,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        call_later: CallLater,
    ) -> None:
        self.authorizer = authorizer
        self._store = store
        self._interpreter = interpreter
        self._spawn = spawn
        self._call_later = call_later
        self._retries = False
        """Whether znodes that cannot be read will be read again."""
        self._lock = asyncio.Lock()
        self._must_reload = False
        store.in_turn = self._in_turn
        self._followers = [
            ZnodeFollower(notes.root, partial(self._follow, pattern_type), notes.root, spawn, call_later)
            for pattern_type, notes in store.notes.items()
        ]

    async def load(self) -> None:
        """Read all entries and begin to watch; before clients may connect.

        Raises `KeeperError` or `ZnodeFormatError`: without its entries no broker serves."""
        await self._perform(self._store.load(), self._watch_for)

    def session_changed(self, event: SessionEvent) -> None:
        """Read everything, and watch again, in a new session."""
        if event is SessionEvent.CREATED:
            self._must_reload = True
            for follower in self._followers:
                follower.changed()

    def create(self, bindings: Sequence[AclBinding]) -> Steps[list[KafkaError | KeeperError | None]]:
        """See `AclStore.create`."""
        return self._store.create(bindings)

    def delete(self, filters: Sequence[AclBindingFilter]) -> Steps[list[AclDeleteResult]]:
        """See `AclStore.delete`."""
        return self._store.delete(filters)

    def _in_turn(self, steps: Steps[None]) -> Steps[None]:
        def begin(done: Done) -> None:
            self._spawn(self._hand_over(steps, done))

        yield Wait(begin)

    async def _hand_over(self, steps: Steps[None], done: Done) -> None:
        try:
            await self._perform(steps)
        except Exception as error:
            done(None, error)
        else:
            done(None, None)

    async def _follow(self, pattern_type: PatternType) -> None:
        if self._must_reload:
            self._must_reload = False
            try:
                await self._perform(self._store.reload(), self._watch_for)
            except BaseException:
                self._must_reload = True
                raise
        # Not in turn: what clients add and remove need not wait.
        await self._interpreter.perform(self._store.notes[pattern_type].pause())
        await self._perform(self._store.process_changes(pattern_type), self._watch_for)

    def _retry_later(self) -> None:
        if self.authorizer.unreadable and not self._retries:
            self._retries = True
            self._call_later(UNREADABLE_RETRY_MS, lambda: self._spawn(self._retry_unreadable()))

    async def _retry_unreadable(self) -> None:
        self._retries = False
        try:
            await self._perform(self._store.retry_unreadable())
        except KeeperError as error:
            logger.warning("ACLs that could not be read were not read again: %s", error)

    async def _perform(self, steps: Steps[T], watch_for: WatchFor = lambda _: None) -> T:
        try:
            async with self._lock:
                return await self._interpreter.perform(steps, watch_for=watch_for)
        finally:
            self._retry_later()

    def _watch_for(self, path: str) -> WatchCallback | None:
        return next((watch for follower in self._followers if (watch := follower.watch_for(path)) is not None), None)
