"""A follower's side of a fetch session (KIP-227): say only what changed since the request before.

The leader's broker keeps what we asked for; a request names partitions that are new or moved on, and those it may
forget. The session's epoch counts requests. After an error, a lost answer or a broken connection nobody knows what the
other side has: the next request is whole again, and names the old session so that it is dropped.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["FollowerSession", "SessionStep"]

NO_SESSION = 0
_INITIAL_EPOCH = 0
_MAX_EPOCH = (1 << 31) - 1

Key = TypeVar("Key")


class SessionStep(NamedTuple, Generic[Key]):
    """What one request carries."""

    session_id: int
    epoch: int
    ask: list[Key]
    forget: list[Key]


class FollowerSession(Generic[Key]):
    """The partitions that the other side knows, by key."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._known: dict[Key, None] = {}

    def next(self, wanted: Iterable[Key], changed: Iterable[Key], unwanted: Iterable[Key]) -> SessionStep[Key]:
        """The next request for all of ``wanted``, of which ``changed`` moved since they were last named."""
        if self._epoch == _INITIAL_EPOCH:
            self._known = dict.fromkeys(wanted)
            return SessionStep(self._id, _INITIAL_EPOCH, list(self._known), [])
        forget = [key for key in unwanted if key in self._known]
        for key in forget:
            del self._known[key]
        ask = list(changed)
        self._known.update(dict.fromkeys(ask))
        return SessionStep(self._id, self._epoch, ask, forget)

    def answered(self, session_id: int, error: int) -> bool:
        """An answer came. False when it is an error of the session: the next request is whole, and can go at once."""
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id, self._epoch = NO_SESSION, _INITIAL_EPOCH
            return False
        if error != ErrorCode.NONE:
            self.lost()
            return False
        if session_id == NO_SESSION:  # the other side keeps none for us
            self._id, self._epoch = NO_SESSION, _INITIAL_EPOCH
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """No answer came."""
        self._epoch = _INITIAL_EPOCH
