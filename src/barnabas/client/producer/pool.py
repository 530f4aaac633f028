"""The librdkafka producers under one `Producer`: one for most topics, and one more for
topics with small limits.

librdkafka has one ``batch.size`` for all topics of a producer. A topic whose limit is smaller (see
`barnabas.client.producer.batch_limits`) goes to a second producer with smaller batches, which is
made when the first such topic is sent to. A topic stays with its producer, so the records of a
partition keep their order. The sizes are powers of two, so there are few of these producers.

A ``batch.size`` of the user's is left as it is. A transactional producer has no second one, which
would fence the first: it sends no more to a topic with a small limit than one batch holds, and
waits before it sends on (`OneBatchInFlight`).

Kafka has no counterpart.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka

from barnabas.client.errors import BufferFullError
from barnabas.client.librdkafka.clients import new_client
from barnabas.client.librdkafka.interrupts import interruptible
from barnabas.client.producer.batch_limits import BatchLimit, TopicLimits, batch_bytes, in_any_codec, size_of

__all__ = ["OneBatchInFlight", "ProducerPool"]

ProduceCall = Callable[..., None]

_BATCH_BYTES = 1_000_000  # librdkafka's default, which is below Kafka's defaults of both limits
_DRAIN_S = 60.0
_ONE_BUSY_S = 0.05
_MORE_BUSY_S = 0.005
_ERROR_AGE_S = 10.0  # thousands of records may fail at once: ask for the limit once


class ProducerPool:
    """Makes librdkafka's producers from ``settings``, and knows which one sends to a topic.

    For several threads. ``largest_bytes`` is the ``batch.size`` for topics whose limits allow it,
    unless the settings have one.
    """

    def __init__(self, settings: Mapping[str, Any], largest_bytes: int = _BATCH_BYTES) -> None:
        self._settings = {"batch.size": largest_bytes, **settings}
        self.main = new_client(confluent_kafka.Producer, self._settings)
        self._largest_bytes = largest_bytes
        self._by_size = {largest_bytes: self.main}
        self._limits = TopicLimits(settings)
        self._chooses = not settings.get("batch.size")
        self._is_transactional = bool(settings.get("transactional.id"))
        self.routes: dict[str, ProduceCall] = {}
        """The function that sends to a topic, by topic; `route` finds those that are missing."""
        self._batch_size_of: dict[str, int] = {}
        self._lock = threading.RLock()  # a callback may send, too

    @property
    def batch_size(self) -> str:
        """The ``batch.size`` of all topics; empty where it follows their limits."""
        return "" if self._chooses else str(self._settings["batch.size"])

    def route(self, topic: Any) -> ProduceCall:
        """Find the function that sends to a topic not in `routes`, with a request for its limits.

        Blocks, so not for an event loop. Raises `BufferFullError` if larger batches, from before a
        limit was lowered, are still on their way after a minute.
        """
        if not isinstance(topic, str):
            return self.main.produce  # it says what is wrong
        with self._lock:
            found = self.routes.get(topic)
            if found is not None:
                return found
            size = self._batch_size(self._limits.of(topic)) if self._chooses else self._largest_bytes
            before = self._batch_size_of.get(topic, size)
            produce: ProduceCall
            # Refused batches have ended the transaction, so no batches are under way.
            if self._is_transactional:
                produce = (
                    self.main.produce if size == self._largest_bytes else OneBatchInFlight(self.main, size).produce
                )
            else:
                if before != size:
                    _drain(self._by_size[before], topic)
                produce = self._producer(size).produce
            self._batch_size_of[topic] = size
            self.routes[topic] = produce
            return produce

    def _producer(self, size: int) -> Any:
        if size not in self._by_size:
            made = new_client(confluent_kafka.Producer, {**self._settings, "batch.size": size})
            self._by_size = {**self._by_size, size: made}  # other threads go through the old one
        return self._by_size[size]

    def _batch_size(self, limit: BatchLimit | None) -> int:
        """The ``batch.size`` for a topic's limit: its batches fit in whatever codec
        the topic has."""
        if limit is None or limit.size_bytes >= self._largest_bytes:
            return self._largest_bytes
        size = 1
        while in_any_codec(2 * size) <= limit.size_bytes:
            size *= 2
        return size

    def limit_after_refusal(self, topic: str) -> BatchLimit | None:
        """The limit of a topic whose batch was too large; the next send goes by it.

        Blocks if it is not known."""
        limit = self._limits.of(topic, _ERROR_AGE_S)
        if self._chooses and limit is not None and self._batch_size_of.get(topic, 0) > self._batch_size(limit):
            self.routes.pop(topic, None)
        return limit

    def limit_of_requests(self, topic: str) -> BatchLimit | None:
        """The brokers' limit on requests, if a topic's batches may be larger.

        Blocks if it is not known."""
        limit = self._limits.of_requests(_ERROR_AGE_S)
        size = (
            self._batch_size_of.get(topic, self._largest_bytes) if self._chooses else int(self._settings["batch.size"])
        )
        return None if limit is None or limit.size_bytes > size else limit

    # What is done with all of them

    def __len__(self) -> int:
        return sum(map(len, self._by_size.values()))

    def poll(self, timeout_s: float) -> int:
        """Serve reports until there were some, or for ``timeout_s``; returns how many."""
        if len(self._by_size) == 1:
            served: int = interruptible(self.main.poll, timeout_s)
            return served
        end = time.monotonic() + timeout_s
        while True:
            producers = list(self._by_size.values())
            served = sum(interruptible(producer.poll, 0) for producer in producers)
            left_s = end - time.monotonic()
            if served or left_s <= 0:
                return served
            busy = [producer for producer in producers if len(producer)] or producers
            wait_s = min(left_s, _ONE_BUSY_S if len(busy) == 1 else _MORE_BUSY_S)
            served = interruptible(busy[0].poll, wait_s)
            if served:
                return served

    def flush(self, timeout_s: float) -> int:
        """Send what waits without lingering.

        Returns how many records are left after ``timeout_s``."""
        end = time.monotonic() + timeout_s
        for producer in self._by_size.values():
            interruptible(producer.flush, max(0.0, end - time.monotonic()))
        return len(self)

    def purge(self) -> None:
        """Give up all records."""
        for producer in self._by_size.values():
            producer.purge()


class OneBatchInFlight:
    """Sends to a topic through a producer whose batches may be too large for it: the records
    under way fit in one batch."""

    def __init__(self, librdkafka: Any, most_bytes: int) -> None:
        self._librdkafka = librdkafka
        self._most_bytes = most_bytes
        self._bytes = 0
        self._records = 0
        self._lock = threading.Lock()

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, report: Any, **optional: Any
    ) -> None:
        """Like librdkafka's, which raises BufferError while there is no room.

        Here records under way take room, too."""
        size_bytes = size_of(key, value, optional.get("headers"))
        if not self._enter(size_bytes):
            interruptible(self._librdkafka.flush, _MORE_BUSY_S)  # which sends without lingering
            if not self._enter(size_bytes):
                raise BufferError(f"a batch for {topic} is under way")

        def reported(error: Any, message: Any) -> None:
            self._leave(size_bytes)
            report(error, message)

        try:
            self._librdkafka.produce(topic, value, key, partition, reported, **optional)
        except BaseException:
            self._leave(size_bytes)
            raise

    def _enter(self, size_bytes: int) -> bool:
        with self._lock:
            if self._records and batch_bytes(self._bytes + size_bytes, self._records + 1) > self._most_bytes:
                return False
            self._bytes += size_bytes
            self._records += 1
            return True

    def _leave(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes -= size_bytes
            self._records -= 1


def _drain(producer: Any, topic: str) -> None:
    end = time.monotonic() + _DRAIN_S
    while interruptible(producer.flush, 0.1):
        if time.monotonic() >= end:
            raise BufferFullError(
                f"records for {topic} are still on their way in larger batches than the topic allows now",
                name="_QUEUE_FULL",
            )
