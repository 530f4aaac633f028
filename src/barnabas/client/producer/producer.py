"""`Producer`: sends records through librdkafka, one at a time
(``producer.type=sync``) or in the background.

A record is serialised, given a partition, and put in librdkafka's queue, from which a thread of
librdkafka's sends batches and retries. `Producer.send` returns a `Receipt`; its `Receipt.result`
waits for the broker's answer. Failures that no receipt and no callback has seen are raised by the
next `Producer.flush` or at the end of the ``with`` block, so that nothing is lost in silence. What
``queue.enqueue.timeout.ms`` drops is counted in `Producer.dropped`.

In Kafka: `KafkaProducer`.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import confluent_kafka

from barnabas.base.ids import TopicPartition
from barnabas.base.record_times import known_time
from barnabas.client.arguments import check_timestamp
from barnabas.client.codecs import Serializer, encoder
from barnabas.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    ConfigurationError,
    DeliveryError,
    DroppedError,
    SerializationError,
    TimedOutError,
    TransactionError,
    UndeliveredError,
    from_librdkafka,
)
from barnabas.client.librdkafka.logs import ErrorLog, librdkafka_logger, logger
from barnabas.client.librdkafka.statistics import ClientStatistics, MetricName
from barnabas.client.librdkafka.unknown_topics import BEING_MADE_S, UNKNOWN_TOPIC_NAMES
from barnabas.client.network.bootstrap import check_hosts
from barnabas.client.producer.batch_limits import (
    TOO_LARGE,
    request_too_large,
    size_of,
    too_large,
    too_large_for_producer,
)
from barnabas.client.producer.partitioners import BY_LIBRDKAFKA, chooser
from barnabas.client.producer.pool import ProducerPool
from barnabas.client.producer.transactions import Transactions
from barnabas.client.properties.names import check_properties, property_hint
from barnabas.client.properties.translation import plan_producer
from barnabas.client.records import Delivery, Headers
from barnabas.client.type_variables import K_contra, V_contra

__all__ = ["CLOSE_TIMEOUT_S", "OnDelivery", "Producer", "Receipt"]

K = TypeVar("K")
V = TypeVar("V")

OnDelivery = Callable[[Delivery | None, ClientError | None], None]
"""Receives where a record went, or why it did not; called from send, flush, poll or result."""
OnFailure = Callable[[ClientError], None]

CLOSE_TIMEOUT_S = 30.0
"""How long `Producer.close` waits for the brokers unless it is given another limit."""

_POLL_S = 0.05  # another thread may serve the report we wait for, so look again this often
_PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
_SENDS_A_POLL = 64
_METADATA_S = 10.0
_UNKNOWN_TOPIC_MS = 5000  # how long a topic may be being created; librdkafka waits for 30 s
_RECONNECT_MS = 22
"""At first. librdkafka waits for half of it between connections to two brokers, so also before the
first record, unless it was sent within a millisecond."""
_NO_LEADER_YET = confluent_kafka.KafkaError(confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE)
_MAX_REQUEST_SIZE = 1_000_000  # librdkafka's message.max.bytes
_NO_TIMESTAMP = 0  # confluent_kafka.TIMESTAMP_NOT_AVAILABLE


def _count_only(_: Delivery | None, __: ClientError | None) -> None:
    """The callback for failed records that have no callback of their own."""


class Receipt:
    """One record on its way."""

    __slots__ = ("_delivery", "_error", "_message", "_on_delivery", "_producer", "done")

    def __init__(self, producer: "Producer[Any, Any]", on_delivery: OnDelivery | None) -> None:
        self._producer = producer
        self._on_delivery = on_delivery
        self._message: Any = None
        self._delivery: Delivery | None = None
        self._error: ClientError | None = None
        self.done = False
        """Whether the record's fate is known."""

    def result(self, timeout_s: float | None = None) -> Delivery:
        """Wait for the record's fate: where it went, or the `DeliveryError` or
        `DroppedError` that ended it.

        Raises `TimedOutError` when it is not known after ``timeout_s`` (None: wait as long as
        delivery.timeout.ms lets it try), and at once what waiting does not end, such as
        `AuthenticationError`.
        """
        if not self.done:
            self._producer.wait_for(self, timeout_s)
        if self._error is not None:
            self._producer.discard_failure(self)
            raise self._error
        return self._delivered()

    def __str__(self) -> str:
        """``TOPIC-PARTITION@OFFSET``, or why the record is not there."""
        if not self.done:
            return "on its way"
        return str(self._delivered() if self._error is None else self._error)

    def __repr__(self) -> str:
        return f"<Receipt: {self}>"

    def _delivered(self) -> Delivery:
        if self._delivery is None:
            message = self._message
            kind, timestamp_ms = message.timestamp()
            offset = message.offset()
            self._delivery = Delivery(
                message.topic(),
                message.partition(),
                -1 if offset is None or offset < 0 else offset,
                None if kind == _NO_TIMESTAMP else known_time(timestamp_ms),
            )
            self._message = None
        return self._delivery

    def report(self, error: Any, message: Any) -> None:
        """librdkafka's delivery report."""
        self._message = message
        if error is not None:
            self._error = self._producer.delivery_error(error, message)
        self.end()

    def drop(self, error: DroppedError) -> None:
        """The record was dropped, as queue.enqueue.timeout.ms asks: it is counted, and a
        flush does not raise it."""
        self._error = error
        self._on_delivery = self._on_delivery or _count_only
        self.end()

    def end(self) -> None:
        """The record was delivered, or it failed: call the callbacks."""
        self.done = True
        if self._on_delivery is not None:
            self._on_delivery(None if self._error else self._delivered(), self._error)
        elif self._error is not None:
            self._producer.keep_failure(self, self._error)


