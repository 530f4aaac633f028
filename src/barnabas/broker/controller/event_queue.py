"""The controller's events, and the queue in which they wait (Kafka's `ControllerEventManager` and
its `ControllerEvent`s).

All events of a controller are handled one after another, in the order in which they came. Most are
hints to look: of equal hints that wait, one is enough, because a look finds everything that
happened before. An event with a ``done`` is a command: its sender waits for the result.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from barnabas.broker.cluster.steps import Done, Steps
from barnabas.broker.cluster.znodes import TopicAssignment
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.request_batch import RequestBatch

__all__ = [
    "AutoPreferredLeaderElection",
    "Command",
    "ControllerEvent",
    "ControllerEventQueue",
    "Decide",
    "Hint",
    "Reelect",
    "RegisterBrokerAndReelect",
    "ResponseReceived",
    "Startup",
    "TopicsCreated",
]

Decide = Callable[[ControllerContext, RequestBatch], Steps[Any]]
"""Makes the steps of one decision, from what the controller knows and the requests
that it gathers."""


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker is registered: take part in the first election.

    ``done`` is called when that is over."""

    done: Done
    key: ClassVar[Hashable | None] = None


@dataclass(frozen=True, slots=True)
class Reelect:
    """``/controller`` was created, changed or deleted."""

    key: ClassVar[Hashable | None] = "Reelect"


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect:
    """There is a new session, or the broker's own znode was removed: register again, then elect."""

    key: ClassVar[Hashable | None] = "RegisterBrokerAndReelect"


@dataclass(frozen=True, slots=True)
class Hint:
    """Something changed, a znode for instance: decide about it if this broker is the controller."""

    key: Hashable | None
    decide: Decide


@dataclass(frozen=True, slots=True)
class AutoPreferredLeaderElection:
    """Check whether brokers lead too few of the partitions that they should lead."""

    key: ClassVar[Hashable | None] = "AutoPreferredLeaderElection"


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A broker's response to a request of the controller epoch ``epoch``.

    Later controllers ignore it."""

    epoch: int
    decide: Decide
    key: ClassVar[Hashable | None] = None


@dataclass(frozen=True, slots=True)
class Command:
    """A request of another part of this broker. ``done`` gets the result, or a `KafkaError`."""

    decide: Decide
    done: Done
    key: ClassVar[Hashable | None] = None


@dataclass(slots=True)
class TopicsCreated:
    """This broker wrote the znodes of new topics.

    Topics that come while the event waits are handled with it."""

    topics: dict[str, TopicAssignment]
    done: list[Done] = field(default_factory=list)
    key: ClassVar[Hashable | None] = "TopicsCreated"


ControllerEvent = (
    Startup
    | Reelect
    | RegisterBrokerAndReelect
    | Hint
    | AutoPreferredLeaderElection
    | ResponseReceived
    | Command
    | TopicsCreated
)


class ControllerEventQueue:
    """Events in order; ``on_put`` is called when one was added."""

    def __init__(self, on_put: Callable[[], object]) -> None:
        self._on_put = on_put
        self._events: deque[ControllerEvent] = deque()
        self._waiting: dict[Hashable, ControllerEvent] = {}

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: ControllerEvent) -> None:
        """Add an event, unless an equal hint waits already. Created topics join those that wait."""
        waiting = None if event.key is None else self._waiting.get(event.key)
        if waiting is None:
            if event.key is not None:
                self._waiting[event.key] = event
            self._events.append(event)
            self._on_put()
        elif isinstance(waiting, TopicsCreated) and isinstance(event, TopicsCreated):
            waiting.topics.update(event.topics)
            waiting.done += event.done

    def take(self) -> ControllerEvent | None:
        """Remove the first event; None when there is none.

        A hint that comes from now on is added again, even if it is equal."""
        if not self._events:
            return None
        event = self._events.popleft()
        if event.key is not None:
            del self._waiting[event.key]
        return event

    def withdraw_created_topics(self) -> list[Done]:
        """The controller resigned: drop the topics that wait.

        Returns what is to be called with the error."""
        waiting = self._waiting.get(TopicsCreated.key)
        if not isinstance(waiting, TopicsCreated):
            return []
        waiting.topics = {}
        done, waiting.done = waiting.done, []
        return done
