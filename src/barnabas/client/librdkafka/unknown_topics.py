"""Topics that a broker does not know: perhaps new, or being created, so they are asked for again
before they count as missing.

librdkafka says nothing of partitions that are assigned and not there, so they are asked for, too.

In Kafka: `ProducerMetadata`.
"""

import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka

from barnabas.base.hints import did_you_mean
from barnabas.client.errors import UnknownTopicError, from_librdkafka
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["BEING_MADE_S", "UNKNOWN_TOPIC_NAMES", "UnknownTopics"]

UNKNOWN_TOPIC_NAMES = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"))
BEING_MADE_S = 2.0
"""A new topic reaches all brokers within this time."""


class UnknownTopics:
    """The topics that brokers do not know, of one consumer, with the time at which to ask again."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._wanted: dict[str, int] = {}

    def begin(self, topics: Iterable[str] = (), assigned: Iterable[tuple[str, int]] = ()) -> None:
        """These are read from now on, and no others.

        Patterns of topics are known by what they match."""
        self._due = {}
        self._wanted = {}
        for topic in topics:
            self._wanted[topic] = -1
        for topic, partition in assigned:
            self._wanted[topic] = max(self._wanted.get(topic, -1), partition)
            self.add(topic)

    def add(self, topic: str) -> None:
        """A broker does not know this topic."""
        if topic in self._wanted or any(name.startswith("^") for name in self._wanted):
            self._due.setdefault(topic, time.monotonic() + BEING_MADE_S)

    def check(self, librdkafka: Any) -> None:
        """Raise `UnknownTopicError` for a topic that is still unknown, `AuthorizationError` for one
        that may not be described."""
        if not self._due:
            return
        now = time.monotonic()
        for topic in [topic for topic, due in self._due.items() if now >= due]:
            del self._due[topic]
            try:
                found = librdkafka.list_topics(topic, timeout=BEING_MADE_S).topics.get(topic)
            except confluent_kafka.KafkaException:
                continue  # no broker answers now; librdkafka reports the topic again
            if found is None:
                continue
            if found.error is not None and found.error.name() in UNKNOWN_TOPIC_NAMES:
                raise from_librdkafka(found.error, f"cannot read {topic}{_hint(librdkafka, topic)}")
            # No topic can have this name.
            if found.error is not None and found.error.name() == "TOPIC_EXCEPTION":
                raise from_librdkafka(found.error, f"cannot read {topic}")
            if found.error is not None and found.error.name() == "TOPIC_AUTHORIZATION_FAILED":
                raise from_librdkafka(found.error, f"cannot read topic {topic}")
            last = self._wanted.get(topic, -1)
            if found.error is None and last >= len(found.partitions) > 0:
                there = f"the topic has partitions 0 to {len(found.partitions) - 1}"
                message = f"cannot read {topic}-{last}: {there}"
                raise UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, remedy="")


def _hint(librdkafka: Any, topic: str) -> str:
    """``; did you mean TOPIC?`` where a topic has a name like this one."""
    try:
        return did_you_mean(topic, librdkafka.list_topics(timeout=BEING_MADE_S).topics)
    except confluent_kafka.KafkaException:
        return ""
