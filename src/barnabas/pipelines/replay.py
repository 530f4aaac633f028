"""``barnabas pipeline replay``: dead letters that fit now go back to their topics.

Several sources and flows may have one topic for dead letters; a replay takes those of one source of one flow.

What makes them fit is a flow that was corrected (another format, column type, expectation), or an SQL expression for a new
value. Those that still do not fit become dead letters again, with today's reason. The position in the dead letters' topic is
committed to the group ``FLOW/SOURCE-replay`` (at first it is that of ``FLOW-replay``, an earlier version's), so a second
replay puts nothing through twice; a replay that dies before its commit does its part again.

Letters from topics that the flow no longer reads are put at the topic's end again, before the position moves past them: if the
flow reads their topics again, a replay finds them. Equal letters of one record count as one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.pipelines import transforms
from barnabas.pipelines.analysis import without_spark_logging
from barnabas.pipelines.errors import PipelineError, reason_of
from barnabas.pipelines.kafka import KafkaCluster, open_client
from barnabas.pipelines.offsets import Offsets, to_json
from barnabas.pipelines.options import SourceOptions, client_config
from barnabas.pipelines.spec import Flow, Source
from barnabas.pipelines.trial import source_cluster
from barnabas.pipelines.views import source_rows

__all__ = ["Replayed", "replay_dead_letters"]

_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: dead letters that went back, and those that are bad still, by reason."""

    sent: int
    still_bad: int
    reasons: dict[str, int]
    left_out: int
    """Records of other flows, or of other sources of this one: another replay may take them."""
    kept: int
    """Dead letters from topics that the flow no longer reads: they are at the topic's end again."""


def replay_dead_letters(
    spark: SparkSession, flow: Flow, source: Source, *, value: str | None = None, is_dry: bool = False
) -> Replayed:
    """Puts the source's dead letters through again; ``value`` is SQL over ``value``, ``key``, ``reason`` as texts."""
    if not source.bad_rows_topic:
        raise PipelineError(f"the source {source.name} has no bad_rows_topic, so there are no dead letters")
    kafka = {**source.kafka, "bootstrap.servers": source.bootstrap_servers}
    options = {**{f"kafka.{name}": text for name, text in kafka.items()}, "subscribe": source.bad_rows_topic}
    cluster = KafkaCluster(SourceOptions.parse(options, streaming=True))
    partitions = cluster.partitions()
    topics = {each.name: _topics(each) for each in flow.sources if each.bad_rows_topic == source.bad_rows_topic}
    ends = cluster.at_marks(dict.fromkeys(partitions, -1))
    begins = cluster.at_marks(dict.fromkeys(partitions, -2))
    group = _Group(kafka, f"{flow.name}/{source.name}-replay")
    before = _Group(kafka, f"{flow.name}-replay")
    try:
        committed = {**before.position(list(ends)), **group.position(list(ends))}
        starts = {name: max(begins[name], committed.get(name, 0)) for name in ends}
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
    return source.topics or sorted({each.topic for each in source_cluster(source).partitions()})


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

    def header(name: str) -> Any:
        """The last of that name; null where a record that is no dead letter has none."""
        found = F.filter("headers", lambda each: each["key"] == name)
        return F.try_element_at(F.transform(found, lambda each: each["value"].cast("string")), F.lit(-1))

    origin = header("barnabas.source")
    place = r"^(.*)-(\d+)-(\d+)$"
    ours = letters.where(header("barnabas.flow") == flow.name).select(
        F.col("key"),
        F.col("value"),
        F.regexp_extract(origin, place, 1).alias("topic"),
        F.regexp_extract(origin, place, 2).try_cast("int").alias("partition"),
        F.regexp_extract(origin, place, 3).try_cast("bigint").alias("offset"),
        F.col("timestamp"),
        F.col("headers"),
        header("barnabas.reason").alias("reason"),
    )
    is_read = F.col("topic").isin(*[name for names in topics.values() for name in names])
    unread = _once_in_order(ours.where(~is_read & (F.col("topic") != ""))).select("key", "value", "headers")
    is_mine = F.col("topic").isin(*topics[source.name])
    headers = F.filter("headers", lambda each: ~each["key"].startswith("barnabas."))
    records = _once_in_order(ours.where(is_mine)).withColumn("headers", headers)
    if value:
        texts = records.withColumns({name: F.col(name).cast("string") for name in ("key", "value")})
        repaired = texts.withColumn("value", F.expr(value).cast("binary"))
        records = repaired.withColumn("key", F.col("key").cast("binary"))
    marked, _ = source_rows(flow, source, transforms.parse_records(records, source.format, source.record_columns))
    marked = marked.persist()
    try:
        letters_again = transforms.bad_messages(marked, flow.name)
        good = transforms.replayed_messages(marked)
        reasons = {row["reason"]: row["count"] for row in transforms.bad_reasons(marked).collect()}
        sent, kept, still_bad = good.count(), unread.count(), sum(reasons.values())
        left_out = letters.count() - ours.where(is_mine | ~is_read & (F.col("topic") != "")).count()
        if not is_dry:
            # Dead letters first: if the last step fails, the next replay finds all of them again.
            if kept:
                _write(unread, source, source.bad_rows_topic)
            _write(letters_again, source, source.bad_rows_topic)
            _write(good, source, None)
        return Replayed(sent, still_bad, reasons, left_out, kept)
    finally:
        marked.unpersist()


def _once_in_order(letters: DataFrame) -> DataFrame:
    """Equal letters of one record as one, and those of one partition in the order of its records."""
    once = letters.dropDuplicates(["topic", "partition", "offset", "key", "value"])
    return once.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def _write(messages: DataFrame, source: Source, topic: str | None) -> None:
    writer = messages.write.format("barnabas").mode("append")
    for name, text in source.producer_kafka.items():
        writer = writer.option(f"kafka.{name}", text)
    if topic:
        writer = writer.option("topic", topic)
    writer.save()


class _Group:
    """A group's position in the dead letters."""

    def __init__(self, kafka: dict[str, str], group: str) -> None:
        config = client_config(kafka, **{"enable.auto.commit": False})
        self._consumer: Any = open_client(Consumer, {**config, "group.id": group})

    def position(self, partitions: list[Any]) -> Offsets:
        names = {(each.topic, each.partition): each for each in partitions}
        try:
            found = self._consumer.committed([ClientPartition(*each) for each in names], _TIMEOUT_S)
        except KafkaException as error:
            raise PipelineError(f"the position of the last replay cannot be read: {error.args[0].str()}") from error
        return {names[each.topic, each.partition]: each.offset for each in found if each.offset >= 0}

    def commit(self, ends: Offsets) -> None:
        offsets = [ClientPartition(name.topic, name.partition, offset) for name, offset in ends.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise PipelineError(
                f"the dead letters are through, but the position is not committed ({error.args[0].str()}): "
                "the next replay would send them again"
            ) from error

    def close(self) -> None:
        self._consumer.close()
