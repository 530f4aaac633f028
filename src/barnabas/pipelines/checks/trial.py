"""Looks at a flow on the live cluster, without running it: a preview of its rows, and
``barnabas pipeline dry-run``.

Both read a few of the newest records of each source as tables, and take them through
the flow's own frames.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka import admin as client_admin
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint, lost_rows_error, sink_file
from barnabas.pipelines.checkpoints.topic_ids import TopicIds
from barnabas.pipelines.checks.analysis import analyse_flow, without_spark_logging
from barnabas.pipelines.checks.local_places import sink_place_problem
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster, open_client
from barnabas.pipelines.cluster.offsets import Offsets, to_json
from barnabas.pipelines.cluster.options import SourceOptions, client_config, connection_properties
from barnabas.pipelines.connector.flow_options import source_options
from barnabas.pipelines.errors import reason_of, secrets_hidden
from barnabas.pipelines.formats.encoders import WantedSchema, try_schema
from barnabas.pipelines.formats.strict_values import types_of
from barnabas.pipelines.frames import transforms
from barnabas.pipelines.frames.plans import output_mode
from barnabas.pipelines.frames.views import Views, build_views, source_rows
from barnabas.pipelines.outputs.declared import OutputError
from barnabas.pipelines.outputs.registry import inspect_output, sink_name
from barnabas.pipelines.outputs.sql import check_columns
from barnabas.pipelines.specification.model import MODEL_VERSION
from barnabas.pipelines.specification.spec import POSITION, Flow, FunctionSink, Lookup, Source, TopicSink
from barnabas.pipelines.values.arrow_values import shown_rows

__all__ = ["Finding", "compacted_topics", "latest_offsets", "preview_rows", "source_cluster", "try_flow"]

_ACL_OPERATION: Any = vars(client_admin)["AclOperation"]  # its stubs forget to export it
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


def compacted_topics(source: Source) -> list[str]:
    """The source's topics of which records of a key may be gone when there is a newer one.

    None if brokers do not say."""
    from barnabas.client.admin.configurations import Resource, ResourceType, describe_configs
    from barnabas.client.cluster.admin_connection import AdminConnection

    topics = source.topics or sorted({each.topic for each in source_cluster(source).partitions()})
    resources = [Resource(ResourceType.TOPIC, topic) for topic in topics]
    try:
        with AdminConnection(source.bootstrap_servers, connection_properties(source.kafka)) as connection:
            found = describe_configs(connection, resources, names=["cleanup.policy"])
    except BarnabasError:
        return []
    return [each.name for each, entries in found.items() if any("compact" in (entry.value or "") for entry in entries)]


def _sample(spark: SparkSession, source: Source, records: int, *, streaming: bool = False) -> DataFrame:
    """The newest records of each partition, as a table or as a stream."""
    cluster = source_cluster(source)
    partitions = cluster.partitions()
    ends = cluster.at_marks(dict.fromkeys(partitions, -1))
    begins = cluster.at_marks(dict.fromkeys(partitions, -2))
    starts = {name: max(begins[name], end - records) for name, end in ends.items()}
    options = source_options(source)
    for name in ("maxOffsetsPerTrigger", "subscribe", "subscribePattern"):
        options.pop(name, None)
    options |= {"assign": _assign(partitions), "startingOffsets": to_json(starts)}
    reader: Any = spark.readStream if streaming else spark.read.option("endingOffsets", to_json(ends))
    frame: DataFrame = reader.format("barnabas").schema(transforms.record_schema(source)).options(**options).load()
    return frame


def _assign(partitions: list[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(str(each.partition))
    inner = ",".join(f'"{topic}":[{",".join(numbers)}]' for topic, numbers in by_topic.items())
    return f"{{{inner}}}"


def preview_rows(
    spark: SparkSession, flow: Flow, view: str, rows: int, *, records: int = _SAMPLE
) -> list[dict[str, Any]]:
    """Rows of a view (``results``, a source, a table, a step), made of the newest records.

    Raises `BarnabasError`."""
    try:
        with without_spark_logging(), secrets_hidden(flow.hide):
            return shown_rows(_looked_at(spark, flow, view, rows, records)[1])
    except PySparkException as error:
        raise reason_of(error) from error


def _looked_at(spark: SparkSession, flow: Flow, view: str, rows: int, records: int) -> tuple[Views, pa.Table]:
    """The flow's frames over the newest records, and the first rows of one: tables, or streams if a
    step is for streams only."""
    for streaming in (False, True):
        sample = partial(_sample, spark, records=records, streaming=streaming)
        try:
            views = build_views(spark, flow, sample)
            return views, _collected(_view(views, view), rows)
        except PySparkException as error:
            if streaming or "batch query" not in str(error):
                raise
    raise AssertionError


def _view(views: Views, name: str) -> DataFrame:
    if name not in views.by_name:
        known = list(views.by_name)
        raise BarnabasError(f"the flow has no view {name}{did_you_mean(name, known) or '; it has ' + ', '.join(known)}")
    return transforms.visible_columns(views.by_name[name])


def _collected(frame: DataFrame, rows: int) -> pa.Table:
    """The first rows of a table, or of what a stream gives for the records that are there."""
    if not frame.isStreaming:
        return frame.limit(rows).toArrow()
    found: list[pa.Table] = []
    with tempfile.TemporaryDirectory(prefix="barnabas-preview-") as checkpoint:
        writer = frame.writeStream.outputMode(output_mode(frame)).option("checkpointLocation", checkpoint)
        writer = writer.foreachBatch(lambda batch, _: found.append(batch.limit(rows).toArrow()))
        writer.trigger(availableNow=True).start().awaitTermination()
    return (
        pa.concat_tables(found).slice(0, rows)
        if found
        else frame.sparkSession.createDataFrame([], frame.schema).toArrow()
    )


def try_flow(spark: SparkSession, flow: Flow) -> Iterator[Finding]:
    """What would go wrong if the flow were run now, one finding after the other."""
    for each in _findings(spark, flow):
        yield replace(each, message=flow.hide(each.message))


def _findings(spark: SparkSession, flow: Flow) -> Iterator[Finding]:
    analysis = analyse_flow(spark, flow)
    problems = analysis.problems
    for state, found in (("error", problems), ("warning", analysis.warnings)):
        for each in found:
            yield Finding(state, each.field, str(flow.places.error(each.field, each.message)))
    if not problems:
        yield Finding("ok", "flow", "every expression, column and type is right")
    reachable: list[Source] = []
    for source in flow.sources:
        finding = _try(f"source {source.name}", partial(_topics, source))
        yield finding
        if finding.state == "ok":
            reachable.append(source)
            yield from _rights(source)
    types: dict[str, str] | None = None
    if not problems and len(reachable) == len(flow.sources):
        views, findings = _sampled(spark, flow)
        yield from findings
        types = result_types(flow, views) if views else None
    for sink in flow.sinks:
        if isinstance(sink, TopicSink):
            kafka = {**sink.kafka, "bootstrap.servers": sink.bootstrap_servers}
            yield _target(f"sink {sink_name(sink)}", kafka, sink.topic)
            if sink.format is not None and types is not None:
                yield _try(f"schema of {sink_name(sink)}", partial(_schema, sink, flow, types))
        else:
            yield _try(f"sink {sink_name(sink)}", partial(_sink, sink, flow, types))
    for table in filter(None, map(_as_source, flow.lookups)):
        yield _try(f"table {table.name}", partial(_values_of_table, spark, table))
    problem = "" if problems else Checkpoint(flow).state_problem(analysis.operations, spark.version)
    if problem:
        yield Finding("error", "checkpoint", problem)
    yield from _checkpoint(flow)


def _try(what: str, act: Callable[[], Finding]) -> Finding:
    try:
        return act()
    except PySparkException as error:
        return Finding("error", what, str(reason_of(error)))
    except (BarnabasError, OSError) as error:
        return Finding("error", what, str(error))


def _as_source(lookup: Lookup) -> Source | None:
    """A table that is a topic as a source of the same values."""
    if lookup.topic is None or lookup.format is None:
        return None
    return Source(lookup.place, lookup.format, (lookup.topic,), kafka=lookup.kafka, name=lookup.name)


def _values_of_table(spark: SparkSession, source: Source) -> Finding:
    """How many of the newest values of a topic fit the table's format: the others are left out."""
    records = _sample(spark, source, _SAMPLE).where("value is not null")  # which deletes a key
    counts = transforms.parse_records(records, source.format).agg(*transforms.bad_counts(source.format)).collect()[0]
    what, rows, bad = f"table {source.name}", counts["rows"], counts["bad_rows"]
    if bad:
        text = f"{bad:,} of the newest {rows:,} values do not fit and are left out; for example: {counts['example']}"
        return Finding("warning", what, text)
    return Finding("ok", what, f"{rows:,} of the newest values fit")


