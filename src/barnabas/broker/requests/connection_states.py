"""The states of a client's connection, and the transitions between them.

A connection serves one request at a time, or several that arrived together. They are kept beside
the state while it is SERVING or WAITING. Requests that a fast path answers at once do not change
the state.

In Kafka: `KafkaChannel.ChannelMuteState`.
"""

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["CONNECTION_TRANSITIONS", "ConnectionEvent", "ConnectionState", "states_after"]


class ConnectionState(IntEnum):
    """Where a connection stands."""

    IDLE = 0
    """No request is served; the next frame may come."""
    PASSED_ON = 1
    """The fast path has left the next frame to the handler of its API."""
    SERVING = 2
    """The handler runs. The connection is not paused, so an immediate answer need not resume it."""
    WAITING = 3
    """The connection is paused until the answer. The request is decoded in slices, its handler
    answers later, its answer is encoded in slices, or requests of a fast path wait, as with
    acks=all."""
    CLOSED = 4
    """The client is gone: no more requests are delivered, and answers are dropped."""


class ConnectionEvent(IntEnum):
    """What moves a connection from one state to another."""

    LEFT = 0
    """The fast path has left the next frame to the handler of its API."""
    FRAME = 1
    """A frame arrives. It may end the connection, or be answered without a request."""
    BEGUN = 2
    """A request is handed to its handler."""
    DEFERRED = 3
    """The connection is paused: there is no answer yet."""
    ANSWERED = 4
    """The request is answered, or it gets no answer."""
    CLOSED = 5
    """The connection has ended, perhaps while an answer was sent."""


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
    """The state after an event, by the state before it: each event costs a request one look-up."""
    return {state: events[event] for state, events in CONNECTION_TRANSITIONS.items() if event in events}
