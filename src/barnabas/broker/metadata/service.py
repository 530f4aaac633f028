"""Follows the znode ``/feature`` while the broker runs (Kafka's
`FinalizedFeatureChangeListener`)."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.base.clock import CallLater
from barnabas.broker.cluster.feature_znode import FeatureZnode, decode_feature
from barnabas.broker.cluster.service import Interpreter, ZnodeFollower
from barnabas.broker.cluster.steps import Read, Steps, Znode
from barnabas.broker.cluster.znodes import FEATURE, ZnodeFormatError
from barnabas.broker.metadata.features import NO_EPOCH, FeatureCache, IncompatibleFeaturesError
from barnabas.coordination.client import SessionEvent

__all__ = ["FeatureListener"]

logger = logging.getLogger(__name__)


class FeatureListener:
    """Keeps a `FeatureCache` up to date, and stops a broker that cannot follow."""

    def __init__(
        self,
        cache: FeatureCache,
        interpreter: Interpreter,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        call_later: CallLater,
        shut_down: Callable[[], None],
        *,
        is_enabled: bool,
    ) -> None:
        """``is_enabled``: whether inter.broker.protocol.version has features at all."""
        self._cache = cache
        self._interpreter = interpreter
        self._shut_down = shut_down
        self._is_enabled = is_enabled
        self._znode = ZnodeFollower(FEATURE, self._follow, FEATURE, spawn, call_later)

    async def load(self) -> None:
        """Read the znode and begin to watch it, before the broker registers.

        Raises `IncompatibleFeaturesError`.
        """
        if self._is_enabled:
            await self._interpreter.perform(self._read(), watch_for=self._znode.watch_for)

    def session_changed(self, event: SessionEvent) -> None:
        """Look, and watch again, in a new session."""
        if event is SessionEvent.CREATED and self._is_enabled:
            self._znode.changed()

    async def _follow(self) -> None:
        try:
            await self.load()
        except IncompatibleFeaturesError as error:
            logger.error("The broker stops. %s", error)
            self._shut_down()

    def _read(self) -> Steps[None]:
        (znode,) = yield Read([FEATURE], watch_absent=True)
        self._cache.learn(_contents(znode), NO_EPOCH if znode is None else znode.version)


def _contents(znode: Znode | None) -> FeatureZnode | None:
    if znode is None:
        return None
    try:
        return decode_feature(znode.data)
    except ZnodeFormatError as error:
        logger.error("No feature is finalized: %s", error)
        return None
