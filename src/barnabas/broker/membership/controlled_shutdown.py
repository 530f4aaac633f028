"""Controlled shutdown: a broker that stops has the controller move its leaders first,
so that clients miss none.

The controller may stop too (when brokers stop together), or be gone for as long as a session
lasts. The broker then asks the next one, as often as controlled.shutdown.max.retries allows.
Without the coordination service no leader can move: when it is away, the broker stops without
a controlled shutdown.

`leave` decides. It yields steps to the edge (`service`) and gets their results:

    yield AskController(controller, timeout_ms) -> Answer
    yield AwaitController(known, timeout_ms) -> None      another controller is
                                                          known, or the time is over

In Kafka: `KafkaServer.controlledShutdown`.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "Answer",
    "AskController",
    "AwaitController",
    "KnownControllers",
    "ShutdownOptions",
    "ShutdownSteps",
    "leave",
]

logger = logging.getLogger(__name__)


class KnownControllers(NamedTuple):
    """The controllers that this broker knows of; -1 for none."""

    elected: int
    """The broker in ``/controller``."""
    last_heard: int
    """The broker named in the last UpdateMetadata."""

    @property
    def best(self) -> int:
        """The one to ask."""
        return self.elected if self.elected >= 0 else self.last_heard


class AskController(NamedTuple):
    """Send ControlledShutdown to a controller, which may be this broker itself."""

    controller: int
    timeout_ms: int


class Answer(NamedTuple):
    """The outcome of an `AskController`."""

    error: str | None
    """The error; None when the controller has moved all leaders that it could."""
    remaining: int = 0
    """How many partitions stay without another leader."""


class AwaitController(NamedTuple):
    """Wait until the known controllers differ from these, at most so long."""

    known: KnownControllers
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ShutdownOptions:
    """The broker's settings for its controlled shutdown."""

    enabled: bool
    max_retries: int
    retry_backoff_ms: int
    controller_timeout_ms: int


ShutdownSteps = Generator[AskController | AwaitController, Any, bool]


def leave(
    options: ShutdownOptions, *, alive_brokers: int, controllers: Callable[[], KnownControllers]
) -> ShutdownSteps:
    """Move leadership away, if another broker can take it; returns whether a controller did so.

    ``controllers`` is asked before each attempt, for they change.
    """
    if not options.enabled or alive_brokers < 2:
        return False
    attempts = max(options.max_retries, 1)
    for attempt in range(1, attempts + 1):
        known = controllers()
        answer: Answer = yield AskController(known.best, options.controller_timeout_ms)
        if answer.error is None:
            if answer.remaining:
                logger.info("No other broker can lead %d of our partitions", answer.remaining)
            return True
        logger.warning("Controlled shutdown, attempt %d of %d: %s", attempt, attempts, answer.error)
        if attempt < attempts:
            yield AwaitController(known, options.retry_backoff_ms)
    return False
