"""`Producer`: sends records through librdkafka, one at a time (``producer.type=sync``) or in the background.

A record is serialised, given a partition, and put in librdkafka's queue, from which a thread of librdkafka's sends
batches and retries. `Producer.send` returns a `Receipt`; its `Receipt.result` waits for the broker's answer. Failures
that no receipt and no callback has seen are raised by the next `Producer.flush` or at the end of the ``with`` block, so
that nothing is lost in silence. What ``queue.enqueue.timeout.ms`` drops is counted in `Producer.dropped`.
"""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.base.errors import ConfigError
from barnabas.client.codecs import encoder
from barnabas.client.errors import BufferFullError, ClientError, DeliveryError, DroppedError, from_librdkafka
from barnabas.client.logs import ErrorLog, librdkafka_logger, logger
from barnabas.client.partitioners import BY_LIBRDKAFKA, chooser
from barnabas.client.properties import plan_producer
from barnabas.client.records import Delivery, Headers

__all__ = ["OnDelivery", "Producer", "Receipt"]

OnDelivery = Callable[[Delivery | None, ClientError | None], None]
"""Hears where a record went, or why it did not; called from send, flush, poll or result."""

_POLL_S = 0.05  # another thread may serve the report we wait for, so look again this often
_SENDS_A_POLL = 64
_METADATA_S = 10.0
_BEING_MADE = ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC")
_NO_TIMESTAMP = 0  # confluent_kafka.TIMESTAMP_NOT_AVAILABLE


def _count_only(_: Delivery | None, __: ClientError | None) -> None:
    """The callback for failed records that have no callback of their own."""


class Receipt:
    """One record on its way."""

    __slots__ = ("_delivery", "_error", "_message", "_on_delivery", "_producer", "done")

    def __init__(self, producer: "Producer", on_delivery: OnDelivery | None) -> None:
        self._producer = producer
        self._on_delivery = on_delivery
        self._message: Any = None
        self._delivery: Delivery | None = None
        self._error: ClientError | None = None
        self.done = False
        """Whether the record's fate is known."""

    def result(self, timeout_s: float | None = None) -> Delivery:
        """Wait for the record's fate: where it went, or the `DeliveryError` or `DroppedError` that ended it.

        Raises TimeoutError when it is not known after ``timeout_s`` (None: wait as long as delivery.timeout.ms lets it
        try).
        """
        if not self.done:
            self._producer.wait_for(self, timeout_s)
        if self._error is not None:
            self._producer.discard_failure(self)
            raise self._error
        return self._told()

    def _told(self) -> Delivery:
        if self._delivery is None:
            message = self._message
            kind, timestamp_ms = message.timestamp()
            offset = message.offset()
            self._delivery = Delivery(
                message.topic(),
                message.partition(),
                -1 if offset is None or offset < 0 else offset,
                None if kind == _NO_TIMESTAMP else timestamp_ms,
            )
            self._message = None
        return self._delivery

    def report(self, error: Any, message: Any) -> None:
        """librdkafka's delivery report."""
        self._message = message
        if error is not None:
            self._error = from_librdkafka(error, f"a record for {message.topic()} was not delivered", DeliveryError)
        self.end()

    def drop(self, error: DroppedError) -> None:
        """The record was dropped, as queue.enqueue.timeout.ms asks: it is counted, and a flush does not raise it."""
        self._error = error
        self._on_delivery = self._on_delivery or _count_only
        self.end()

    def end(self) -> None:
        """The record was delivered, or it failed: call the callbacks."""
        self.done = True
        if self._on_delivery is not None:
            self._on_delivery(None if self._error else self._told(), self._error)
        elif self._error is not None:
            self._producer.keep_failure(self, self._error)


