"""Notices within a second that another broker's process died, long before its session expires.

The controller keeps an idle connection to every live broker, and every broker keeps one to the
controller and to the `_WITNESSES` brokers after it in the circle of ids. This also detects a broker
that dies together with the controller, and any of our brokers when the controller is Apache's,
which watches none. A witness gives the controller a short head start.

When a process dies its operating system closes its connections and refuses new ones. So a
connection that breaks is tried again. A broker that accepts it lives; a paused one accepts it too,
because its kernel does. A broker is dead if its port refuses `_REFUSALS` times in a row while its
registration is still the one under which it accepted our connection. Any other failure (timeouts,
no route) proves nothing, and is left to the session. So is a broker that never accepted a
connection under its current registration: Apache's brokers register before they listen.

The ephemeral znodes of a dead broker are then removed, as the end of its session would do some
seconds later. All else follows as after any end of a session. If the broker lives after all, only
time is lost. It finds its znode gone and registers again, under a higher broker epoch. Whatever it
led was moved by raising the leader epoch in the partition's znode, so it can neither change an
in-sync set (the controller refuses its old epochs) nor commit (the followers fetch from the new
leader, and the high watermark waits for them). A witness behind a firewall that refuses can be
wrong once for each registration: it never judges a registration under which it could not connect.

`watch_broker` decides, one generator for each connection. It yields steps to the edge (`service`),
which has the connection, and gets their results:

    yield ReadEpoch()           -> int | None       by `registered_epoch`; None when
                                                    it is unknown, too
    yield ConnectToBroker()     -> ConnectOutcome
    yield AwaitEnd()            -> int              how many milliseconds the connection lasted
    yield RemoveBroker(epoch)   -> None             by `remove_dead`
    yield Pause(ms)             -> None

Kafka has no counterpart: it waits for zookeeper.session.timeout.ms.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Never

from barnabas.broker.cluster.steps import Pause, Read, Steps
from barnabas.broker.cluster.znodes import broker_path
from barnabas.broker.membership.registration import end_session, read_session, removals_of

__all__ = [
    "AwaitEnd",
    "ConnectOutcome",
    "ConnectToBroker",
    "ReadEpoch",
    "RemoveBroker",
    "WatchStep",
    "registered_epoch",
    "remove_dead",
    "watch_broker",
    "watched",
]

logger = logging.getLogger(__name__)

_WITNESSES = 3
_WITNESS_GRACE_MS = 250
_REFUSALS = 3
_BETWEEN_REFUSALS_MS = 50
_AGAIN_MS = 1000


def watched(broker_id: int, alive: Iterable[int], controller: int) -> set[int]:
    """The brokers that this one keeps connections to.

    ``controller`` is its own id if it is the controller."""
    others = sorted(other for other in alive if other != broker_id)
    if controller == broker_id:
        return set(others)
    after = [other for other in others if other > broker_id] + [other for other in others if other < broker_id]
    return {*after[:_WITNESSES], controller}


@dataclass(frozen=True, slots=True)
class ReadEpoch:
    """Read the broker epoch of the watched broker."""


@dataclass(frozen=True, slots=True)
class ConnectToBroker:
    """Open a connection to the watched broker."""


class ConnectOutcome(Enum):
    """The outcome of an attempt to connect, which shows whether the other process lives."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """A timeout, no route: it proves nothing."""


@dataclass(frozen=True, slots=True)
class AwaitEnd:
    """Wait until the connection breaks."""


class RemoveBroker(NamedTuple):
    """Remove the ephemeral znodes of the session that holds the registration with this epoch."""

    epoch: int


WatchStep = ReadEpoch | ConnectToBroker | AwaitEnd | RemoveBroker | Pause


def watch_broker(is_first_to_act: Callable[[], bool]) -> Generator[WatchStep, Any, Never]:
    """Watch one broker without end.

    ``is_first_to_act`` says that no other broker is expected to act earlier."""
    accepted_epoch: int | None = None
    pause_ms = 0
    while True:
        epoch: int | None = yield ReadEpoch()
        outcome = ConnectOutcome.UNKNOWN if epoch is None else (yield from _connect())
        if outcome is ConnectOutcome.ACCEPTED:
            accepted_epoch = epoch
            lasted_ms: int = yield AwaitEnd()
            # A broker at its connection limit accepts and closes at once: try it
            # less and less often.
            is_short = lasted_ms < _AGAIN_MS
            pause_ms = min(max(2 * pause_ms, _BETWEEN_REFUSALS_MS), _AGAIN_MS) if is_short else 0
            yield Pause(pause_ms)
            continue
        if outcome is ConnectOutcome.REFUSED and epoch is not None and epoch == accepted_epoch:
            if not is_first_to_act():
                yield Pause(_WITNESS_GRACE_MS)
            yield RemoveBroker(epoch)
        yield Pause(_AGAIN_MS)


def _connect() -> Generator[WatchStep, Any, ConnectOutcome]:
    """Connect; REFUSED when the port refused again and again."""
    for attempt in range(_REFUSALS):
        if attempt:
            yield Pause(_BETWEEN_REFUSALS_MS)
        outcome: ConnectOutcome = yield ConnectToBroker()
        if outcome is not ConnectOutcome.REFUSED:
            return outcome
    return ConnectOutcome.REFUSED


def registered_epoch(broker_id: int) -> Steps[int | None]:
    """The czxid of a broker's registration; None when it is not registered."""
    (registration,) = yield Read([broker_path(broker_id)])
    return None if registration is None else registration.czxid


def remove_dead(broker_id: int, epoch: int) -> Steps[None]:
    """Remove the registration of this epoch, and /controller if the same session holds it.

    Nothing is removed if the broker has registered again meanwhile, or its session is over.
    """
    found = yield from read_session(broker_id)
    if found.registration is not None and found.registration.czxid == epoch:
        logger.warning(
            "Broker %d is dead: its port refuses connections. Removing its registration %d", broker_id, epoch
        )
        yield from end_session(removals_of(broker_id, found))