def _topics(source: Source) -> Finding:
    cluster = source_cluster(source)
    partitions = cluster.partitions()
    ends = cluster.at_marks(dict.fromkeys(partitions, -1))
    begins = cluster.at_marks(dict.fromkeys(partitions, -2))
    waiting = sum(end - begins[name] for name, end in ends.items())
    topics = sorted({each.topic for each in partitions})
    names = ", ".join(topics) or f"no topic matches {source.pattern}"
    text = f"{names}: {len(partitions)} partitions, {waiting:,} records can be read"
    return Finding("ok" if partitions else "warning", f"source {source.name}", text)


def _sampled(spark: SparkSession, flow: Flow) -> tuple[Views | None, list[Finding]]:
    """The flow's frames over the newest records, and how these fare in them."""
    found: list[Finding] = []
    try:
        with without_spark_logging():
            found += [_quality(spark, flow, source) for source in flow.sources]
            views, rows = _looked_at(spark, flow, "results", _SAMPLE, _SAMPLE)
        found.append(
            Finding("ok" if rows.num_rows else "warning", "results", f"{rows.num_rows:,} rows of the newest records")
        )
        return views, found
    except PySparkException as error:
        return None, [*found, Finding("error", "newest records", str(reason_of(error)))]
    except BarnabasError as error:
        return None, [*found, Finding("error", "newest records", str(error))]


