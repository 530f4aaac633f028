"""Topics as a Spark sink: the write half of the data source ``barnabas``.

Rows have the columns ``value`` and, as wished, ``key``, ``topic``, ``partition`` and ``headers``,
as for Spark's Kafka connector. Keys and values are bytes or text. Producers are idempotent, so a
retry inside a task adds nothing; a task or micro-batch that Spark runs again does write again (at
least once). To recognise that, give rows deterministic keys: the pipelines do (see
`barnabas.pipelines.running.batch_sinks`).

Our own producer turns columns into record batches. librdkafka, with an object for each record,
writes where more than plain TCP is asked for. Both choose partitions as Java's producer does. A
worker keeps its producer for the next task.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.client.errors import classify
from barnabas.client.producer.batch_limits import TOO_LARGE, size_of, too_large
from barnabas.client.producer.pool import ProducerPool
from barnabas.pipelines.cluster.kafka_cluster import open_client
from barnabas.pipelines.cluster.options import SinkOptions, client_config
from barnabas.pipelines.connector.column_producer import ColumnProducer, can_write
from barnabas.pipelines.connector.letters import OF_RECORDS, Letter, RefusalPolicy, refusal_policy_of

__all__ = ["BatchTopicWriter", "RowsWritten", "StreamTopicWriter"]

_BATCH_BYTES = 256 * 1024
_RECORD_BYTES = 100 * 1024 * 1024
"""More than brokers take in a request: the topic says how large a record may be, not librdkafka."""
_ALONE_S = 120.0
_KINDS: dict[str, tuple[type, ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


class _Producers:
    """What a worker of Spark keeps for its next task; connections do not survive a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.idle: dict[tuple[object, ...], ColumnProducer] = {}


_producers = _Producers()


def _idle_producers() -> dict[tuple[object, ...], ColumnProducer]:
    global _producers
    if _producers.pid != os.getpid():
        _producers = _Producers()
    return _producers.idle


@dataclass
class RowsWritten(WriterCommitMessage):
    """What a task reports to the driver."""

    rows: int


