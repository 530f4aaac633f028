"""The queue of the controller's events: order, hints that merge, created topics that gather."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster.steps import Steps
from barnabas.broker.cluster.znodes import ReplicaAssignment, TopicAssignment
from barnabas.broker.controller.event_queue import (
    AutoPreferredLeaderElection,
    Command,
    ControllerEvent,
    ControllerEventQueue,
    Hint,
    Reelect,
    RegisterBrokerAndReelect,
    ResponseReceived,
    TopicsCreated,
)

TOPIC = TopicAssignment(None, {0: ReplicaAssignment((0,))})


def decide(*_: Any) -> Steps[None]:
    yield from ()


def drained(queue: ControllerEventQueue) -> list[ControllerEvent]:
    events = []
    while (event := queue.take()) is not None:
        events.append(event)
    return events


def test_events_leave_in_the_order_in_which_they_came() -> None:
    """The queue wakes its reader for each event that it adds, and is empty after the last."""
    woken: list[None] = []
    queue = ControllerEventQueue(lambda: woken.append(None))
    events = [Reelect(), Command(decide, print), Hint("a", decide), ResponseReceived(1, decide)]
    for event in events:
        queue.put(event)
    assert drained(queue) == events
    assert len(woken) == len(events)
    assert queue.take() is None


def test_a_hint_that_waits_already_is_not_added_again() -> None:
    """A look finds everything that happened before."""
    woken: list[None] = []
    queue = ControllerEventQueue(lambda: woken.append(None))
    for event in (Hint("a", decide), Reelect(), Hint("a", decide), Reelect(), Hint("b", decide)):
        queue.put(event)
    assert drained(queue) == [Hint("a", decide), Reelect(), Hint("b", decide)]
    assert len(woken) == 3


def test_a_hint_that_comes_while_an_equal_one_is_handled_is_added() -> None:
    """The look that is under way may have passed the place already."""
    queue = ControllerEventQueue(lambda: None)
    queue.put(Hint("a", decide))
    assert queue.take() == Hint("a", decide)
    queue.put(Hint("a", decide))
    assert queue.take() == Hint("a", decide)


def test_commands_and_responses_never_merge() -> None:
    """Each has a sender that waits, or says something of its own."""
    queue = ControllerEventQueue(lambda: None)
    for event in (
        Command(decide, print),
        Command(decide, print),
        ResponseReceived(1, decide),
        ResponseReceived(1, decide),
    ):
        queue.put(event)
    assert len(queue) == 4


def test_created_topics_join_those_that_wait() -> None:
    """One decision for all of them, and an answer for each command."""
    queue = ControllerEventQueue(lambda: None)
    answered: list[str] = []
    queue.put(TopicsCreated({"a": TOPIC}, [lambda *_: answered.append("a")]))
    queue.put(TopicsCreated({"b": TOPIC}, [lambda *_: answered.append("b")]))
    (event,) = drained(queue)
    assert isinstance(event, TopicsCreated)
    assert event.topics.keys() == {"a", "b"}
    for done in event.done:
        done(None, None)
    assert answered == ["a", "b"]


def test_created_topics_that_are_withdrawn_answer_once() -> None:
    """A controller that resigns answers those who wait; the event that is left in the
    queue has nothing to do."""
    queue = ControllerEventQueue(lambda: None)
    assert queue.withdraw_created_topics() == []
    queue.put(TopicsCreated({"a": TOPIC}, [print]))
    assert queue.withdraw_created_topics() == [print]
    assert queue.withdraw_created_topics() == []
    (event,) = drained(queue)
    assert (event.topics, event.done) == ({}, [])


KINDS: tuple[ControllerEvent, ...] = (
    Reelect(),
    RegisterBrokerAndReelect(),
    AutoPreferredLeaderElection(),
    Hint("a", decide),
    Hint("b", decide),
    Command(decide, print),
)


@given(st.lists(st.sampled_from([*KINDS, None])))
def test_the_queue_is_a_list_without_repeated_hints(actions: list[ControllerEvent | None]) -> None:
    """Compared with a plain list; None takes an event."""
    queue = ControllerEventQueue(lambda: None)
    model: list[ControllerEvent] = []
    for action in actions:
        if action is None:
            assert queue.take() == (model.pop(0) if model else None)
        else:
            queue.put(action)
            if action.key is None or action not in model:
                model.append(action)
        assert len(queue) == len(model)
    assert drained(queue) == model
