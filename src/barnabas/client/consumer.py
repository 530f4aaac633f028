"""`Consumer`: reads records through librdkafka, alone or as a member of a group.

Records are fetched many at a time and handed out one by one. A record counts as processed when the next one is asked
for, as with Java's poll: only then may automatic commits include it, so that a crash in the middle repeats records and
loses none.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.client.codecs import Decoder, decoder
from barnabas.client.errors import from_librdkafka
from barnabas.client.logs import ErrorLog, librdkafka_logger, logger
from barnabas.client.properties import plan_consumer
from barnabas.client.records import Record

__all__ = ["Consumer", "DeserializationError"]

_BATCH_RECORDS = 500
_WAKE_S = 0.1  # so that Ctrl-C and close take effect soon
# What goes by without the caller's help: librdkafka tries on, a topic may be created, the group is joined again.
_PASSING = frozenset(
    (
        "_PARTITION_EOF",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_MAX_POLL_EXCEEDED",
        "UNKNOWN_TOPIC_OR_PART",
    )
)


class DeserializationError(BarnabasError):
    """Bytes that the deserializer could not read; ``record`` holds them as they came."""

    def __init__(self, message: str, record: Record) -> None:
        super().__init__(message)
        self.record = record


class Consumer:
    """Reads records. Not for several threads at once.

    ``properties`` are sorted by `barnabas.client.properties.plan_consumer`; the keyword arguments are
    ``deserializer.class`` and ``key.deserializer.class`` as objects. Without ``group.id`` it can `assign` but not
    `subscribe`.
    """

    def __init__(
        self, properties: Mapping[str, Any], *, deserializer: Any = None, key_deserializer: Any = None
    ) -> None:
        plan = plan_consumer(properties)
        if plan.zookeeper_connect is not None:
            from barnabas.client.discovery import brokers_in_zookeeper

            plan.librdkafka["bootstrap.servers"] = brokers_in_zookeeper(plan.zookeeper_connect)
        for warning in plan.warnings:
            logger.warning(warning)
        self._decode = decoder(deserializer or plan.deserializer)
        self._decode_key = decoder(key_deserializer or plan.key_deserializer, "key.deserializer.class")
        self.iteration_timeout_s = None if plan.iteration_timeout_ms is None else plan.iteration_timeout_ms / 1000
        self._waiting: deque[Any] = deque()
        self._handed_out: dict[tuple[str, int], Any] = {}  # each partition's last message, until it is stored
        self._revoked: set[tuple[str, int]] = set()
        self._before_revoke: Callable[[], None] | None = None
        self._errors = ErrorLog()
        self.closed = False
        self._has_group = bool(plan.librdkafka.get("group.id"))
        settings = {
            "logger": librdkafka_logger,
            "error_cb": self._errors,
            "group.id": "barnabas-without-a-group",  # librdkafka insists; see subscribe
            **plan.librdkafka,
            "enable.auto.offset.store": False,
        }
        if not self._has_group:
            settings["enable.auto.commit"] = False
        try:
            self.librdkafka = confluent_kafka.Consumer(settings)
            """The consumer underneath, for what this class does not wrap."""
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            cause = error.args[0] if error.args else error
            reason = cause.str() if hasattr(cause, "str") else cause
            raise ConfigError(f"these consumer properties cannot be used: {reason}") from error

    def subscribe(self, topics: Sequence[str], *, before_revoke: Callable[[], None] | None = None) -> None:
        """Share these topics with the group; a name that starts with ``^`` is a regular expression.

        ``before_revoke`` is called when partitions are about to go to another member, all that was handed out of them
        being processed by then: the last moment to `commit`.
        """
        if not self._has_group:
            raise ConfigError("group.id is missing: a consumer without a group can assign partitions, not subscribe")
        self._store()
        self._waiting.clear()
        # With a listener a rebalance waits until we ask for more, that is until what was handed out is processed.
        self._before_revoke = before_revoke
        self.librdkafka.subscribe(list(topics), on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        if self._before_revoke is not None:
            self._before_revoke()
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self._revoked.update((item.topic, item.partition) for item in partitions)

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, from the given offsets, or from where ``auto.offset.reset`` says."""
        given = (
            partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, confluent_kafka.OFFSET_INVALID)
        )
        self._waiting.clear()
        self._handed_out.clear()
        self.librdkafka.assign([confluent_kafka.TopicPartition(t, p, offset) for (t, p), offset in given.items()])

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        return [TopicPartition(item.topic, item.partition) for item in self.librdkafka.assignment()]

    def poll(self, timeout_s: float = 0.0) -> Record | None:
        """The next record, or None when there is none within ``timeout_s``."""
        message = self._next(timeout_s)
        return None if message is None else self._record(message)

    def consume(self, max_records: int = _BATCH_RECORDS, timeout_s: float = 1.0) -> list[Record]:
        """Up to ``max_records``: what comes until the first of them has waited ``timeout_s``."""
        records: list[Record] = []
        while len(records) < max_records and (record := self.poll(0.0 if records else timeout_s)) is not None:
            records.append(record)
        return records

    def __iter__(self) -> Iterator[Record]:
        """Records for ever, or until none came for ``consumer.timeout.ms``."""
        while not self.closed:
            message = self._next(self.iteration_timeout_s)
            if message is None:
                return
            yield self._record(message)

    def _next(self, timeout_s: float | None) -> Any:
        return self._waiting.popleft() if self.wait(timeout_s) else None

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is a record to hand out, at once or within ``timeout_s`` (None: wait for ever)."""
        if self._waiting:
            return True
        self._store()  # everything handed out is processed by now
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.closed:
            wait_s = _WAKE_S if end is None else max(0.0, min(_WAKE_S, end - time.monotonic()))
            for message in self._consume(wait_s):
                error = message.error()
                if error is None:
                    self._waiting.append(message)
                elif error.name() in _PASSING or error.retriable():
                    self._errors(error)
                else:
                    raise from_librdkafka(error, f"cannot read {message.topic() or 'records'}")
            if self._waiting:
                return True
            if end is not None and time.monotonic() >= end:
                return False
        return False

    def _consume(self, wait_s: float) -> list[Any]:
        """One message as soon as there is one, and those that wait behind it."""
        first = self.librdkafka.poll(wait_s)
        if first is None:
            return []
        self._revoked.clear()
        batch = [first, *self.librdkafka.consume(_BATCH_RECORDS, 0)]
        if self._revoked:
            # The second call served a rebalance: what is in hand of these partitions is their new owner's.
            batch = [message for message in batch if (message.topic(), message.partition()) not in self._revoked]
        return batch

    def _record(self, message: Any) -> Record:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self._handed_out[topic, partition] = message
        kind, timestamp_ms = message.timestamp()
        key, value, headers = message.key(), message.value(), message.headers() or ()
        if self._decode is not None or self._decode_key is not None:
            raw = Record(topic, partition, offset, key, value, timestamp_ms, max(kind - 1, 0), headers)
            key = _decoded(self._decode_key, key, raw, "key")
            value = _decoded(self._decode, value, raw, "value")
        return Record(
            topic,
            partition,
            offset,
            key,
            value,
            timestamp_ms if kind else None,
            max(kind - 1, 0),
            headers,
            message.leader_epoch(),
        )

    def _store(self) -> None:
        """Let automatic commits include what was handed out."""
        if self._has_group:
            for message in self._handed_out.values():
                try:
                    self.librdkafka.store_offsets(message)
                except confluent_kafka.KafkaException as error:
                    if error.args[0].name() != "_STATE":  # the partition went to another member meanwhile
                        raise from_librdkafka(error.args[0], "cannot store offsets") from error
        self._handed_out.clear()

    def commit(self) -> None:
        """Commit, now, everything that was handed out; waits for the coordinator."""
        self._store()
        try:
            self.librdkafka.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":  # nothing new since the last commit
                raise from_librdkafka(error.args[0], "the commit failed") from error

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset`` in a partition that is assigned."""
        self._waiting = deque(m for m in self._waiting if (m.topic(), m.partition()) != (topic, partition))
        self._handed_out.pop((topic, partition), None)
        try:
            self.librdkafka.seek(confluent_kafka.TopicPartition(topic, partition, offset))
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], f"cannot seek in {topic}-{partition}") from error

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        asked = [confluent_kafka.TopicPartition(topic, partition) for topic, partition in partitions]
        try:
            found = self.librdkafka.committed(asked, timeout=timeout_s)
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], "cannot read committed offsets") from error
        return {TopicPartition(item.topic, item.partition): item.offset if item.offset >= 0 else None for item in found}

    def topics(self, timeout_s: float = 30.0) -> list[str]:
        """Names of the cluster's topics, internal ones included."""
        try:
            return sorted(self.librdkafka.list_topics(timeout=timeout_s).topics)
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], "cannot list the topics") from error

    def watermarks(self, topic: str, partition: int, timeout_s: float = 30.0) -> tuple[int, int]:
        """The first offset of a partition and the one that the next record will get."""
        try:
            low, high = self.librdkafka.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, partition), timeout=timeout_s
            )
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], f"cannot read the offsets of {topic}-{partition}") from error
        return low, high

    def close(self) -> None:
        """Commit what was handed out, if commits are automatic, and leave the group. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        try:
            self._store()
        finally:
            self.librdkafka.close()

    def forget(self) -> None:
        """Take back what was handed out since the last wait: it was not processed, so it is not committed."""
        self._handed_out.clear()

    @property
    def has_record(self) -> bool:
        """Whether the next record can be had without waiting."""
        return bool(self._waiting)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.forget()
        self.close()


def _decoded(decode: Decoder | None, data: bytes | None, raw: Record, what: str) -> Any:
    if decode is None or data is None:
        return data
    try:
        return decode(data)
    except Exception as error:  # the user's code may raise anything
        raise DeserializationError(
            f"the {what} of {raw.topic}-{raw.partition} offset {raw.offset} cannot be read: {error}", raw
        ) from error
