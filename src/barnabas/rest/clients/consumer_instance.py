"""A consumer instance: a consumer that several requests use, one after the other.

What a read returned counts as processed when the next read begins, so only then may an automatic
commit include it; a record that did not fit into an answer is not returned, and not committed.

In Kafka: `KafkaConsumer`. In Confluent's proxy: KafkaConsumerState and KafkaConsumerReadTask.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from barnabas.base.ids import TopicPartition
from barnabas.client.aio.thread import InOneThread
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ClientError, from_librdkafka
from barnabas.client.records import Record
from barnabas.rest.core.instances import InstanceConfig
from barnabas.rest.core.read_requests import OffsetToCommit, SeekWish, ValueText, consumed_record_text
from barnabas.rest.errors import RestCode, RestError

__all__ = ["ConsumerInstance", "ReadBounds"]

_SEEK_S = 3.0
_PAUSE_S = 0.05
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """When a read ends: with as many bytes, as many records, or after a time; ``min_bytes`` -1:
    as soon as there are records."""

    timeout_s: float
    max_bytes: int
    min_bytes: int
    max_records: int


class ConsumerInstance:
    """One member of a group."""

    def __init__(
        self,
        group: str,
        name: str,
        config: InstanceConfig,
        properties: Mapping[str, str],
        value_text: ValueText,
    ) -> None:
        self.group, self.name, self.config = group, name, config
        self._value_text = value_text
        self._consumer: Consumer[bytes, bytes] = Consumer(
            {
                "client.id": name,
                **properties,
                "group.id": group,
                "auto.offset.reset": config.auto_offset_reset,
                "enable.auto.commit": str(config.auto_commit).lower(),
            },
            deserializer=BYTES,
            key_deserializer=BYTES,
        )
        self._thread = InOneThread("rest-consumer")
        self._waiting: deque[Record[bytes, bytes]] = deque()
        """Fetched, and not returned yet."""
        self._returned: dict[TopicPartition, int] = {}
        """The next offset behind what reads have returned."""
        self._failure: Exception | None = None
        """To be raised by the next read."""
        self.reading = asyncio.Lock()
        """Held from the beginning of a read until it is known whether its client is there."""
        self.topics: list[str] = []
        self._is_assigned = False

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a method of this class returns, in the consumer's thread."""
        return await self._thread.run(function, *arguments)

    # In the thread

    def read(self, limits: ReadBounds) -> tuple[bytes, list[Record[bytes, bytes]]]:
        """The records as JSON, and as they are. Raises `ClientError` and `RestError`."""
        self._store()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        end = time.monotonic() + limits.timeout_s
        texts: list[str] = []
        records: list[Record[bytes, bytes]] = []
        size = 0
        try:
            while len(texts) < limits.max_records:
                is_enough = bool(texts) and size >= limits.min_bytes
                record = self._next(0.0 if is_enough else max(0.0, end - time.monotonic()))
                if record is None:
                    break
                size += len(record.key or b"") + len(record.value or b"")
                if size > limits.max_bytes and texts:
                    self._waiting.appendleft(record)
                    break
                texts.append(self._text(record))
                records.append(record)
                self._returned[TopicPartition(record.topic, record.partition)] = record.offset + 1
        except (ClientError, RestError) as error:
            if not texts:
                raise
            self._failure = error
        return f"[{','.join(texts)}]".encode("utf-8", "backslashreplace"), records

    def put_back(self, records: list[Record[bytes, bytes]]) -> None:
        """The client of the last read is gone: the next read returns its records again."""
        for record in reversed(records):
            self._waiting.appendleft(record)
            self._returned[TopicPartition(record.topic, record.partition)] = record.offset

    def _next(self, wait_s: float) -> Record[bytes, bytes] | None:
        if self._waiting:
            return self._waiting.popleft()
        if not self._consumer.has_record:
            self._consumer.forget()  # what it handed out is stored by `_store`, when it was returned
        return self._consumer.poll(wait_s)

    def _text(self, record: Record[bytes, bytes]) -> str:
        """Raises `RestError` for a record that is not in the format; the next read goes on
        behind it."""
        try:
            return consumed_record_text(record, self._value_text, self._value_text)
        except ValueError as error:
            self._returned[TopicPartition(record.topic, record.partition)] = record.offset + 1
            raise RestError(
                RestCode.KAFKA,
                f"{record.topic}-{record.partition} offset {record.offset} is not in the format "
                f"{self.config.format}: {str(error)[:300]}. The next read goes on behind it",
            ) from None

    def _store(self) -> None:
        """Let automatic commits include what was returned."""
        if not self.config.auto_commit:
            return
        for (topic, partition), offset in self._returned.items():
            try:
                self._consumer.librdkafka.store_offsets(
                    offsets=[confluent_kafka.TopicPartition(topic, partition, offset)]
                )
            except confluent_kafka.KafkaException as error:
                if error.args[0].name() not in ("_STATE", "_UNKNOWN_PARTITION"):  # another member has it by now
                    raise from_librdkafka(error.args[0], "cannot store offsets") from error

    def commit(self, offsets: Mapping[TopicPartition, OffsetToCommit] | None) -> None:
        """Commit these, or all that reads have returned."""
        if offsets is None:
            mine = set(self._consumer.assignment())
            offsets = {place: OffsetToCommit(offset) for place, offset in self._returned.items() if place in mine}
        if not offsets:
            return
        wanted = [
            confluent_kafka.TopicPartition(topic, partition, each.offset, each.metadata)
            for (topic, partition), each in offsets.items()
        ]
        try:
            done = self._consumer.librdkafka.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], "the commit failed") from error
        for item in done or ():
            if item.error is not None:
                raise from_librdkafka(item.error, f"the commit of {item.topic}-{item.partition} failed")

    def committed(self, partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
        """What the group has committed, where it has."""
        wanted = [confluent_kafka.TopicPartition(*place) for place in partitions]
        try:
            found = self._consumer.librdkafka.committed(wanted, timeout=30.0)
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], "cannot read committed offsets") from error
        return [
            {
                "topic": item.topic,
                "partition": item.partition,
                "offset": item.offset,
                "metadata": item.metadata or "",
            }
            for item in found
            if item.error is None and item.offset >= 0
        ]

    def subscribe(self, topics: list[str]) -> None:
        """Share these topics with the group. Raises `RestError` after `assign`."""
        if self._is_assigned:
            raise _illegal("Subscription to topics, partitions and pattern are mutually exclusive")
        self._store()
        self._forget()
        self._consumer.subscribe(topics)
        self.topics = topics

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._store()
        self._forget()
        self._consumer.unsubscribe()
        self.topics, self._is_assigned = [], False

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these. Raises `RestError` after `subscribe`."""
        if self.topics:
            raise _illegal("Subscription to topics, partitions and pattern are mutually exclusive")
        self._store()
        self._forget()
        self._consumer.assign(partitions)
        self._is_assigned = bool(partitions)

    def assignment(self) -> list[TopicPartition]:
        """What is read."""
        return sorted(self._consumer.assignment())

    def seek(self, wishes: Mapping[TopicPartition, SeekWish]) -> None:
        """Read on there. Raises `RestError` for a partition that is not assigned."""
        self._check_assigned(wishes)
        times = {place: wish.time_ms for place, wish in wishes.items() if wish.time_ms is not None}
        found = self._consumer.offsets_for_times(times) if times else {}
        for place, wish in wishes.items():
            offset = wish.offset
            if offset is None:
                at_time = found.get(place)
                offset = self._consumer.watermarks(*place)[1] if at_time is None else at_time
            self._seek(place, offset)

    def seek_to_beginning(self, partitions: list[TopicPartition]) -> None:
        """Read on at the first records."""
        self._check_assigned(partitions)
        for place in partitions:
            self._seek(place, self._consumer.watermarks(*place)[0])

    def seek_to_end(self, partitions: list[TopicPartition]) -> None:
        """Read on behind the last records."""
        self._check_assigned(partitions)
        # Now, not at the next read: what comes in between is read.
        for place in partitions:
            self._seek(place, self._consumer.watermarks(*place)[1])

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = set(self._consumer.assignment())
        for place in partitions:
            if place not in assigned:
                raise _illegal(f"No current assignment for partition {place}")

    def _seek(self, place: TopicPartition, offset: int) -> None:
        """librdkafka takes a moment after an assignment before it can."""
        self._returned.pop(place, None)
        self._waiting = deque(each for each in self._waiting if (each.topic, each.partition) != place)
        end = time.monotonic() + _SEEK_S
        while True:
            try:
                self._consumer.seek(*place, offset)
            except ClientError as error:
                if error.name != "_STATE" or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def _forget(self) -> None:
        self._waiting.clear()
        self._returned.clear()
        self._failure = None

    async def close(self) -> None:
        """Commit what was returned, if commits are automatic, and leave the group."""

        def end() -> None:
            try:
                self._store()
            finally:
                self._consumer.forget()
                self._consumer.close(_CLOSE_S)

        try:
            await self._thread.run(end)
        finally:
            self._thread.end()


def _illegal(message: str) -> RestError:
    return RestError(RestCode.ILLEGAL_STATE, f"Illegal state: {message}")
