"""Follows the znodes of dynamic configuration while the broker runs (Kafka's `ZkConfigManager`)."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.base.clock import CallLater
from barnabas.broker.cluster.service import Interpreter, ZnodeFollower
from barnabas.broker.cluster.znodes import CONFIG_CHANGES
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.coordination.client import SessionEvent
from barnabas.wire.jute.errors import KeeperError

__all__ = ["ConfigManager"]

logger = logging.getLogger(__name__)

_RETRY_MS = 1000


class ConfigManager:
    """Reads everything at the start, then what the notes in ``/config/changes`` name."""

    def __init__(
        self,
        repository: ConfigRepository,
        interpreter: Interpreter,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        call_later: CallLater,
    ) -> None:
        self._repository = repository
        self._interpreter = interpreter
        self._spawn = spawn
        self._call_later = call_later
        self._reads_users = False
        # Notes stay for fifteen minutes: the next connection, or the next try, reads them again.
        self._notes = ZnodeFollower(
            CONFIG_CHANGES, self._process_changes, "Changes of configuration", spawn, call_later
        )

    async def load(self) -> None:
        """Read everything and begin to watch; before any log is opened."""
        await self._interpreter.perform(self._repository.load(), watch_for=self._notes.watch_for)

    def session_changed(self, event: SessionEvent) -> None:
        """Look, and watch again, in a new session."""
        if event is SessionEvent.CREATED:
            self._reads_users = True
            self._notes.changed()

    def load_topic_config(self, topic: str) -> None:
        """Read the configuration of a topic that is not known yet."""
        self._spawn(self._load_topic_config(topic))

    async def _load_topic_config(self, topic: str) -> None:
        try:
            await self._interpreter.perform(self._repository.load_topic_config(topic))
        except KeeperError as error:
            logger.warning("The configuration of %s could not be read; trying again: %s", topic, error)
            self._call_later(_RETRY_MS, lambda: self.load_topic_config(topic))

    async def _process_changes(self) -> None:
        await self._interpreter.perform(self._repository.process_changes(), watch_for=self._notes.watch_for)
        if self._reads_users:
            await self._interpreter.perform(self._repository.reload_users())
            self._reads_users = False
