"""Looks at a flow on the live cluster, without running it: a preview of its rows, and ``barnabas pipeline dry-run``.

Both read a few of the newest records of each source as tables, and take them through the flow's own frames.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import admin as client_admin
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition
from barnabas.pipelines import transforms
from barnabas.pipelines.analysis import find_problems, without_spark_logging
from barnabas.pipelines.checkpoints import Checkpoint, sink_name
from barnabas.pipelines.errors import reason_of
from barnabas.pipelines.kafka import KafkaCluster, open_client
from barnabas.pipelines.offsets import Offsets, to_json
from barnabas.pipelines.options import SourceOptions, client_config
from barnabas.pipelines.run import source_options
from barnabas.pipelines.spec import DatabaseSink, Flow, Source, TopicSink
from barnabas.pipelines.views import Views, build_views

__all__ = ["Finding", "latest_offsets", "preview_rows", "source_cluster", "try_flow"]

_SAMPLE = 1000
"""Records of each partition that are looked at."""
_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``ok``, ``warning`` or ``error``."""

    state: str
    what: str
    message: str


def source_cluster(source: Source) -> KafkaCluster:
    """Questions to a source's cluster; a wrong address is answered within seconds."""
    options = SourceOptions.parse(source_options(source), streaming=True)
    return KafkaCluster(options, timeout_ms=_TIMEOUT_MS)


def latest_offsets(source: Source) -> Offsets:
    """Where the source's topics end now."""
    cluster = source_cluster(source)
    return cluster.at_marks(dict.fromkeys(cluster.partitions(), -1))


def _sample(spark: SparkSession, source: Source, records: int) -> DataFrame:
    """The newest records of each partition."""
    cluster = source_cluster(source)
    partitions = cluster.partitions()
    ends = cluster.at_marks(dict.fromkeys(partitions, -1))
    begins = cluster.at_marks(dict.fromkeys(partitions, -2))
    starts = {name: max(begins[name], end - records) for name, end in ends.items()}
    options = source_options(source)
    for name in ("maxOffsetsPerTrigger", "subscribe", "subscribePattern"):
        options.pop(name, None)
    options["assign"] = _assign(partitions)
    reader = spark.read.format("barnabas").schema(transforms.RECORD_SCHEMA).options(**options)
    return reader.option("startingOffsets", to_json(starts)).option("endingOffsets", to_json(ends)).load()


