"""The Spark data source ``barnabas``: topics as batch and streaming DataFrames.

    spark.dataSource.register(BarnabasDataSource)
    reader = spark.readStream.format("barnabas").option("subscribe", "t")
    rows = reader.option("kafka.bootstrap.servers", "localhost:9092").load()

Options and columns are those of Spark's Kafka connector, and so is the JSON of offsets: a
checkpoint can change from one to the other. A schema with fewer of the columns may be given to
``.schema(...)``; the others are then not built.

The driver plans half-open ranges of offsets; each is read by a task in a Python worker of its own,
as Arrow batches. A worker keeps its connections for the next micro-batch, which saves their set-up.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.bounds import checked_offsets, require_order
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster, MissingTopicError
from barnabas.pipelines.cluster.log_ends import LogEnds
from barnabas.pipelines.cluster.offsets import (
    EARLIEST,
    Offsets,
    Range,
    from_spark,
    is_due,
    limit_rows,
    plan_ranges,
    split_ranges,
    to_spark,
)
from barnabas.pipelines.cluster.options import SinkOptions, SourceOptions
from barnabas.pipelines.connector import ranges
from barnabas.pipelines.connector.admission import Admission, subtract_ranges
from barnabas.pipelines.connector.lost_records import report_lost
from barnabas.pipelines.connector.range_progress import Lost
from barnabas.pipelines.connector.sink import BatchTopicWriter, StreamTopicWriter
from barnabas.pipelines.errors import DataLossError

__all__ = ["SCHEMA", "SCHEMA_WITH_HEADERS", "BarnabasDataSource", "read_range"]

logger = logging.getLogger(__name__)
_IDS_EVERY_S = 1.0
_SETTLE_S = 3.0
_SETTLE_PAUSE_S = 0.25

_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns without ``headers``, which come with the option includeHeaders."""
SCHEMA_WITH_HEADERS = StructType([*SCHEMA.fields, _HEADERS])


class BarnabasDataSource(DataSource):
    """What Spark makes for ``format("barnabas")``."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        with_headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return SCHEMA_WITH_HEADERS if with_headers else SCHEMA

    def reader(self, schema: StructType) -> "TopicReader":
        return TopicReader(SourceOptions.parse(self.options, streaming=False), _checked(schema))

    def streamReader(self, schema: StructType) -> "TopicStreamReader":  # noqa: N802  # Spark's name
        return TopicStreamReader(SourceOptions.parse(self.options, streaming=True), _checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchTopicWriter:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten; use mode append")
        return BatchTopicWriter(SinkOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamTopicWriter:  # noqa: N802  # Spark's name
        if overwrite:
            raise ConfigError("a topic cannot be overwritten; use output mode append or update")
        return StreamTopicWriter(SinkOptions.parse(self.options), schema)


def _checked(schema: StructType) -> StructType:
    known = {field.name: field.dataType for field in SCHEMA_WITH_HEADERS.fields}
    for field in schema.fields:
        if field.name not in known:
            raise ConfigError(f"the source has no column {field.name}; it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            raise ConfigError(f"column {field.name} is {known[field.name].simpleString()}")
    return schema


class OffsetRange(InputPartition):
    """One task's records."""

    def __init__(self, value: Range) -> None:
        super().__init__(tuple(value))

    @property
    def range(self) -> Range:
        return Range(*self.value)


