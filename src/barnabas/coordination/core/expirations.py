"""What ends because its time is over: sessions, and container and TTL nodes.

Thousands of them may be due at once, as the sessions of clients behind a link that fails. So they
are only found here, and `Processor.propose_due` proposes their ends one at a time: the edge serves
clients between two slices of that.

A session that is found is closing from that moment on: its client can neither write nor come back.

In ZooKeeper: the thread of `SessionTrackerImpl`, and `ContainerManager`.
"""

import logging
from collections import deque
from collections.abc import Iterator

from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker
from barnabas.coordination.core.sessions import LearnerSessionTracker, Session, SessionTracker
from barnabas.coordination.core.statistics import Statistics
from barnabas.coordination.core.tree import Tree

__all__ = ["Expirations"]

logger = logging.getLogger(__name__)


class Expirations:
    """See the module."""

    def __init__(
        self,
        tracker: SessionTracker | LearnerSessionTracker | UpgradeableSessionTracker,
        tree: Tree,
        statistics: Statistics,
    ) -> None:
        self._tracker = tracker
        self._tree = tree
        self._statistics = statistics
        self._sessions: deque[Session] = deque()
        self._nodes: Iterator[str | None] = iter(())
        self._left = 0
        """How many nodes may still be deleted."""

    @property
    def has_more(self) -> bool:
        """Whether `next` may find something."""
        return bool(self._sessions) or self._left > 0

    def tick(self, now_ms: int) -> None:
        """Find the sessions whose time is over. To be called at least once a tick."""
        self._sessions += self._tracker.expire(now_ms)

    def sweep(self, wall_ms: int, limit: int, never_used_ms: int = 0) -> None:
        """Look for up to ``limit`` of the nodes that `Tree.due_containers` names, unless
        such a look is under way."""
        if not self._left:
            self._nodes = self._tree.due_containers(wall_ms, never_used_ms)
            self._left = limit

    def next(self) -> Session | str | None:
        """A session to close, or the path of a node to delete.

        None: there is nothing in this step, see `has_more`."""
        if self._sessions:
            session = self._sessions.popleft()
            self._statistics.expired_sessions += 1
            session_id = session.id & (1 << 64) - 1
            logger.info("Expiring session 0x%x, timeout of %dms exceeded", session_id, session.timeout_ms)
            return session
        if not self._left:
            return None
        try:
            path = next(self._nodes)
        except StopIteration:
            self._left = 0
            return None
        if path is not None:
            self._left -= 1
        return path