class Producer(Generic[K_contra, V_contra]):
    """Sends records to topics. Safe to use from several threads.

    ``properties`` are sorted by `barnabas.client.properties.translation.plan_producer`;
    ``serializer``, ``key_serializer`` and ``partitioner`` are ``serializer.class``,
    ``key.serializer.class`` and ``partitioner.class`` as objects; keys and values are ``str``
    without them. ``on_failure`` is called, instead of an error from `flush`, for failed
    records without a callback of their own. ``close_timeout_s`` limits `close` and the end of
    a ``with`` block.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        serializer: Serializer[V_contra] | None = None,
        key_serializer: Serializer[K_contra] | None = None,
        partitioner: Any = None,
        on_failure: OnFailure | None = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        check_properties(properties, "Producer")
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
        self._close_timeout_s = close_timeout_s
        self._closed = False
        self._errors = ErrorLog()
        self.dropped = 0
        """Records that found no room in the queue within ``queue.enqueue.timeout.ms``."""
        check_hosts(str(plan.librdkafka["bootstrap.servers"]))
        self._statistics = ClientStatistics("producer", plan.librdkafka)
        try:
            self._pool = ProducerPool(
                {
                    "logger": librdkafka_logger,
                    "error_cb": self._errors,
                    "topic.metadata.propagation.max.ms": _UNKNOWN_TOPIC_MS,
                    "reconnect.backoff.ms": _RECONNECT_MS,
                    **plan.librdkafka,
                }
            )
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            reason = _reason(error)
            raise ConfigurationError(
                f"these producer properties cannot be used: {str(reason).strip()}{property_hint(reason)}"
            ) from error
        self.librdkafka = self._pool.main
        """The producer underneath, for what this class does not wrap (statistics). It has no part
        in the records of topics with small limits: see `barnabas.client.producer.pool`."""
        self._routes = self._pool.routes
        self._max_request_size = str(plan.librdkafka.get("message.max.bytes", _MAX_REQUEST_SIZE))
        self._transactions = Transactions(self.librdkafka, plan.librdkafka)
        self.metrics_port = self._statistics.serve(plan.metrics_address)
        """The port of ``metrics.http.address``; None without one."""

    def send(
        self,
        topic: str,
        value: V_contra | None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Receipt:
        """Send a record, and with ``producer.type=sync`` wait for it.

        Raises `BufferFullError` when there was no room within ``max.block.ms``,
        `SerializationError` and other classes of `ClientError` for a record that cannot be sent at
        all, and in sync mode `DeliveryError`.
        """
        receipt, offer = self.prepare(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if not offer() and not self._wait_for_room(offer):
            self.give_up(receipt)
            return receipt
        self._sends += 1
        if self._sync:
            receipt.result()
        elif self._sends % _SENDS_A_POLL == 0:
            self.poll()
        return receipt

    def send_many(
        self, topic: str, values: Iterable[V_contra], *, keys: Iterable[K_contra] | None = None
    ) -> list[Receipt]:
        """Send a batch of values, each with the key at its place.

        The receipts are in their order."""
        if keys is None:
            return [self.send(topic, value) for value in values]
        return [self.send(topic, value, key) for value, key in pairs(values, keys)]

    def prepare(
        self,
        topic: str,
        value: V_contra | None,
        key: K_contra | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
    ) -> tuple[Receipt, Callable[[], bool]]:
        """A record's receipt, and the call that puts it in the queue; that returns
        False where there is no room."""
        self._check_open()
        if partition is None:
            partition = BY_LIBRDKAFKA if self._chooser is None else self._chooser.choose(topic, key)
        receipt = Receipt(self, on_delivery)
        optional: dict[str, Any] = {}
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
            optional["timestamp"] = timestamp_ms
        if headers:
            optional["headers"] = _header_list(headers)
        encoded, encoded_key = self._encode(value, topic), self._encode_key(key, topic)
        try:
            produce = self._routes[topic]
        except (KeyError, TypeError):
            produce = self._pool.route(topic)

        def offer() -> bool:
            try:
                produce(topic, encoded, encoded_key, partition, receipt.report, **optional)
            except BufferError:
                return False
            except confluent_kafka.KafkaException as error:
                problem = from_librdkafka(error.args[0], f"a record for {topic} cannot be sent")
                if problem.name == "MESSAGE_TOO_LARGE":
                    size_bytes = size_of(encoded_key, encoded, optional.get("headers"))
                    _explain(
                        problem, topic, "cannot be sent", too_large_for_producer(size_bytes, self._max_request_size)
                    )
                raise problem from error
            except TypeError as error:  # of the topic, the partition, the time or the headers
                raise SerializationError(f"a record for {topic!r} cannot be sent: {error}") from error
            return True

        return receipt, offer

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("producer")

    def _wait_for_room(self, offer: Callable[[], bool]) -> bool:
        """Whether the record found room in time."""
        wait_ms = self.enqueue.wait_ms
        end = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        while True:
            left_s = _POLL_S if end is None else min(_POLL_S, end - time.monotonic())
            if left_s <= 0:
                self.poll()
                return False
            self._pool.poll(left_s)
            self._raise_refusal()
            if offer():
                return True

    def give_up(self, receipt: Receipt) -> None:
        """No room in time: count the record as dropped, or raise `BufferFullError`."""
        wait_ms = self.enqueue.wait_ms
        if not self.enqueue.drops:
            raise BufferFullError(
                f"the producer's queue had no room for {wait_ms} ms (max.block.ms): slow down, or raise buffer.memory"
                f"{self._errors.because()}",
                name="_QUEUE_FULL",
            )
        self.dropped += 1
        receipt.drop(DroppedError(f"dropped: the queue was full for {wait_ms} ms", name="_QUEUE_FULL"))

    def poll(self, timeout_s: float = 0) -> int:
        """Serve delivery callbacks for up to ``timeout_s``; returns how many."""
        return self._pool.poll(timeout_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the fate of every record is known.

        Raises `UndeliveredError` when some are still on their way after ``timeout_s``,
        `DeliveryError` when records failed since the last flush and this was not reported
        otherwise, and at once what waiting does not end.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while left := self._pool.flush(0.2 if end is None else max(0.0, min(0.2, end - time.monotonic()))):
            self._raise_refusal()
            if end is not None and time.monotonic() >= end:
                raise UndeliveredError(
                    f"{left} records were not acknowledged within {timeout_s:g} s{self._errors.because()}", left
                )
        self._raise_unseen()

    def _raise_refusal(self) -> None:
        if self._errors.refusal is not None:
            raise self._errors.refusal

    def _raise_unseen(self) -> None:
        if not self._unseen:
            return
        count = len(self._unseen) + self._unseen_more
        _, first = next(iter(self._unseen.values()))
        self._unseen.clear()
        self._unseen_more = 0
        more = f" ({count - 1} more failed)" if count > 1 else ""
        made = DeliveryError(f"{first}{more}", code=first.code, name=first.name, retriable=first.retriable)
        made.remedy = first.remedy
        raise made from first

    def metrics(self) -> dict[MetricName, float]:
        """The producer's figures by Kafka's names, as of the last report: record-send-total, say.

        It needs ``statistics.interval.ms``, or ``metrics.http.address``, which shows them to
        Prometheus; a report is taken by `send`, `poll` and `flush`. Raises `ConfigurationError`
        without. In Kafka: KafkaProducer.metrics().
        """
        return self._statistics.metrics()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go, within ``timeout_s`` (None: ``close_timeout_s``); a
        second call does nothing.

        What is not acknowledged by then is given up, and `UndeliveredError` says how many records
        that are; see `flush` for what else it raises.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.flush(self._close_timeout_s if timeout_s is None else timeout_s)
        finally:
            self.purge()

    def purge(self) -> int:
        """Give up all records that wait or are on their way; returns their number.

        Their receipts fail."""
        self._statistics.close()
        with contextlib.suppress(ClientError):
            self.poll()  # problems with brokers that are not reported yet count, too
        left = len(self)
        if left:
            kept, self._on_failure = self._on_failure, self._on_failure or _ignore_failure
            self._pool.purge()
            with contextlib.suppress(ClientError):
                self._pool.flush(0.1)
            self._on_failure = kept
        return left

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        # An error is under way already: send what can be sent in a moment, and do
        # not hide it behind another.
        self._closed = True
        with contextlib.suppress(ClientError):
            self.flush(min(self._close_timeout_s, 5.0 if issubclass(kind, Exception) else 0.5))
        if left := self.purge():
            logger.warning(
                "%d records were given up unacknowledged, because %s ended the producer", left, kind.__name__
            )

    def __len__(self) -> int:
        """Records that wait or are on their way, and reports that `poll` will serve."""
        return len(self._pool)

    # For receipts

    def wait_for(self, receipt: Receipt, timeout_s: float | None) -> None:
        """Serve reports until this receipt's comes."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not receipt.done:
            wait_s = _POLL_S if end is None else min(_POLL_S, end - time.monotonic())
            if wait_s <= 0:
                raise TimedOutError(f"the record was not acknowledged within {timeout_s:g} s{self._errors.because()}")
            self._pool.poll(wait_s)
            self._raise_refusal()

    def is_ready(self, topic: str) -> bool:
        """Whether `prepare` knows the limits of the topic; `get_ready` blocks until it does."""
        return not isinstance(topic, str) or topic in self._routes

    def get_ready(self, topic: str) -> None:
        """Learn the limits of a topic before its first record. Blocks for a request."""
        self._pool.route(topic)

    def delivery_error(self, error: Any, message: Any) -> DeliveryError:
        """Why a record was not delivered: how large it may be; or where it timed out, the
        last problem with a broker."""
        topic = message.topic()
        made = from_librdkafka(error, f"a record for {topic} was not delivered", DeliveryError)
        assert isinstance(made, DeliveryError)
        if made.name in TOO_LARGE:
            size_bytes = size_of(message.key(), message.value(), message.headers())
            limit = self._pool.limit_after_refusal(topic)
            why = too_large(made.name, topic, size_bytes, limit, self._pool.batch_size)
            _explain(made, topic, "was not delivered", why)
        last = self._errors.last
        # The error is no lost connection: the brokers were there.
        if made.name == "_MSG_TIMED_OUT" and (last is None or last.name == "_ALL_BROKERS_DOWN"):
            limit = self._pool.limit_of_requests(topic)
            if limit is not None:
                _explain(made, topic, "was not delivered", request_too_large(limit))
                return made
        if made.name == "_MSG_TIMED_OUT" and last is not None:
            made.args = (f"{made}{self._errors.because()}",)
        return made

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

    # Transactions

    def init_transactions(self, timeout_s: float = 30.0) -> None:
        """Register the ``transactional.id``, once.

        Raises `UnsupportedError` at once where brokers lack transactions."""
        self._check_open()
        self._transactions.init(timeout_s)

    def begin_transaction(self) -> None:
        """What is sent from here on is seen together, or not at all."""
        self._check_open()
        self._transactions.begin()

    def commit_transaction(self, timeout_s: float = 30.0) -> None:
        """Make everything of the transaction visible.

        Raises `TransactionError` when it must be aborted. After another error that is
        ``retriable``, call it again: the commit may have taken place.
        """
        self._check_open()
        self._transactions.commit(timeout_s)

    def abort_transaction(self, timeout_s: float = 30.0) -> None:
        """Give the transaction up.

        Its records that were not sent yet fail, which is no error of the producer."""
        self._check_open()
        self._transactions.abort(timeout_s)
        for receipt, error in list(self._unseen.values()):
            if error.name in _PURGED:
                self.discard_failure(receipt)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group_metadata: Any, timeout_s: float = 30.0
    ) -> None:
        """Commit a consumer's offsets with the transaction.

        ``group_metadata`` is `Consumer.group_metadata`'s."""
        self._check_open()
        self._transactions.send_offsets(offsets, group_metadata, timeout_s)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction as a ``with`` block: committed at its end, aborted when it raises.

        It is aborted, too, when it cannot be committed (`TransactionError`). After another error of
        the commit that is ``retriable`` it is not: call `commit_transaction` again.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException:
            self._abort_quietly()
            raise
        try:
            self.commit_transaction()
        except TransactionError:
            self._abort_quietly()
            raise

    def _abort_quietly(self) -> None:
        """An error is under way, which says more."""
        with contextlib.suppress(ClientError):
            self.abort_transaction()

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; raises `UnknownTopicError`."""
        self._check_open()
        return self._count_partitions(topic)

    def _count_partitions(self, topic: str) -> int:
        """Asks the cluster, which may be making the topic this moment because it was asked for."""
        began = time.monotonic()
        patience_s = dict.fromkeys(UNKNOWN_TOPIC_NAMES, BEING_MADE_S) | {_NO_LEADER_YET.name(): _METADATA_S}
        while True:
            try:
                found = self.librdkafka.list_topics(topic, timeout=_METADATA_S).topics[topic]
            except confluent_kafka.KafkaException as error:
                raise from_librdkafka(error.args[0], f"cannot learn the partitions of {topic}") from error
            if found.error is None and found.partitions:
                return len(found.partitions)
            problem = found.error or _NO_LEADER_YET
            if time.monotonic() >= began + patience_s.get(problem.name(), 0):
                raise from_librdkafka(problem, f"cannot learn the partitions of {topic}")
            time.sleep(_POLL_S)


def pairs(values: Iterable[V], keys: Iterable[K]) -> list[tuple[V, K]]:
    """Values with their keys; raises before any is sent where one of the two is longer."""
    all_values, all_keys = list(values), list(keys)
    if len(all_values) != len(all_keys):
        raise ConfigurationError(f"{len(all_values)} values cannot be sent with {len(all_keys)} keys")
    return list(zip(all_values, all_keys, strict=True))


def _header_list(headers: Headers) -> list[tuple[str, bytes | None]]:
    """A list of them.

    A mapping, or a list of texts, would look like pairs where they have two letters."""
    given = [] if isinstance(headers, Mapping) or not isinstance(headers, Iterable) else list(headers)
    if given and all(isinstance(each, tuple | list) and len(each) == 2 for each in given):
        return given
    raise SerializationError(f"headers={headers!r}: a list of pairs, a name and bytes, is expected")


def _explain(error: ClientError, topic: str, outcome: str, why: tuple[str, str]) -> None:
    """Say in an error what is too large, and the remedy."""
    reason, error.remedy = why
    error.args = (f"a record for {topic} {outcome}: {reason} ({error.remedy})",)


def _ignore_failure(_: ClientError) -> None:
    """The listener for the failures of records that are given up."""


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if hasattr(cause, "str") else str(cause)
