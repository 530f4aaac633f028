"""``barnabas pipeline replay``: sends the records of dead letters that fit now to
their topics again.

Several sources and flows may have one topic for dead letters; a replay takes those
of one source of one flow.

What makes them fit is a flow that was corrected (another format, column type, expectation), or an
SQL expression for a new value. Those that still do not fit become dead letters again, with today's
reason. The position in the dead letters' topic is committed to the group ``FLOW/SOURCE-replay`` (at
first it is that of ``FLOW-replay``, an earlier version's), so a second replay sends no record
twice; a replay that dies before its commit does its part again.

Letters from topics that the flow no longer reads, or that are gone, are written again at the end of
the topic, before the position moves past them: if the flow reads their topics again, a replay finds
them. Equal letters of one record count as one.

A letter that was too large lacks a part of its record (`barnabas.pipelines.connector.letters`). The
whole record is read from where it came from; if it is gone, the letter is written again at the end
of the topic. A record that its topic refuses becomes a dead letter again, with that as its reason.

The committed position has the topic's id as its metadata: of a topic that was made
again all letters are read.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.pandas.types import from_arrow_schema

from barnabas.base.errors import BarnabasError
from barnabas.client.consumer.rights import ConsumerRights
from barnabas.pipelines.checks.analysis import without_spark_logging
from barnabas.pipelines.checks.trial import source_cluster
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster, open_client
from barnabas.pipelines.cluster.offsets import Offsets, Range, to_json
from barnabas.pipelines.cluster.options import SourceOptions, client_config
from barnabas.pipelines.connector.data_source import SCHEMA_WITH_HEADERS, read_range
from barnabas.pipelines.connector.flow_options import source_options
from barnabas.pipelines.connector.letters import CUT, NO_KEY, SOURCE, LetterNote, noted_letters
from barnabas.pipelines.dead_letters.dead_letters import last_header, write_messages
from barnabas.pipelines.errors import PipelineError, reason_of
from barnabas.pipelines.frames import transforms
from barnabas.pipelines.frames.views import source_rows
from barnabas.pipelines.specification.spec import Flow, Source

__all__ = ["Replayed", "replay_dead_letters"]

_TIMEOUT_S = 30
_WHOLE = ("key", "value", "headers")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("whole", pa.struct([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER))])),
    ]
)
"""Records that are read where letters came from."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: records that were sent again, and those that still do not
    fit, by reason."""

    sent: int
    still_bad: int
    reasons: dict[str, int]
    left_out: int
    """Records of other flows, or of other sources of this one: another replay may take them."""
    kept: int
    """Dead letters from topics that the flow no longer reads, or that are gone: they are written
    again at the end of the topic."""
    cut: int = 0
    """Dead letters that lack a part of their record, which is gone: they are written again
    at the end of the topic."""
    refused: int = 0
    """Records that fit, but that their topics refused: they are dead letters again."""


def replay_dead_letters(
    spark: SparkSession, flow: Flow, source: Source, *, value: str | None = None, is_dry: bool = False
) -> Replayed:
    """Sends the records of the source's dead letters again.

    ``value`` is SQL over ``value``, ``key``, ``reason`` as texts."""
    if not source.bad_rows_topic:
        raise PipelineError(f"the source {source.name} has no bad_rows_topic, so there are no dead letters")
    kafka = {**source.kafka, "bootstrap.servers": source.bootstrap_servers}
    options = {**{f"kafka.{name}": text for name, text in kafka.items()}, "subscribe": source.bad_rows_topic}
    cluster = KafkaCluster(SourceOptions.parse(options, streaming=True))
    partitions = cluster.partitions()
    topics = {each.name: _topics(each) for each in flow.sources if each.bad_rows_topic == source.bad_rows_topic}
    ends = cluster.at_marks(dict.fromkeys(partitions, -1))
    begins = cluster.at_marks(dict.fromkeys(partitions, -2))
    topic_id = cluster.topic_ids([source.bad_rows_topic]).get(source.bad_rows_topic, "")
    group = _Group(kafka, f"{flow.name}/{source.name}-replay", topic_id)
    before = _Group(kafka, f"{flow.name}-replay", topic_id)
    try:
        committed = {**before.position(list(ends)), **group.position(list(ends))}
        starts = {
            name: max(begins[name], at) if (at := committed.get(name, 0)) <= ends[name] else begins[name]
            for name in ends
        }
        letters = (
            spark.read.format("barnabas")
            .options(
                **{
                    **options,
                    "includeHeaders": "true",
                    "endingOffsets": to_json(ends),
                    "startingOffsets": to_json(starts),
                }
            )
            .load()
        )
        with without_spark_logging():
            result = _replay(flow, source, letters, topics, value, is_dry=is_dry)
        if not is_dry:
            group.commit(ends)
    except PySparkException as error:
        raise reason_of(error) from error
    finally:
        group.close()
        before.close()
    return result


def _topics(source: Source) -> Sequence[str]:
    """What the source reads and is there."""
    if not source.topics:
        return sorted({each.topic for each in source_cluster(source).partitions()})
    options = {**source_options(source), "subscribePattern": "|".join(map(re.escape, source.topics))}
    del options["subscribe"]
    return sorted({each.topic for each in KafkaCluster(SourceOptions.parse(options, streaming=True)).partitions()})


def _replay(
    flow: Flow,
    source: Source,
    letters: DataFrame,
    topics: Mapping[str, Sequence[str]],
    value: str | None,
    *,
    is_dry: bool,
) -> Replayed:
    """``topics``: what each source reads whose dead letters are in this topic."""
    letters = letters.persist()
    origin = last_header(SOURCE)
    place = r"^(.*)-(\d+)-(\d+)$"
    ours = letters.where(last_header("barnabas.flow") == flow.name).select(
        F.col("key"),
        F.col("value"),
        F.regexp_extract(origin, place, 1).alias("topic"),
        F.regexp_extract(origin, place, 2).try_cast("int").alias("partition"),
        F.regexp_extract(origin, place, 3).try_cast("bigint").alias("offset"),
        F.col("timestamp"),
        F.col("headers"),
        last_header("barnabas.reason").alias("reason"),
        last_header(CUT).isNotNull().alias("is_cut"),
        last_header(NO_KEY).isNotNull().alias("has_no_key"),
    )
    is_read = F.col("topic").isin(*[name for names in topics.values() for name in names])
    unread = _once_in_order(ours.where(~is_read & (F.col("topic") != ""))).select("key", "value", "headers")
    is_mine = F.col("topic").isin(*topics[source.name])
    records, gone = _whole(source, _once_in_order(ours.where(is_mine)))
    headers = F.filter("headers", lambda each: ~each["key"].startswith("barnabas."))
    records = records.withColumn("headers", headers)
    if value:
        texts = records.withColumns({name: F.col(name).cast("string") for name in ("key", "value")})
        repaired = texts.withColumn("value", F.expr(value).cast("binary"))
        records = repaired.withColumn("key", F.col("key").cast("binary"))
    marked, _ = source_rows(flow, source, transforms.parse_records(records, source.format, source.record_columns))
    marked = marked.persist()
    try:
        reasons = {row["reason"]: row["count"] for row in transforms.bad_reasons(marked).collect()}
        good, kept, cut = marked.where(transforms.unmarked()).count(), unread.count(), gone.count()
        left_out = letters.count() - ours.where(is_mine | ~is_read & (F.col("topic") != "")).count()
        still_bad, refused = sum(reasons.values()), dict[str, LetterNote]()
        if not is_dry:
            with tempfile.TemporaryDirectory(prefix="barnabas-replay-") as folder:
                # Dead letters first: if the last step fails, the next replay finds
                # all of them again.
                again = unread.unionByName(gone) if cut else unread
                refused = _send(flow, source, again if kept + cut else None, marked, Path(folder) / "notes.jsonl")
        return Replayed(good - len(refused), still_bad, reasons, left_out, kept, cut, len(refused))
    finally:
        marked.unpersist()
        letters.unpersist()


def _send(flow: Flow, source: Source, again: DataFrame | None, marked: DataFrame, notes: Path) -> dict[str, LetterNote]:
    """Write letters and records; returns which records were refused, by their positions.

    They are letters again."""
    if again is not None:
        write_messages(again, source, source.bad_rows_topic, "letter", notes)
    write_messages(transforms.bad_messages(marked, flow.name), source, source.bad_rows_topic, "letter", notes)
    notes.unlink(missing_ok=True)
    write_messages(transforms.replayed_messages(marked), source, None, "replayed", notes)
    try:
        refused = noted_letters(notes)
    except OSError as error:
        raise PipelineError(
            f"{notes}: {error.strerror or error}: which records their topic refused cannot be read. Run the replay again"
        ) from error
    if refused:
        reasons = [(position, f"its topic refuses the record: {note.reason}") for position, note in refused.items()]
        found = marked.sparkSession.createDataFrame(reasons, "_at string, _why string")
        named = marked.where(transforms.unmarked()).join(found, transforms.record_position() == F.col("_at"))
        letters = transforms.mark_rows(named, F.col("_why"), "REFUSED")
        write_messages(transforms.bad_messages(letters, flow.name), source, source.bad_rows_topic, "letter", notes)
    return refused


def _whole(source: Source, records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The records as they were, as far as they are still there, and letters of those that are gone.

    A letter has the beginning of its record: a record at its position that begins otherwise is of a
    topic that was made again.
    """
    is_cut = F.col("is_cut")
    records = records.withColumn("key", F.when(~F.col("has_no_key"), F.col("key")))
    place = ["topic", "partition", "offset"]
    cut = records.where(is_cut).select(*place)
    if cut.isEmpty():
        return records, records.limit(0).select("key", "value", "headers")
    options = SourceOptions.parse({**source_options(source), "failOnDataLoss": "true"}, streaming=True)
    found = cut.mapInArrow(partial(_read_records, options), from_arrow_schema(_RECORDS))
    joined = records.join(found, place, "left")
    is_same = _begins(F.col("whole.value"), F.col("value")) & _begins(F.col("whole.key"), F.col("key"))
    joined = joined.withColumn("is_whole", F.coalesce(is_same, F.lit(False)))
    restored = {name: F.when(is_cut, F.col(f"whole.{name}")).otherwise(F.col(name)) for name in _WHOLE}
    restored["headers"] = F.coalesce(restored["headers"], F.array().cast(records.schema["headers"].dataType))
    whole = joined.where(~is_cut | F.col("is_whole")).withColumns(restored).drop("whole", "is_whole")
    order = whole.repartition("topic", "partition").sortWithinPartitions(*place)
    return order, joined.where(is_cut & ~F.col("is_whole")).select("key", "value", "headers")