def _assign(partitions: list[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(str(each.partition))
    inner = ",".join(f'"{topic}":[{",".join(numbers)}]' for topic, numbers in by_topic.items())
    return f"{{{inner}}}"


def preview_rows(
    spark: SparkSession, flow: Flow, view: str, rows: int, *, records: int = _SAMPLE
) -> list[dict[str, Any]]:
    """Rows of a view (``results``, a source, a table, a step), made of the newest records. Raises `BarnabasError`."""
    try:
        with without_spark_logging():
            views = build_views(spark, flow, lambda source: _sample(spark, source, records))
            if view not in views.by_name:
                known = list(views.by_name)
                raise BarnabasError(
                    f"the flow has no view {view}{did_you_mean(view, known) or '; it has ' + ', '.join(known)}"
                )
            found: list[dict[str, Any]] = views.by_name[view].limit(rows).toArrow().to_pylist()
            return found
    except PySparkException as error:
        raise reason_of(error) from error


def try_flow(spark: SparkSession, flow: Flow) -> Iterator[Finding]:
    """What would go wrong if the flow were run now, one finding after the other."""
    problems = find_problems(spark, flow)
    for each in problems:
        yield Finding("error", each.field, str(flow.places.error(each.field, each.message)))
    if not problems:
        yield Finding("ok", "flow", "every expression, column and type is right")
    reachable: list[Source] = []
    for source in flow.sources:
        finding = _try(f"source {source.name}", lambda source=source: _topics(source))  # type: ignore[misc]
        yield finding
        if finding.state == "ok":
            reachable.append(source)
    if not problems and len(reachable) == len(flow.sources):
        yield from _sampled(spark, flow)
    for sink in flow.sinks:
        yield _try(f"sink {sink_name(sink)}", lambda sink=sink: _sink(sink))  # type: ignore[misc]
    yield from _checkpoint(flow)


def _try(what: str, act: Callable[[], str]) -> Finding:
    try:
        return Finding("ok", what, act())
    except (BarnabasError, OSError) as error:
        return Finding("error", what, str(error))


def _topics(source: Source) -> str:
    cluster = source_cluster(source)
    partitions = cluster.partitions()
    ends = cluster.at_marks(dict.fromkeys(partitions, -1))
    begins = cluster.at_marks(dict.fromkeys(partitions, -2))
    waiting = sum(end - begins[name] for name, end in ends.items())
    topics = sorted({each.topic for each in partitions})
    return f"{', '.join(topics) or 'no topic matches'}: {len(partitions)} partitions, {waiting:,} records can be read"


def _sampled(spark: SparkSession, flow: Flow) -> Iterator[Finding]:
    try:
        with without_spark_logging():
            views = build_views(spark, flow, lambda source: _sample(spark, source, _SAMPLE))
            for source in flow.sources:
                yield _quality(source, views)
            count = views.results.limit(_SAMPLE).count()
            yield Finding("ok" if count else "warning", "results", f"{count:,} rows of the newest records")
    except PySparkException as error:
        yield Finding("error", "newest records", str(reason_of(error)))
    except BarnabasError as error:
        yield Finding("error", "newest records", str(error))


def _quality(source: Source, views: Views) -> Finding:
    counts = views.parsed[source.name].agg(*transforms.bad_counts(source.format)).collect()[0].asDict()
    rows, bad = counts["rows"], counts["bad_rows"]
    what = f"records of {source.name}"
    if not bad:
        return Finding(
            "ok" if rows else "warning", what, f"{rows:,} of the newest fit" if rows else "there are none yet"
        )
    limit = source.max_bad
    state = "error" if limit and limit.is_passed(rows, bad) and limit.then == "stop" else "warning"
    text = f"{bad:,} of the newest {rows:,} are bad; for example: {counts['example']}"
    return Finding(state, what, text + (f"; max_bad is {limit}" if limit else ""))


def _sink(sink: Any) -> str:
    """What can be seen of a sink without changing it."""
    if isinstance(sink, TopicSink):
        return _topic_sink(sink)
    if isinstance(sink, DatabaseSink) and sink.type == "postgresql":
        return _postgres_sink(sink)
    place = getattr(sink, "url", None) or getattr(sink, "path", None)
    if not isinstance(place, str) or "://" in place:
        return "is not looked at"
    path = Path(place)
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not os.access(nearest, os.W_OK):
        raise BarnabasError(f"{nearest} cannot be written")
    return f"{place} {'is there' if path.exists() else 'will be made'}"


def _topic_sink(sink: TopicSink) -> str:
    config = client_config({**sink.kafka, "bootstrap.servers": sink.bootstrap_servers})
    admin = open_client(client_admin.AdminClient, config)
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_MS / 1000).topics
    except KafkaException as error:
        raise BarnabasError(f"cannot reach {sink.bootstrap_servers}: {error.args[0].str()}") from error
    if sink.topic not in topics:
        raise BarnabasError(f"topic {sink.topic} does not exist on {sink.bootstrap_servers}; make it first")
    return f"{len(topics[sink.topic].partitions)} partitions"


def _postgres_sink(sink: DatabaseSink) -> str:
    import psycopg

    try:
        with psycopg.connect(sink.url, connect_timeout=10, application_name="barnabas") as connection:
            row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (sink.table,)).fetchone()
    except psycopg.Error as error:
        raise BarnabasError(f"PostgreSQL: {error}") from error
    return f"{sink.table} {'is there' if row and row[0] else 'will be made'}"


def _checkpoint(flow: Flow) -> Iterator[Finding]:
    checkpoint = Checkpoint(flow)
    if checkpoint.is_running():
        yield Finding("error", "checkpoint", f"another process runs the flow with {checkpoint.folder}")
    if not checkpoint.has_begun:
        yield Finding(
            "ok", "checkpoint", f"{checkpoint.folder} is new: the flow begins at {flow.source.starting_offsets}"
        )
        return
    changes = checkpoint.changes()
    for each in changes:
        yield Finding("warning" if each.fits else "error", "checkpoint", f"{each.field} {each.message}")
    if all(each.fits for each in changes):
        yield Finding("ok", "checkpoint", f"{checkpoint.folder} fits; {checkpoint.batches()} micro-batches are done")
