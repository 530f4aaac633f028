"""Local sessions: those that one server of an ensemble keeps to itself, without a
transaction (localSessionsEnabled).

A local session costs the ensemble no write when it begins and ends. It can read, write and watch;
it cannot own ephemeral nodes. With localSessionsUpgradingEnabled the first ephemeral node makes it
a global session, under the same id; without, its creation is refused. A local session does not move
to another server: there it has expired.

In ZooKeeper: `LocalSessionTracker` and `UpgradeableSessionTracker`.
"""

from dataclasses import dataclass

from barnabas.coordination.core.operations.multi import decode_parts
from barnabas.coordination.core.sessions import LearnerSessionTracker, Session, SessionTracker
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.opcodes import CreateMode, OpCode
from barnabas.wire.jute.records import CreateRequest

__all__ = ["LocalSessions", "UpgradeableSessionTracker", "creates_ephemeral"]

_MODES = {mode.value: mode for mode in CreateMode}


@dataclass(frozen=True, slots=True)
class LocalSessions:
    """Whether sessions are local at first: the unit of their timeouts, and whether
    they may become global."""

    tick_ms: int
    may_upgrade: bool


def creates_ephemeral(opcode: int, body: bytes, max_parts: int | None) -> bool:
    """Whether a request creates an ephemeral node. One that cannot be read does not."""
    try:
        if opcode in (OpCode.CREATE, OpCode.CREATE2):
            return _is_ephemeral(decode(CreateRequest, body))
        if opcode == OpCode.MULTI:
            return any(_is_ephemeral(part) for _, part in decode_parts(body, 0, max_parts))
    except MalformedRecordError:
        pass
    return False


def _is_ephemeral(request: object) -> bool:
    mode = _MODES.get(request.flags) if isinstance(request, CreateRequest) else None
    return mode is not None and mode.is_ephemeral


class UpgradeableSessionTracker:
    """The global sessions, which another tracker knows, and beside them the local
    ones of this server.

    ``sessions`` has both.
    """

    def __init__(
        self, global_tracker: SessionTracker | LearnerSessionTracker, local: LocalSessions, now_ms: int
    ) -> None:
        self._global = global_tracker
        self._local = SessionTracker(local.tick_ms, 0, now_ms)
        self.sessions = global_tracker.sessions

    @property
    def local_count(self) -> int:
        """How many of the sessions are local."""
        return len(self._local.sessions)

    def is_local(self, session_id: int) -> bool:
        """Whether a session is local, and of this server."""
        return session_id in self._local.sessions

    def takes_part(self, session_id: int, opcode: int, body: bytes, max_parts: int | None) -> bool:
        """Whether a write is more than the session's being local allows: its end, or
        its first ephemeral node."""
        return session_id in self._local.sessions and (
            opcode == OpCode.CLOSE_SESSION or creates_ephemeral(opcode, body, max_parts)
        )

    def new_id(self) -> int:
        """An id that no session has had before."""
        return self._global.new_id()

    def track_local(self, session_id: int, timeout_ms: int, now_ms: int) -> Session:
        """Begin a local session."""
        session = self.sessions[session_id] = self._local.track(session_id, timeout_ms, now_ms)
        return session

    def upgrade(self, session: Session, now_ms: int) -> None:
        """Make a local session global; the caller sees to its transaction."""
        self._local.remove(session.id)
        session.expires_ms = 0
        self._global.track(session.id, session.timeout_ms, now_ms)
        self._global.touch(session, now_ms)

    def track(self, session_id: int, timeout_ms: int, now_ms: int) -> Session:
        """Track a global session."""
        if session_id in self._local.sessions:
            self.upgrade(self._local.sessions[session_id], now_ms)
        return self._global.track(session_id, timeout_ms, now_ms)

    def touch(self, session: Session, now_ms: int) -> None:
        """The session's client has sent something."""
        if session.id in self._local.sessions:
            self._local.touch(session, now_ms)
        else:
            self._global.touch(session, now_ms)

    def live(self, session_id: int) -> Session | None:
        """The session, unless it is unknown or closing."""
        session = self.sessions.get(session_id)
        return None if session is None or session.is_closing else session

    def expire(self, now_ms: int) -> list[Session]:
        """The sessions whose time is over, local ones among them."""
        return [*self._local.expire(now_ms), *self._global.expire(now_ms)]

    def remove(self, session_id: int) -> Session | None:
        """Remove a session that has ended."""
        if self._local.remove(session_id) is not None:
            return self.sessions.pop(session_id, None)
        return self._global.remove(session_id)
