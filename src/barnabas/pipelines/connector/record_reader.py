"""When a range of one partition that librdkafka reads is done, lost or unreadable,
in a worker of Spark.

It reads what `range_reader` cannot, with a Python object for each record. The consumers are kept by
the worker, for set-up takes time.

librdkafka passes over a batch that it cannot read, and reports it; here such a report ends the
range, as do records that are gone. Batches are checked, which librdkafka by itself does not do.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.base.errors import BarnabasError
from barnabas.base.record_times import NO_TIME, microseconds
from barnabas.pipelines.cluster.kafka_cluster import open_client
from barnabas.pipelines.cluster.offsets import Range
from barnabas.pipelines.cluster.options import SourceOptions, client_config
from barnabas.pipelines.connector.range_progress import FINAL_ERRORS, Lost
from barnabas.pipelines.errors import DataLossError

__all__ = ["KeptByProcess", "read_by_record"]

Kept = TypeVar("Kept")
_Message = Any
"""confluent_kafka's; its stubs make offsets and times optional, which those of
fetched records are not."""

_BATCH_RECORDS = 10_000
_POLL_S = 0.5
_ANSWER_S = 10.0
_SHORT_S = 10.0
"""So long a log must end before the range until its records count as lost: a new leader may
lag behind for a moment."""
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_SKIPPED = {
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError._UNDERFLOW,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
}
"""Reports of what librdkafka passes over."""
_FINAL = {*map(int, FINAL_ERRORS), KafkaError._AUTHENTICATION}

# librdkafka's kinds of timestamp to those of Spark's connector: none -1, CreateTime
# 0, LogAppendTime 1.
_TIMESTAMP_TYPES = {0: -1, 1: 0, 2: 1}

_COLUMNS: dict[str, Callable[[list[_Message]], list[Any]]] = {
    "key": lambda messages: [each.key() for each in messages],
    "value": lambda messages: [each.value() for each in messages],
    "topic": lambda messages: [each.topic() for each in messages],
    "partition": lambda messages: [each.partition() for each in messages],
    "offset": lambda messages: [each.offset() for each in messages],
    "timestamp": lambda messages: [microseconds(each.timestamp()[1]) for each in messages],
    "timestampType": lambda messages: [_timestamp_type(*each.timestamp()) for each in messages],
    "headers": lambda messages: [
        None if headers is None else [{"key": each[0], "value": each[1]} for each in headers]
        for headers in (each.headers() for each in messages)
    ],
}


def _timestamp_type(kind: int, timestamp_ms: int) -> int:
    return -1 if timestamp_ms == NO_TIME else _TIMESTAMP_TYPES[kind]


class KeptByProcess(Generic[Kept]):
    """What a process keeps for its next range, by the options that it was made with.

    Connections do not survive a fork."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._kept: dict[tuple[object, ...], Kept] = {}

    def take(self, key: tuple[object, ...]) -> Kept | None:
        """What is kept for a key; it is then the caller's alone."""
        if self._pid != os.getpid():
            self._pid, self._kept = os.getpid(), {}
        return self._kept.pop(key, None)

    def keep(self, key: tuple[object, ...], value: Kept) -> None:
        """Keep what `take` gave, or did not have."""
        self._kept[key] = value


_consumers = KeptByProcess[Consumer]()


class _Throttled:
    """The pauses that brokers asked for, of all consumers of the process (KIP-219)."""

    total_s = 0.0


def _note_throttle(event: Any) -> None:
    _Throttled.total_s += event.throttle_time