def result_types(flow: Flow, views: Views) -> dict[str, str]:
    """The columns that sinks get."""
    types = transforms.field_types(views.results.schema)
    return types | ({flow.model.score: "double", MODEL_VERSION: "int"} if flow.model else {})


def _quality(spark: SparkSession, flow: Flow, source: Source) -> Finding:
    parsed = transforms.parse_records(_sample(spark, source, _SAMPLE), source.format, source.record_columns)
    marked, _ = source_rows(flow, source, parsed)
    known = [F.count(F.col(name)).alias(f"known:{name}") for name in source.format.columns]
    counts = marked.agg(*transforms.bad_counts(source.format), *known).collect()[0].asDict()
    rows, bad = counts["rows"], counts["bad_rows"]
    what = f"records of {source.name}"
    empty = [name for name in source.format.columns if not counts[f"known:{name}"]]
    no_values = ""
    if rows and empty:
        no_values = (
            f"column {', '.join(empty)} is null in all of the newest {rows:,}{_meant_names(spark, source, empty[0])}"
        )
    if not bad:
        text = f"{rows:,} of the newest fit" if rows else "there are none yet"
        return Finding("ok" if rows and not empty else "warning", what, no_values or text)
    limit = source.max_bad
    state = "error" if limit and limit.is_passed(rows, bad) and limit.then == "stop" else "warning"
    text = (
        f"{bad:,} of the newest {rows:,} are bad; for example: {counts['example']}{'; ' * bool(no_values)}{no_values}"
    )
    return Finding(state, what, text + (f"; max_bad is {limit}" if limit else ""))


def _meant_names(spark: SparkSession, source: Source, name: str) -> str:
    """The names of JSON values, if the column's is none of them."""
    if source.format.type != "json" or source.format.registry:
        return ""
    values = _sample(spark, source, 20).selectExpr("json_object_keys(cast(value as string)) as names").collect()
    known = list(dict.fromkeys(each for row in values for each in row["names"] or ()))
    if name in known:
        return ""
    return f"; no value has it{did_you_mean(name, known) or ', but ' + ', '.join(known[:30])}"