class _TopicWriter:
    """What both writers do; travels to the workers."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        names = schema.fieldNames()
        if "value" not in names:
            raise ConfigError(f"a topic sink needs a column value; the rows have {', '.join(names)}")
        if options.topic is None and "topic" not in names:
            raise ConfigError("a topic sink needs the option topic, or a column topic")
        for field in schema.fields:
            if field.name not in _KINDS:
                raise ConfigError(f"a topic sink has no column {field.name}; it takes {', '.join(_KINDS)}")
            if not isinstance(field.dataType, _KINDS[field.name]):
                raise ConfigError(f"column {field.name} cannot be {field.dataType.simpleString()}")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Produces every row and returns when all are acknowledged.

        Raises with the first failure."""
        return RowsWritten(
            self._write_columns(iterator) if can_write(self._options.kafka) else self._write_by_record(iterator)
        )

    def _write_columns(self, iterator: Iterator[pa.RecordBatch]) -> int:
        options = self._options
        idle = _idle_producers()
        refusal = (options.on_refusal, options.letters_file)
        key = (options.topic, options.flush_timeout_ms, *refusal, *sorted(options.kafka.items()))
        producer = idle.pop(key, None) or ColumnProducer(options)
        try:
            rows = producer.write(iterator)
        except BaseException:
            producer.close()
            raise
        idle[key] = producer
        return rows

    def _write_by_record(self, iterator: Iterator[pa.RecordBatch]) -> int:
        config = client_config(
            self._options.kafka,
            **{
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "message.max.bytes": _RECORD_BYTES,
            },
        )
        failures: list[str] = []
        refused: list[tuple[str, int, Letter]] = []
        policy = refusal_policy_of(self._options.on_refusal, self._options.letters_file)

        def delivered(failure: Any, message: Any, letter: Letter | None = None) -> None:
            if failure is None:
                return
            if letter and classify(failure, "").name in OF_RECORDS:
                refused.append((message.topic(), message.partition(), letter))
            else:
                failures.append(f"{message.topic()}: {_reason(pool, failure, message)}")

        settings = {**config, "on_delivery": delivered, "delivery.report.only.error": True}
        pool: ProducerPool = open_client(lambda given: ProducerPool(given, _BATCH_BYTES), settings)
        rows = 0
        for batch in iterator:
            rows += batch.num_rows
            self._produce(pool, batch, delivered if policy else None)
            if failures:
                break
        left = pool.flush(self._options.flush_timeout_ms / 1000)
        if policy and not failures:
            for topic, partition, letter in refused:
                _send_alone(policy, pool, topic, partition, letter)
        if failures:
            raise BarnabasError(f"{len(failures)} rows could not be written, the first to {failures[0]}")
        if left:
            raise BarnabasError(f"{left} rows were not acknowledged within {self._options.flush_timeout_ms} ms")
        return rows

    def _produce(self, pool: ProducerPool, batch: pa.RecordBatch, delivered: Callable[..., None] | None) -> None:
        """``delivered`` gets each record with its report, which has no headers.

        None: the producer's own callback is enough."""
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        count = batch.num_rows
        topics = columns.get("topic") if self._options.topic is None else [self._options.topic] * count
        nothing = [None] * count
        rows = zip(
            topics or nothing,
            columns["value"],
            columns.get("key", nothing),
            columns.get("partition", nothing),
            columns.get("headers", nothing),
            strict=True,
        )
        for topic, value, key, partition, headers in rows:
            extra: dict[str, Any] = {}
            if partition is not None:
                extra["partition"] = partition
            if headers is not None:
                extra["headers"] = [(header["key"], header["value"]) for header in headers]
            if delivered is not None:
                letter = Letter(key, value, tuple(extra.get("headers", ())))
                extra["on_delivery"] = partial(delivered, letter=letter)
            if topic is None:
                raise BarnabasError("a row's column topic is null, and the option topic is not set")
            produce = pool.routes.get(topic) or pool.route(topic)
            while True:
                try:
                    produce(topic, value, key, **extra)
                    break
                except BufferError:
                    pool.poll(0.1)
                except KafkaException as error:
                    raise BarnabasError(f"cannot write to {topic}: {error.args[0].str()}") from error


def _send_alone(policy: RefusalPolicy, pool: ProducerPool, topic: str, partition: int, letter: Letter) -> None:
    """Send a record by itself, in one form after the other, until the topic takes it.

    Raises `BarnabasError` if it takes none."""
    position = letter.header(policy.position_header)
    form: Letter | None = letter
    failures: list[tuple[Any, Any]] = []
    while form is not None:
        failures.clear()  # deliveries are not reported
        pool.main.produce(
            topic,
            form.value,
            form.key,
            partition=partition,
            headers=list(form.headers),
            on_delivery=lambda failure, message: failures.append((failure, message)),
        )
        if pool.flush(_ALONE_S):
            raise BarnabasError(f"a row for {topic} was not acknowledged within {_ALONE_S:.0f} s")
        if not failures:
            return
        failure, message = failures[0]
        name = classify(failure, "").name
        reason = _reason(pool, failure, message)
        found = policy.next_form_of(form, position, name, reason) if name in OF_RECORDS else None
        if found is None:
            raise BarnabasError(f"cannot write to {topic}: {reason}")
        form = found.letter


def _reason(pool: ProducerPool, failure: Any, message: Any) -> str:
    """Why librdkafka did not deliver a row."""
    name = classify(failure, "").name
    if name not in TOO_LARGE:
        return str(failure.str())
    topic = message.topic()
    size_bytes = size_of(message.key(), message.value(), message.headers())
    reason, remedy = too_large(name, topic, size_bytes, pool.limit_after_refusal(topic), pool.batch_size)
    return f"{reason} ({remedy})"


class BatchTopicWriter(_TopicWriter, DataSourceArrowWriter):
    """``df.write.format("barnabas")``."""


class StreamTopicWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """``df.writeStream.format("barnabas")``."""
