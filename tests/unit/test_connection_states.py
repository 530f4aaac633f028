"""The states of a client's connection: the table, beside a simple model of a connection."""

import itertools
from dataclasses import dataclass, replace

import pytest

from barnabas.broker.requests.connection_states import (
    CONNECTION_TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
    states_after,
)

_E, _S = ConnectionEvent, ConnectionState
_LENGTH = 6
"""How long the sequences are: long enough to leave each state and come back to it."""


@dataclass(frozen=True)
class Facts:
    """What is true of a connection, fact by fact."""

    is_passed_on: bool = False
    is_served: bool = False
    is_paused: bool = False
    is_closed: bool = False

    def after(self, event: ConnectionEvent) -> "Facts | None":
        """None for an event that cannot happen: no frame comes from a paused connection, nor while
        a request is served."""
        if self.is_closed:
            return self
        if event is _E.CLOSED:
            return Facts(is_closed=True)
        if event is _E.ANSWERED:
            return Facts() if self.is_served else None
        if event is _E.DEFERRED:
            return None if self.is_paused or self.is_passed_on else Facts(is_served=True, is_paused=True)
        if self.is_served:
            return None
        if event is _E.FRAME:
            return Facts()
        if self.is_passed_on:
            return None
        return replace(self, is_passed_on=True) if event is _E.LEFT else replace(self, is_served=True)

    @property
    def state(self) -> ConnectionState:
        if self.is_closed:
            return _S.CLOSED
        if self.is_served:
            return _S.WAITING if self.is_paused else _S.SERVING
        return _S.PASSED_ON if self.is_passed_on else _S.IDLE


@pytest.mark.parametrize("first", _E)
def test_each_sequence_of_events_leads_where_the_facts_lead(first: ConnectionEvent) -> None:
    """The table knows the same events in each state, and says the same of what follows."""
    for rest in itertools.product(_E, repeat=_LENGTH - 1):
        facts, state = Facts(), _S.IDLE
        for event in (first, *rest):
            following = facts.after(event)
            assert (following is not None) == (event in CONNECTION_TRANSITIONS[state])
            if following is None:
                break
            facts, state = following, CONNECTION_TRANSITIONS[state][event]
            assert state is facts.state


def test_every_state_is_reached_and_only_the_last_has_no_way_out() -> None:
    """Each state is used, and the connection can end in each."""
    reached, waiting = {_S.IDLE}, [_S.IDLE]
    while waiting:
        new = set(CONNECTION_TRANSITIONS[waiting.pop()].values()) - reached
        reached |= new
        waiting += new
    assert reached == set(_S) == set(CONNECTION_TRANSITIONS)
    assert [state for state in _S if set(CONNECTION_TRANSITIONS[state].values()) == {state}] == [_S.CLOSED]
    assert all(_S.CLOSED in events.values() for events in CONNECTION_TRANSITIONS.values())


@pytest.mark.parametrize("event", _E)
def test_what_follows_an_event_is_what_the_table_says(event: ConnectionEvent) -> None:
    """The look-up by event has each state that knows the event, and no other."""
    after = states_after(event)
    assert set(after) == {state for state in _S if event in CONNECTION_TRANSITIONS[state]}
    assert all(after[state] is CONNECTION_TRANSITIONS[state][event] for state in after)
