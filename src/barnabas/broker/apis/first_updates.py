"""Requests that wait for the controller's first UpdateMetadata requests.

Clients take a topic that is missing for a deleted one, and do not ask again after an error about
it. So a broker that has just started delays answers about topics until the controller has sent
them: see `MetadataCache.expect`. Kafka has no counterpart: its brokers answer at once, from a
cache that is still empty.
"""

import logging
from collections.abc import Callable, Sequence

from barnabas.broker.apis.services import Services
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["FIRST_UPDATES", "TOPICS_WAIT_MS", "at_controller", "stop_waiting", "when_loaded", "when_topics_known"]

logger = logging.getLogger(__name__)

FIRST_UPDATES = "metadata"
"""The purgatory's key for requests that came before the controller's first
UpdateMetadata requests."""
_BROKERS_WAIT_MS = 10_000
TOPICS_WAIT_MS = 3000
"""How long requests wait for topics that this broker has logs of, once it knows the live brokers.

Such a topic may have been deleted, or its replica moved, while the broker was down.
"""


def when_loaded(
    services: Services, request: Request, answer: Callable[[], None], is_known: Callable[[], bool] = lambda: False
) -> None:
    """Answer ``request`` as soon as the metadata is loaded or ``is_known``, or when
    nothing more is to be expected."""
    metadata = services.metadata
    if not metadata.is_loading or is_known():
        answer()
        return

    def attempt(_: object) -> bool:
        is_over = not metadata.is_loading or is_known()
        if is_over:
            _answer_or_fail(request, answer)
        return is_over

    def expire() -> None:
        if metadata.has_brokers:  # else the topics are still to come, after them
            stop_waiting(metadata, services.purgatory)
        _answer_or_fail(request, answer)

    wait_ms = TOPICS_WAIT_MS if metadata.has_brokers else _BROKERS_WAIT_MS
    request.waiter = services.purgatory.watch([FIRST_UPDATES], attempt, expire, wait_ms)


def _answer_or_fail(request: Request, answer: Callable[[], None]) -> None:
    """As the dispatcher does for a request that does not wait."""
    try:
        answer()
    except Exception as error:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.exception("[%s] failed", request)
        if not request.is_answered:
            request.fail(code)


def stop_waiting(metadata: MetadataCache, purgatory: Purgatory) -> None:
    """Answer all that wait, whatever is missing."""
    metadata.stop_expecting()
    purgatory.check_and_complete(FIRST_UPDATES)


def at_controller(services: Services, request: Request, work: Callable[[], None]) -> None:
    """Do ``work``, which only the active controller does.

    A broker that has just started waits to learn which broker that is. It may be the one that a
    client knows from before. librdkafka's AdminClient does not ask again after NOT_CONTROLLER.
    """

    def attempt() -> None:
        if services.controller.is_active:
            work()
        else:
            request.fail(ErrorCode.NOT_CONTROLLER)

    when_loaded(services, request, attempt, lambda: services.controller.is_active or services.metadata.has_brokers)


def when_topics_known(services: Services, request: Request, topics: Sequence[str], answer: Callable[[], None]) -> None:
    """Answer ``request`` as soon as this broker knows these topics, or has all that
    it will be sent."""
    when_loaded(services, request, answer, lambda: all(topic in services.metadata for topic in topics))