def read_by_record(
    options: SourceOptions, schema: pa.Schema, wanted: Range, lost: Callable[[Lost], None] = lambda _: None
) -> Iterator[pa.RecordBatch]:
    """The records of the range, in order.

    Offsets may have holes (compaction, markers of transactions), even at the range's end, so
    reading stops at the first record that lies at or past the end, or when the broker says that the
    partition ends. ``lost`` is called with records that are gone where the options allow it.
    """
    key, consumer = _borrow(options)
    builders = [_COLUMNS[field.name] for field in schema]
    try:
        consumer.assign([ClientPartition(wanted.topic, wanted.partition, wanted.start)])
        for messages in _Poll(consumer, options, wanted, lost).batches():
            columns = [
                pa.array(build(messages), type=field.type) for build, field in zip(builders, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    _consumers.keep(key, consumer)


def _borrow(options: SourceOptions) -> tuple[tuple[object, ...], Consumer]:
    """A consumer for the options: the worker's own from the batch before, or a new one."""
    config = client_config(
        options.kafka,
        **{
            # librdkafka asks for a group although none is joined and nothing committed.
            "group.id": "barnabas-spark-source",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            # As Spark's connector and Java's consumer have it; librdkafka alone
            # would take read_committed.
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 16 * 1024,
            "throttle_cb": _note_throttle,
        },
    )
    key = tuple(sorted(config.items()))
    return key, _consumers.take(key) or open_client(Consumer, config)


class _Poll:
    """A range that a consumer reads."""

    def __init__(self, consumer: Consumer, options: SourceOptions, wanted: Range, lost: Callable[[Lost], None]) -> None:
        self._consumer = consumer
        self._options = options
        self._wanted = wanted
        self._lost = lost
        self._next_offset = wanted.start
        self._problem = ""
        self._short_since_s: float | None = None

    def batches(self) -> Iterator[list[_Message]]:
        """The messages of the range."""
        wanted, allowed_s = self._wanted, self._options.fetch_timeout_ms / 1000
        deadline = time.monotonic() + allowed_s
        throttled_s = _Throttled.total_s
        while self._next_offset < wanted.end:
            polled: list[_Message] = self._consumer.consume(
                min(_BATCH_RECORDS, wanted.end - self._next_offset), _POLL_S
            )
            deadline += _Throttled.total_s - throttled_s
            throttled_s = _Throttled.total_s
            before = self._next_offset
            records = [each for each in polled if self._take(each)]
            if records and (records[0].offset() < wanted.start or records[-1].offset() >= wanted.end):
                records = [each for each in records if wanted.start <= each.offset() < wanted.end]
            if records:
                yield records
            if self._next_offset > before:
                deadline = time.monotonic() + allowed_s
            elif self._is_short():
                self._lose(wanted.end)
            elif time.monotonic() > deadline:
                problem = self._problem or "is the partition's leader up?"
                raise self._failure(
                    f"no record came within fetchTimeoutMs = {self._options.fetch_timeout_ms}: {problem}"
                )

    def _take(self, message: _Message) -> bool:
        """Whether it is a record; what else a message says is noted."""
        failure = message.error()
        if failure is None:
            self._next_offset = message.offset() + 1
            self._problem, self._short_since_s = "", None
            return True
        code = failure.code()
        if code == KafkaError._PARTITION_EOF:
            self._next_offset = max(self._next_offset, message.offset())
            self._problem = f"the partition ends at {message.offset()}"
            self._short_since_s = self._short_since_s or time.monotonic()
        elif code in _GONE:
            self._after_loss()
        elif failure.fatal() or code in _FINAL or code in _SKIPPED:
            raise self._failure(failure.str())
        else:
            self._problem = str(failure.str())
        return False

    def _is_short(self) -> bool:
        """Whether records may be lost, and the log has ended before the range for a while."""
        if self._options.fail_on_data_loss or self._short_since_s is None:
            return False
        return time.monotonic() > self._short_since_s + _SHORT_S and self._bounds()[1] < self._wanted.end

    def _after_loss(self) -> None:
        earliest, latest = self._bounds()
        if earliest <= self._next_offset <= latest:  # it was so for a moment only
            self._seek()
            return
        if self._options.fail_on_data_loss:
            raise DataLossError.gone(
                self._wanted.topic,
                self._wanted.partition,
                f"has no offset {self._next_offset} any more, but {earliest} to {latest}: retention or DeleteRecords took it, "
                "or the topic was deleted and made again.",
            )
        self._lose(min(earliest, self._wanted.end) if earliest > self._next_offset else self._wanted.end)
        if self._next_offset < self._wanted.end:
            self._seek()

    def _lose(self, end: int) -> None:
        self._lost(Lost(self._next_offset, end))
        self._next_offset = end

    def _seek(self) -> None:
        self._consumer.assign([ClientPartition(self._wanted.topic, self._wanted.partition, self._next_offset)])

    def _bounds(self) -> tuple[Any, Any]:
        place = ClientPartition(self._wanted.topic, self._wanted.partition)
        try:
            found = self._consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
        except KafkaException as error:
            raise self._failure(error.args[0].str()) from error
        if found is None:
            raise self._failure("the broker did not say which offsets the partition has")
        return found

    def _failure(self, why: str) -> BarnabasError:
        wanted = self._wanted
        return BarnabasError(
            f"librdkafka cannot read {wanted.topic}-{wanted.partition} from offset {self._next_offset} (up to {wanted.end}): "
            f"{why}"
        )