class TopicReader(DataSourceReader):
    """Reads what lies between two bounds, once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        cluster = KafkaCluster(self._options)
        names = cluster.partitions()
        start = checked_offsets(cluster, names, "startingOffsets", self._options.start)
        end = checked_offsets(cluster, names, "endingOffsets", self._options.end)
        require_order(self._options.start, self._options.end)
        ranges = split_ranges(plan_ranges(start, end), self._options.min_partitions or 0)
        # Spark takes an empty list for a source that is not partitioned.
        return [OffsetRange(each) for each in ranges] or [OffsetRange(Range("", 0, 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, self._schema, partition.range)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads ranges in the workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: KafkaCluster | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._log_ends = LogEnds()
        self._first: Offsets = {}
        self._waits_since_s = time.monotonic()
        self._topic_ids: dict[str, str] = {}
        self._made_again = set(options.made_again)
        self._ids_asked_s = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        # The workers need what `read` needs; a connection cannot travel.
        return {**self.__dict__, "_cluster": None, "_target": None, "_latest": {}, "_first": {}}

    @property
    def _asked(self) -> KafkaCluster:
        if self._cluster is None:
            self._cluster = KafkaCluster(self._options)
        return self._cluster

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        names = self._asked.partitions()
        if self._options.fail_on_data_loss:
            return to_spark(checked_offsets(self._asked, names, "startingOffsets", self._options.start))
        return to_spark(self._asked.resolve(names, self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        begun = from_spark(start)
        self._notice_new_topics(begun)
        if (beginning := self._from_the_beginning(begun)) != begun:
            return to_spark(beginning)
        try:
            end = dict(self._target) if self._target is not None else self._ends(were_there=bool(begun))
        except MissingTopicError as error:
            raise DataLossError(
                f"{error.what} any more: was it deleted? Make it again and read it from its beginning (of a flow: `barnabas pipeline "
                "rewind FILE --to earliest --yes`), or read other topics"
            ) from error
        end = self._latest = self._settled(begun, end)
        for name, offset in begun.items():
            if end.get(name, -1) < offset:
                gone = "is gone" if name not in end else f"ends at {end[name]}"
                self._lost(f"{name} was read up to {offset} and now {gone}: was the topic deleted and made again?")
                # If the topic is shorter now, the next records are read.
                end.setdefault(name, offset)
        new = [name for name in end if name not in begun]
        beginnings = self._beginnings(new)
        if begun and new:
            logger.warning("new partitions, read from their first record: %s", ", ".join(map(str, sorted(new))))
        begun |= beginnings
        fallen = self._log_ends.take(begun, end)
        for topic, partition, first, seen in fallen:
            self._lost(
                f"{topic}-{partition} ended at {seen} and now ends before: records from {first} on are gone. Was a leader elected "
                "that lacked them, or the topic deleted and made again?"
            )
        self._count_lost(fallen)
        if (admission := self._admission()) is not None:
            end = admission.limit(begun, end)
        if not self._is_due(begun, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limit_rows(begun, end, limit.max_rows)
        return to_spark(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        return to_spark(self._latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = from_spark(start), from_spark(end)
        first |= self._beginnings([name for name in last if name not in first])
        # A micro-batch that was planned before the topic was made again is of
        # records that are gone.
        planned = plan_ranges(first, last)
        ranges = [each for each in planned if each.topic not in self._made_again]
        self._count_lost([each for each in planned if each.topic in self._made_again], of_old_topic=True)
        if (admission := self._admission()) is not None:
            ranges = subtract_ranges(ranges, admission.refused)
        ranges = split_ranges(ranges, self._options.min_partitions or 0)
        return [OffsetRange(each) for each in ranges] or [OffsetRange(Range("", 0, 0, 0))]

    def _admission(self) -> Admission | None:
        """What a flow that quarantines lets this query read."""
        return Admission.load(Path(self._options.admission_file)) if self._options.admission_file else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, self._schema, partition.range)

    def _ends(self, *, were_there: bool = False) -> Offsets:
        names = self._asked.partitions(were_there=were_there)
        return self._asked.resolve(names, self._options.end)

    def _settled(self, begun: Offsets, end: Offsets) -> Offsets:
        """The ends; those before what was read or seen are asked for again for a moment, for a
        new leader may lag behind."""
        until = time.monotonic() + _SETTLE_S
        while (behind := self._log_ends.fallen(begun, end)) and time.monotonic() < until:
            time.sleep(_SETTLE_PAUSE_S)
            found = self._ends(were_there=True)
            end = {**end, **{name: found[name] for name in behind if name in found}}
        return end

    def _beginnings(self, names: list[TopicPartition]) -> Offsets:
        """Where partitions that came after the query began are read from: their first record."""
        unknown = [name for name in names if name not in self._first]
        if unknown:
            self._first |= self._asked.at_marks(dict.fromkeys(unknown, -2))
        return {name: self._first[name] for name in names}

    def _from_the_beginning(self, begun: Offsets) -> Offsets:
        """Positions in topics that were made again become the beginnings of the new ones.

        That is a micro-batch of its own, which goes back and reads nothing: so a pair of offsets
        always means the same records.
        """
        if not self._made_again:
            return begun
        old = {name for name in begun if name.topic in self._made_again}
        there = [name for name in self._asked.partitions() if name in old]
        self._made_again = set()
        return {name: offset for name, offset in begun.items() if name not in old} | self._asked.at_marks(
            dict.fromkeys(there, EARLIEST)
        )

    def _is_due(self, begun: Offsets, end: Offsets) -> bool:
        """Whether a micro-batch runs now.

        With Trigger.AvailableNow all that was there is read, as by Spark's connector."""
        options = self._options
        if options.min_offsets_per_trigger is None or self._target is not None:
            return True
        now = time.monotonic()
        waited_ms = int((now - self._waits_since_s) * 1000)
        goes_back = any(end[name] < offset for name, offset in begun.items() if name in end)
        due = goes_back or is_due(begun, end, options.min_offsets_per_trigger, waited_ms, options.max_trigger_delay_ms)
        if due:
            self._waits_since_s = now
        return due

    def _notice_new_topics(self, begun: Offsets) -> None:
        """A topic that was deleted and made again has another id, though it may be longer
        than what was read of it."""
        now = time.monotonic()
        if now < self._ids_asked_s + _IDS_EVERY_S:
            return
        self._ids_asked_s = now
        found = self._asked.topic_ids(sorted({name.topic for name in begun}))
        for topic, topic_id in found.items():
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                what = f"topic {topic} was deleted and made again: its records from before are lost to this query."
                self._count_lost(self._log_ends.take_topic(topic, begun))
                # The flow keeps the ids beside its checkpoint, and starts again.
                if self._options.flow_source is not None:
                    raise DataLossError(what)
                self._lost(what)
                self._topic_ids[topic] = topic_id
                self._made_again.add(topic)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what} To go on regardless, set failOnDataLoss to false.")
        logger.warning("%s", what)

    def _count_lost(self, gone: Sequence[Range], *, of_old_topic: bool = False) -> None:
        """Count records that are gone, where they may be."""
        for each in gone if not self._options.fail_on_data_loss else ():
            report_lost(
                self._options, each.topic, each.partition, Lost(each.start, each.end), of_old_topic=of_old_topic
            )


def read_range(options: SourceOptions, schema: StructType, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches; see `ranges.read_arrow`."""
    return ranges.read_arrow(options, to_arrow_schema(schema, timezone="UTC"), wanted)
