"""What a client's connection is doing: its states, with the transitions that there are.

A connection serves one request at a time, or several that arrived together. What is served is kept
beside the state while that is SERVING or WAITING. Requests that a fast path answers at once change
no state.

In Kafka: `KafkaChannel.ChannelMuteState`.
"""

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["CONNECTION_TRANSITIONS", "ConnectionEvent", "ConnectionState", "states_after"]


class ConnectionState(IntEnum):
    """Where a connection stands."""

    IDLE = 0
    """Nothing is served; the next frame may come."""
    PASSED_ON = 1
    """The fast path has left the next frame to the handler of its API."""
    SERVING = 2
    """A handler runs while the connection hands on its frame: it is not paused, so an answer now
    need not resume it."""
    WAITING = 3
    """The connection is paused until the answer: the request is decoded in slices, its handler
    answers later, or its answer is encoded in slices. Or requests that the fast path has served
    wait."""
    CLOSED = 4
    """The client is gone: nothing is delivered any more, and answers are dropped."""


class ConnectionEvent(IntEnum):
    """What moves a connection from one state to another."""

    LEFT = 0
    """The fast path has not served the frame that comes next."""
    FRAME = 1
    """A frame is looked at; it may end the connection, or be answered without a request."""
    BEGUN = 2
    """A handler gets the request."""
    DEFERRED = 3
    """The connection is paused: there is no answer yet."""
    ANSWERED = 4
    """What was served has its answer, or gets none."""
    CLOSED = 5
    """The connection has ended. It may end while something is sent through it."""


_E, _S = ConnectionEvent, ConnectionState

CONNECTION_TRANSITIONS: Mapping[ConnectionState, Mapping[ConnectionEvent, ConnectionState]] = {
    _S.IDLE: {
        _E.LEFT: _S.PASSED_ON,
        _E.FRAME: _S.IDLE,
        _E.BEGUN: _S.SERVING,
        _E.DEFERRED: _S.WAITING,
        _E.CLOSED: _S.CLOSED,
    },
    _S.PASSED_ON: {_E.FRAME: _S.IDLE, _E.CLOSED: _S.CLOSED},
    _S.SERVING: {_E.ANSWERED: _S.IDLE, _E.DEFERRED: _S.WAITING, _E.CLOSED: _S.CLOSED},
    _S.WAITING: {_E.ANSWERED: _S.IDLE, _E.CLOSED: _S.CLOSED},
    _S.CLOSED: dict.fromkeys(_E, _S.CLOSED),
}


def states_after(event: ConnectionEvent) -> Mapping[ConnectionState, ConnectionState]:
    """The state that follows an event, by the state before it: one look-up for a request."""
    return {state: events[event] for state, events in CONNECTION_TRANSITIONS.items() if event in events}
