"""Topics that a broker does not know: perhaps new, so they are asked for again before they count as missing.

In Kafka: `ProducerMetadata`.
"""

import time
from typing import Any

import confluent_kafka

from barnabas.base.hints import did_you_mean
from barnabas.client.errors import from_librdkafka

__all__ = ["BEING_MADE_S", "UNKNOWN_TOPIC_NAMES", "UnknownTopics", "hint_of_topic"]

UNKNOWN_TOPIC_NAMES = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"))
BEING_MADE_S = 2.0
"""A new topic reaches all brokers within this time."""


class UnknownTopics:
    """The topics that brokers do not know, of one consumer, with the time at which to ask again."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}

    def add(self, topic: str) -> None:
        """A broker does not know this topic."""
        self._due.setdefault(topic, time.monotonic() + BEING_MADE_S)

    def check(self, librdkafka: Any) -> None:
        """Raise `UnknownTopicError` for a topic that is still unknown."""
        if not self._due:
            return
        now = time.monotonic()
        for topic in [topic for topic, due in self._due.items() if now >= due]:
            del self._due[topic]
            try:
                found = librdkafka.list_topics(topic, timeout=BEING_MADE_S).topics.get(topic)
            except confluent_kafka.KafkaException:
                continue  # no broker answers now; librdkafka reports the topic again
            if found is not None and found.error is not None and found.error.name() in UNKNOWN_TOPIC_NAMES:
                raise from_librdkafka(found.error, f"cannot read {topic}{hint_of_topic(librdkafka, topic)}")


def hint_of_topic(librdkafka: Any, topic: str) -> str:
    """``; did you mean TOPIC?`` where a topic has a name like this one."""
    try:
        return did_you_mean(topic, librdkafka.list_topics(timeout=BEING_MADE_S).topics)
    except confluent_kafka.KafkaException:
        return ""