def _sink(sink: Any, flow: Flow, types: dict[str, str] | None) -> Finding:
    """What can be seen of a sink without changing it.

    Raises `BarnabasError` if the flow could not go on with it."""
    what = f"sink {sink_name(sink)}"
    if isinstance(sink, FunctionSink):
        return Finding("ok", what, "is not looked at")
    if problem := sink_place_problem(sink, flow.checkpoint):
        raise OutputError(problem)
    required = Checkpoint(flow).required_batches(sink)
    query, last = required or ("", -1)
    state = inspect_output(sink, flow.name, query)
    found = -1 if state is None else state.last_epoch
    if found is not None and found < last:
        raise lost_rows_error(flow, sink, found, last)
    if state is None:
        file = sink_file(sink)
        is_new_file = file is not None and not file.exists()
        return Finding("ok", what, f"{file if is_new_file else sink.table} will be made")
    if types and state.columns is not None:
        check_columns(sink.table, types, set(state.columns))
    return Finding("ok", what, f"{sink.table} is there")


def _schema(sink: TopicSink, flow: Flow, types: dict[str, str]) -> Finding:
    """Whether the results fit a schema that the registry takes."""
    is_chosen = not flow.last_aggregate and sink.key != POSITION
    names = [name for name in types if not (is_chosen and name in POSITION and name not in sink.key)]
    wanted = WantedSchema.of(sink.topic, sink.format)
    said = try_schema(wanted, types_of({name: types[name] for name in names}))
    return Finding("ok", f"schema of {sink_name(sink)}", said)


def _rights(source: Source) -> Iterator[Finding]:
    """Topics and groups that a source also needs, and whether the user may use them,
    where the brokers say so."""
    kafka = {**source.kafka, "bootstrap.servers": source.bootstrap_servers}
    for topic in source.topics:
        if not _may(kafka, topic, _ACL_OPERATION.READ):
            yield Finding("error", f"source {source.name}", f"the user has no right to read the topic {topic}")
    if source.bad_rows_topic:
        yield _target(f"bad rows of {source.name}", source.producer_kafka, source.bad_rows_topic)


def _target(what: str, kafka: dict[str, str], topic: str) -> Finding:
    """A topic that the flow writes to."""
    admin = open_client(client_admin.AdminClient, client_config(kafka))
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_MS / 1000).topics
    except KafkaException as error:
        return Finding("error", what, f"cannot reach {kafka['bootstrap.servers']}: {error.args[0].str()}")
    if topic not in topics:
        text = f"topic {topic} does not exist on {kafka['bootstrap.servers']}: the first record makes it, if the brokers do so"
        return Finding("warning", what, text)
    if not _may(kafka, topic, _ACL_OPERATION.WRITE):
        return Finding("error", what, f"the user has no right to write to the topic {topic}")
    return Finding("ok", what, f"{len(topics[topic].partitions)} partitions")


def _may(kafka: dict[str, str], topic: str, operation: Any) -> bool:
    """Whether the brokers let this user do that with the topic; True if they do not say."""
    admin: Any = open_client(client_admin.AdminClient, client_config(kafka))
    wanted = TopicCollection([topic])
    futures = admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=_TIMEOUT_MS / 1000)
    try:
        allowed = futures[topic].result().authorized_operations
    except KafkaException:
        return True
    return not allowed or operation in allowed


def _checkpoint(flow: Flow) -> Iterator[Finding]:
    checkpoint = Checkpoint(flow)
    if checkpoint.is_running():
        yield Finding("error", "checkpoint", f"another process runs the flow with {checkpoint.folder}")
    if not checkpoint.has_begun:
        yield Finding(
            "ok", "checkpoint", f"{checkpoint.folder} is new: the flow begins at {flow.source.starting_offsets}"
        )
        return
    ids = TopicIds(checkpoint.folder)
    for source in flow.sources:
        state = "error" if source.fail_on_data_loss else "warning"
        # A cluster that does not answer is reported already.
        with contextlib.suppress(BarnabasError):
            for text in ids.problems(source, source_cluster(source)):
                yield Finding(state, "checkpoint", text)
    changes = checkpoint.changes()
    for each in changes:
        yield Finding("warning" if each.fits else "error", "checkpoint", f"{each.field} {each.message}")
    if all(each.fits for each in changes):
        yield Finding("ok", "checkpoint", f"{checkpoint.folder} fits; {checkpoint.batches()} micro-batches are done")