def _begins(whole: Any, part: Any) -> Any:
    """Whether bytes begin with others; two nulls do."""
    return F.substring(whole, F.lit(1), F.octet_length(part)).eqNullSafe(part)


def _read_records(options: SourceOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The record at each place, in a worker.

    Places of which there is none, or no longer, are left out."""
    for batch in batches:
        found: list[dict[str, Any]] = []
        for place in batch.to_pylist():
            wanted = Range(place["topic"], place["partition"], place["offset"], place["offset"] + 1)
            try:
                for records in read_range(options, SCHEMA_WITH_HEADERS, wanted):
                    found += [{**place, "whole": {name: each[name] for name in _WHOLE}} for each in records.to_pylist()]
            except BarnabasError:
                continue  # it is kept as a letter
        yield pa.RecordBatch.from_pylist(found, _RECORDS)


def _once_in_order(letters: DataFrame) -> DataFrame:
    """Equal letters of one record as one, and those of one partition in the order of
    its records."""
    once = letters.dropDuplicates(["topic", "partition", "offset", "key", "value"])
    return once.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


class _Group:
    """A group's position in the dead letters."""

    def __init__(self, kafka: dict[str, str], group: str, topic_id: str) -> None:
        self._topic_id = topic_id
        config = client_config(kafka, **{"enable.auto.commit": False})
        config |= {"group.id": group}
        self._consumer: Any = open_client(Consumer, config)
        self._rights = ConsumerRights(config)

    def position(self, partitions: list[Any]) -> Offsets:
        self._rights.check_group(self._consumer)
        names = {(each.topic, each.partition): each for each in partitions}
        try:
            found = self._consumer.committed([ClientPartition(*each) for each in names], _TIMEOUT_S)
        except KafkaException as error:
            raise PipelineError(f"the position of the last replay cannot be read: {error.args[0].str()}") from error
        return {
            names[each.topic, each.partition]: each.offset for each in found if each.offset >= 0 and self._is_ours(each)
        }

    def _is_ours(self, committed: Any) -> bool:
        """Whether the offset is one of the topic that is there now, as far as that is known."""
        return not committed.metadata or not self._topic_id or committed.metadata == self._topic_id

    def commit(self, ends: Offsets) -> None:
        metadata = self._topic_id or None
        offsets = [ClientPartition(name.topic, name.partition, offset, metadata) for name, offset in ends.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise PipelineError(
                f"the records are sent, but the position is not committed ({error.args[0].str()}): "
                "the next replay would send them again"
            ) from error

    def close(self) -> None:
        self._consumer.close()
