"""The states of a server, and of its log, with the transitions that there are.

    SERVER_TRANSITIONS     whether clients are served: ZooKeeperServer.State
    LOG_TRANSITIONS        whether a thread writes the log

Code outside asks for a state, or for what follows from it (`ServerStates.is_serving`); only an
event changes it.

In ZooKeeper: `ZooKeeperServer.State`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

__all__ = [
    "LOG_TRANSITIONS",
    "SERVER_TRANSITIONS",
    "LogEvent",
    "LogState",
    "ServerEvent",
    "ServerState",
    "ServerStates",
    "StateMachine",
    "UnknownEventError",
]


class ServerState(Enum):
    """Where a server stands; the values are ZooKeeper's, as far as it has the state."""

    INITIAL = "INITIAL"
    """It is not started, or loads its state."""
    WAITING = "WAITING"
    """Its port is open, and it turns clients away: it has no role, or a snapshot takes the place of
    its state."""
    RUNNING = "RUNNING"
    """It serves clients."""
    ERROR = "ERROR"
    """Its log or its membership failed; it takes no requests any more."""
    SHUTDOWN = "SHUTDOWN"
    """It is closed, or about to be: what was decided is still logged and answered."""


class ServerEvent(Enum):
    """What moves a server from one state to another."""

    OPENED = "the state is loaded"
    SERVES = "there is a processor for clients"
    STOPS_SERVING = "the role ends, or a snapshot is restored"
    FAILED = "the log or the member failed"
    CLOSED = "the server is closed"


_E, _S = ServerEvent, ServerState

SERVER_TRANSITIONS: Mapping[ServerState, Mapping[ServerEvent, ServerState]] = {
    _S.INITIAL: {_E.OPENED: _S.WAITING},
    _S.WAITING: {
        _E.SERVES: _S.RUNNING,
        _E.STOPS_SERVING: _S.WAITING,
        _E.FAILED: _S.ERROR,
        _E.CLOSED: _S.SHUTDOWN,
    },
    _S.RUNNING: {
        _E.SERVES: _S.RUNNING,
        _E.STOPS_SERVING: _S.WAITING,
        _E.FAILED: _S.ERROR,
        _E.CLOSED: _S.SHUTDOWN,
    },
    # A member goes on through its roles until it is closed.
    _S.ERROR: {_E.SERVES: _S.ERROR, _E.STOPS_SERVING: _S.ERROR, _E.FAILED: _S.ERROR, _E.CLOSED: _S.SHUTDOWN},
    # Its last sync may fail, and a snapshot may be restored to its end.
    _S.SHUTDOWN: {_E.SERVES: _S.SHUTDOWN, _E.STOPS_SERVING: _S.SHUTDOWN, _E.FAILED: _S.SHUTDOWN},
}


class LogState(Enum):
    """What happens to transactions that are decided."""

    IDLE = "idle"
    """All that was given to the log is on stable storage."""
    WRITING = "writing"
    """A thread writes and syncs a batch; what is decided meanwhile forms the next one."""
    ENDING = "ending"
    """The batch that a thread writes is the last one."""
    ENDED = "ended"
    """Nothing is logged any more."""


class LogEvent(Enum):
    """What moves a log from one state to another."""

    WRITES = "a batch is given to the thread"
    WRITTEN = "the thread is done with it, or failed"
    ENDS = "nothing more may be logged"


_L, _W = LogState, LogEvent

LOG_TRANSITIONS: Mapping[LogState, Mapping[LogEvent, LogState]] = {
    _L.IDLE: {_W.WRITES: _L.WRITING, _W.ENDS: _L.ENDED},
    _L.WRITING: {_W.WRITTEN: _L.IDLE, _W.ENDS: _L.ENDING},
    _L.ENDING: {_W.WRITTEN: _L.ENDED, _W.ENDS: _L.ENDING},
    _L.ENDED: {_W.ENDS: _L.ENDED},
}


class UnknownEventError(RuntimeError):
    """A state does not know the event: a defect of this program."""


State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


class StateMachine(Generic[State, Event]):
    """A state that only events of its table change."""

    __slots__ = ("_transitions", "state")

    def __init__(self, transitions: Mapping[State, Mapping[Event, State]], first: State) -> None:
        self._transitions = transitions
        self.state = first

    def on(self, event: Event) -> None:
        """Make the transition of an event. Raises `UnknownEventError` where the table has none."""
        after = self._transitions[self.state].get(event)
        if after is None:
            raise UnknownEventError(f"{self.state} knows no {event}")
        self.state = after


class ServerStates(StateMachine[ServerState, ServerEvent]):
    """The states of one server."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(SERVER_TRANSITIONS, ServerState.INITIAL)

    @property
    def is_open(self) -> bool:
        """Whether it is started, and not closed."""
        return self.state not in (ServerState.INITIAL, ServerState.SHUTDOWN)

    @property
    def is_serving(self) -> bool:
        """Whether clients are served."""
        return self.state is ServerState.RUNNING

    @property
    def is_closing(self) -> bool:
        """Whether no more requests are taken."""
        return self.state in (ServerState.ERROR, ServerState.SHUTDOWN)
