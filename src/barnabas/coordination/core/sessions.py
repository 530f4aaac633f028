"""Sessions, their timeouts and their passwords: ZooKeeper's SessionTrackerImpl and ExpiryQueue.

Sessions expire by buckets of one tick: a session whose client sent something at ``now`` is in the
bucket of the first tick after ``now + timeout``. Each request moves it to a later bucket; when a
bucket's time has come, its sessions expire. So a session never expires early, expires at most one
tick late, and a request costs next to nothing.

A session's password is derived from its id as Apache's servers do it. So every server of an
ensemble accepts it, and so do Apache's server and ours on the same data.
"""

from barnabas.base.errors import BarnabasError

__all__ = [
    "MAX_SERVER_ID",
    "LearnerSessionTracker",
    "Session",
    "SessionTracker",
    "first_session_id",
    "session_password",
]

MAX_SERVER_ID = 0xFF
"""The id of a server that runs is the highest byte of the ids of its sessions."""

_SECRET = 0xB3415C00
_LCG_MASK = (1 << 48) - 1


def _java_random_bytes(seed: int, count: int) -> bytes:
    """The bytes of ``java.util.Random(seed).nextBytes``: its linear congruential
    generator, little-endian ints."""
    state = (seed ^ 0x5DEECE66D) & _LCG_MASK
    out = bytearray()
    while len(out) < count:
        state = (state * 0x5DEECE66D + 0xB) & _LCG_MASK
        out += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(out[:count])


def session_password(session_id: int) -> bytes:
    """The 16 bytes by which a client proves that the session is its own."""
    return _java_random_bytes(session_id ^ _SECRET, 16)


def first_session_id(server_id: int, wall_ms: int) -> int:
    """Where a server begins to count sessions: its id in the highest byte, then the
    time, so that ids are unique."""
    if not 0 <= server_id <= MAX_SERVER_ID:
        raise BarnabasError(f"server id {server_id} is not between 0 and {MAX_SERVER_ID}")
    value = (server_id << 56) | (wall_ms << 24 & (1 << 64) - 1) >> 8
    return value - (1 << 64) if value >> 63 else value


class Session:
    """One session; ``owner`` is its present connection, if any."""

    __slots__ = ("expires_ms", "id", "is_closing", "owner", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.expires_ms = 0
        self.is_closing = False
        self.owner: object | None = None


class SessionTracker:
    """All live sessions."""

    local_count = 0
    """None of them is local."""

    __slots__ = ("_buckets", "_next_bucket_ms", "_next_id", "_tick_ms", "sessions")

    def __init__(self, tick_ms: int, first_id: int, now_ms: int) -> None:
        self._tick_ms = tick_ms
        self._next_id = first_id
        self._buckets: dict[int, set[Session]] = {}
        self._next_bucket_ms = self._bucket(now_ms)
        self.sessions: dict[int, Session] = {}

    def _bucket(self, time_ms: int) -> int:
        return (time_ms // self._tick_ms + 1) * self._tick_ms

    def new_id(self) -> int:
        """An id that no session has had before."""
        self._next_id += 1
        while self._next_id in self.sessions:
            self._next_id += 1
        return self._next_id

    def track(self, session_id: int, timeout_ms: int, now_ms: int) -> Session:
        """Track a session; one that is tracked already gets the timeout."""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = Session(session_id, timeout_ms)
        session.timeout_ms = timeout_ms
        self.touch(session, now_ms)
        return session

    def touch(self, session: Session, now_ms: int) -> None:
        """The session's client has sent something: its timeout begins again."""
        # Like `_bucket`: the hot path.
        expires_ms = ((now_ms + session.timeout_ms) // self._tick_ms + 1) * self._tick_ms
        if expires_ms <= session.expires_ms or session.is_closing:
            return
        bucket = self._buckets.get(session.expires_ms)
        if bucket is not None:
            bucket.discard(session)
        session.expires_ms = expires_ms
        self._buckets.setdefault(expires_ms, set()).add(session)

    def live(self, session_id: int) -> Session | None:
        """The session, unless it is unknown or closing."""
        session = self.sessions.get(session_id)
        return None if session is None or session.is_closing else session

    def expire(self, now_ms: int) -> list[Session]:
        """The sessions whose time is over, marked as closing; the caller closes them."""
        expired: list[Session] = []
        if self._next_bucket_ms > now_ms:
            return expired
        for expires_ms in sorted(each for each in self._buckets if each <= now_ms):
            expired += self._buckets.pop(expires_ms)
        self._next_bucket_ms = self._bucket(now_ms)
        for session in expired:
            session.is_closing = True
        return sorted(expired, key=lambda session: session.id)

    def remove(self, session_id: int) -> Session | None:
        """Remove a session that has ended."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            bucket = self._buckets.get(session.expires_ms)
            if bucket is not None:
                bucket.discard(session)
                if not bucket:
                    del self._buckets[session.expires_ms]
        return session


class LearnerSessionTracker:
    """All sessions, as a learner knows them: it reports which of them sent something, and its
    leader decides which expire.

    In ZooKeeper: LearnerSessionTracker.
    """

    local_count = 0
    """None of them is local."""

    __slots__ = ("_next_id", "_touched", "sessions")

    def __init__(self, first_id: int) -> None:
        self._next_id = first_id
        self._touched: dict[int, int] = {}
        self.sessions: dict[int, Session] = {}

    def new_id(self) -> int:
        """An id that no session has had before."""
        self._next_id += 1
        while self._next_id in self.sessions:
            self._next_id += 1
        return self._next_id

    def track(self, session_id: int, timeout_ms: int, now_ms: int) -> Session:  # noqa: ARG002  # as SessionTracker.track
        """Know a session; one that is known already gets the timeout."""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = Session(session_id, timeout_ms)
        session.timeout_ms = timeout_ms
        return session

    def touch(self, session: Session, now_ms: int) -> None:  # noqa: ARG002  # as SessionTracker.touch
        """The session's client has sent something: the leader learns it with the next ping."""
        self._touched[session.id] = session.timeout_ms

    def take_touched(self) -> dict[int, int]:
        """The sessions whose clients sent something since the last call, with their
        timeouts in ms."""
        touched, self._touched = self._touched, {}
        return touched

    def live(self, session_id: int) -> Session | None:
        """The session, if it is known."""
        return self.sessions.get(session_id)

    def expire(self, now_ms: int) -> list[Session]:  # noqa: ARG002  # as SessionTracker.expire
        """None: the leader expires sessions."""
        return []

    def remove(self, session_id: int) -> Session | None:
        """Remove a session that has ended."""
        self._touched.pop(session_id, None)
        return self.sessions.pop(session_id, None)
