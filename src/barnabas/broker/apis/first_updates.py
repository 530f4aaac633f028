"""Requests that wait for the controller's first UpdateMetadata requests.

Clients take a topic that is missing for a deleted one, and do not ask again after an error about
it. So a broker that has just started delays answers about topics until the controller has sent
them: see `MetadataCache.expect`. Kafka has no counterpart: its brokers answer at once, from a
cache that is still empty.

A client that has no right at all to a topic does not learn from the delay whether there is one.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.base.ids import Uuid
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import Request
from barnabas.security.acls import ResourceType
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["TOPICS_WAIT_MS", "FirstUpdates"]

logger = logging.getLogger(__name__)

_FIRST_UPDATES = "metadata"
"""The purgatory's key for requests that came before the controller's first UpdateMetadata
requests."""
_BROKERS_WAIT_MS = 10_000
TOPICS_WAIT_MS = 3000
"""How long requests wait for topics that this broker has logs of, once it knows the live brokers.

Such a topic may have been deleted, or its replica moved, while the broker was down.
"""


@dataclass(frozen=True, slots=True)
class FirstUpdates:
    """Keeps requests until what they name is known, or nothing more is to be expected."""

    metadata: MetadataCache
    purgatory: Purgatory
    auth_helper: AuthHelper

    def when_loaded(
        self, request: Request, answer: Callable[[], None], is_known: Callable[[], bool] = lambda: False
    ) -> None:
        """Answer ``request`` as soon as the metadata is loaded or ``is_known``, or when nothing
        more is to be expected."""
        metadata = self.metadata
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
                self.stop_waiting()
            _answer_or_fail(request, answer)

        wait_ms = TOPICS_WAIT_MS if metadata.has_brokers else _BROKERS_WAIT_MS
        request.waiter = self.purgatory.watch([_FIRST_UPDATES], attempt, expire, wait_ms)

    def when_topics_known(self, request: Request, topics: Sequence[str], answer: Callable[[], None]) -> None:
        """Answer ``request`` as soon as this broker knows these topics, or has all that it will be
        sent."""
        self.when_loaded(request, answer, lambda: all(self.is_topic_known(request, topic) for topic in topics))

    def is_topic_known(self, request: Request, topic: str) -> bool:
        """Whether this broker knows a topic, or the client may not know of it."""
        return topic in self.metadata or not self._has_rights(request, topic)

    def is_topic_id_known(self, request: Request, topic_id: Uuid) -> bool:
        """Whether this broker knows the topic with an id, and the client may know of it."""
        name = self.metadata.topic_name(topic_id)
        return name is not None and self._has_rights(request, name)

    def _has_rights(self, request: Request, topic: str) -> bool:
        return self.auth_helper.authorized_operations(request, ResourceType.TOPIC, topic) != 0

    def received(self) -> None:
        """Answer those that the metadata suffices for, now that more of it has come."""
        self.purgatory.check_and_complete(_FIRST_UPDATES)

    def stop_waiting(self) -> None:
        """Answer all that wait, whatever is missing."""
        self.metadata.stop_expecting()
        self.purgatory.check_and_complete(_FIRST_UPDATES)


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