class Producer:
    """Sends records to topics. Safe to use from several threads.

    ``properties`` are sorted by `barnabas.client.properties.plan_producer`; ``serializer``, ``key_serializer`` and
    ``partitioner`` are ``serializer.class``, ``key.serializer.class`` and ``partitioner.class`` as objects.
    ``on_failure`` is called, instead of an error from `flush`, for failed records without a callback of their own.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        serializer: Any = None,
        key_serializer: Any = None,
        partitioner: Any = None,
        on_failure: Callable[[ClientError], None] | None = None,
    ) -> None:
        plan = plan_producer(properties)
        for warning in plan.warnings:
            logger.warning(warning)
        self._sync = plan.sync
        self.enqueue = plan.enqueue
        self._encode = encoder(serializer or plan.serializer)
        self._encode_key = encoder(key_serializer or plan.key_serializer, "key.serializer.class")
        self._chooser = chooser(partitioner or plan.partitioner, self._count_partitions)
        self._sends = 0
        self._on_failure = on_failure
        self._unseen: dict[int, tuple[Receipt, ClientError]] = {}
        self._unseen_more = 0
        self._closed = False
        self.dropped = 0
        """Records that found no room in the queue within ``queue.enqueue.timeout.ms``."""
        try:
            self.librdkafka = confluent_kafka.Producer(
                {"logger": librdkafka_logger, "error_cb": ErrorLog(), **plan.librdkafka}
            )
            """The producer underneath, for what this class does not wrap (transactions, statistics)."""
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"these producer properties cannot be used: {_reason(error)}") from error

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Receipt:
        """Send a record, and with ``producer.type=sync`` wait for it.

        Raises `BufferFullError` when there was no room within ``max.block.ms``, `ClientError` for a record that
        cannot be sent at all, and in sync mode `DeliveryError`.
        """
        receipt, offer = self.prepare(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if not offer() and not self._wait_for_room(offer):
            self.give_up(receipt)
            return receipt
        self._sends += 1
        if self._sync:
            receipt.result()
        elif self._sends % _SENDS_A_POLL == 0:
            self.librdkafka.poll(0)
        return receipt

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
    ) -> tuple[Receipt, Callable[[], bool]]:
        """A record's receipt, and the call that puts it in the queue; that returns False where there is no room."""
        if self._closed:
            raise ClientError("this producer is closed", name="_STATE")
        if partition is None:
            partition = BY_LIBRDKAFKA if self._chooser is None else self._chooser.choose(topic, key)
        receipt = Receipt(self, on_delivery)
        optional: dict[str, Any] = {}
        if timestamp_ms is not None:
            optional["timestamp"] = timestamp_ms
        if headers:
            optional["headers"] = list(headers)
        encoded, encoded_key = self._encode(value), None if key is None else self._encode_key(key)

        def offer() -> bool:
            try:
                self.librdkafka.produce(topic, encoded, encoded_key, partition, receipt.report, **optional)
            except BufferError:
                return False
            except confluent_kafka.KafkaException as error:
                raise from_librdkafka(error.args[0], f"a record for {topic} cannot be sent") from error
            return True

        return receipt, offer

    def _wait_for_room(self, offer: Callable[[], bool]) -> bool:
        """Whether the record found room in time."""
        wait_ms = self.enqueue.wait_ms
        end = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        while True:
            left_s = _POLL_S if end is None else min(_POLL_S, end - time.monotonic())
            if left_s <= 0:
                self.librdkafka.poll(0)
                return False
            self.librdkafka.poll(left_s)
            if offer():
                return True

    def give_up(self, receipt: Receipt) -> None:
        """No room in time: count the record as dropped, or raise `BufferFullError`."""
        wait_ms = self.enqueue.wait_ms
        if not self.enqueue.drops:
            raise BufferFullError(
                f"the producer's queue had no room for {wait_ms} ms (max.block.ms): slow down, or raise buffer.memory",
                name="_QUEUE_FULL",
            )
        self.dropped += 1
        receipt.drop(DroppedError(f"dropped: the queue was full for {wait_ms} ms", name="_QUEUE_FULL"))

    def poll(self, timeout_s: float = 0) -> int:
        """Serve delivery callbacks for up to ``timeout_s``; returns how many."""
        served: int = self.librdkafka.poll(timeout_s)
        return served

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the fate of every record is known.

        Raises TimeoutError when some are still on their way after ``timeout_s``, and `DeliveryError` when records
        failed since the last flush and was not reported otherwise.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while left := self.librdkafka.flush(0.2 if end is None else max(0.0, min(0.2, end - time.monotonic()))):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"{left} records were not yet acknowledged after {timeout_s} s")
        self._raise_unseen()

    def _raise_unseen(self) -> None:
        if not self._unseen:
            return
        count = len(self._unseen) + self._unseen_more
        _, first = next(iter(self._unseen.values()))
        self._unseen.clear()
        self._unseen_more = 0
        more = f" ({count - 1} more failed)" if count > 1 else ""
        raise DeliveryError(f"{first}{more}", code=first.code, name=first.name, retriable=first.retriable) from first

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go; see `flush` for what it raises. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self.flush(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        # An error is under way already: send what can be sent in a moment, and do not hide it behind another.
        self._closed = True
        self.librdkafka.flush(5.0 if issubclass(kind, Exception) else 0.5)

    def __len__(self) -> int:
        """Records that wait or are on their way."""
        return len(self.librdkafka)

    # For receipts

    def wait_for(self, receipt: Receipt, timeout_s: float | None) -> None:
        """Serve reports until this receipt's comes."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not receipt.done:
            wait_s = _POLL_S if end is None else min(_POLL_S, end - time.monotonic())
            if wait_s <= 0:
                raise TimeoutError(f"the record was not acknowledged within {timeout_s} s")
            self.librdkafka.poll(wait_s)

    def keep_failure(self, receipt: Receipt, error: ClientError) -> None:
        """Keep a failure that was not reported; beyond a thousand only their number."""
        if self._on_failure is not None:
            self._on_failure(error)
        elif len(self._unseen) < 1000:
            self._unseen[id(receipt)] = (receipt, error)
        else:
            self._unseen_more += 1

    def discard_failure(self, receipt: Receipt) -> None:
        """Remove a failure that was reported."""
        self._unseen.pop(id(receipt), None)

    def _count_partitions(self, topic: str) -> int:
        """Asks the cluster, which may be making the topic this moment because it was asked for."""
        end = time.monotonic() + _METADATA_S
        while True:
            try:
                found = self.librdkafka.list_topics(topic, timeout=_METADATA_S).topics[topic]
            except confluent_kafka.KafkaException as error:
                raise from_librdkafka(error.args[0], f"cannot learn the partitions of {topic}") from error
            if found.error is None and found.partitions:
                return len(found.partitions)
            if found.error is not None and (time.monotonic() >= end or found.error.name() not in _BEING_MADE):
                raise from_librdkafka(found.error, f"cannot learn the partitions of {topic}")
            time.sleep(_POLL_S)


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if hasattr(cause, "str") else str(cause)
