"""``barnabas pipeline verify``: a flow's results once more from its topics, compared
with what its outputs hold.

The flow itself runs, with a checkpoint and outputs in a folder that is deleted afterwards, from the
first record that it has read and the topics still hold up to where the checkpoint is. Nothing of
the flow's own is changed: no output, checkpoint, group or topic.

- SQLite, DuckDB, Delta, Parquet and full-text indexes: an output of the same kind is filled, and
  both are read by the same reader.
- PostgreSQL and topics: the rows, or records, are kept as the flow writes them. In a topic the last
  record of each key counts, across partitions as in a topic that is a table
  (`barnabas.pipelines.frames.ordering`).
- Functions and OpenSearch cannot be read back.

A flow whose results do not follow from its records alone cannot be verified: one with a model, or
one that puts whole micro-batches aside. If records are gone (retention, compaction), an aggregate
cannot be either, and rows that only the output has say nothing.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.checkpoints.topic_ids import TopicIds
from barnabas.pipelines.checks.analysis import without_spark_logging
from barnabas.pipelines.checks.trial import compacted_topics, source_cluster
from barnabas.pipelines.cluster.offsets import Offsets, plan_ranges, to_json
from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.data_source import SCHEMA_WITH_HEADERS, read_range
from barnabas.pipelines.connector.flow_options import source_options
from barnabas.pipelines.errors import PipelineError, reason_of
from barnabas.pipelines.frames.keys import whole_texts
from barnabas.pipelines.frames.transforms import as_messages, with_deletions
from barnabas.pipelines.outputs.kind import TableKind
from barnabas.pipelines.outputs.registry import kind_of, sink_name, table_kind_of
from barnabas.pipelines.outputs.search import ID_COLUMN
from barnabas.pipelines.outputs.table import DELETION_MARK
from barnabas.pipelines.running.batch_sinks import topic_values
from barnabas.pipelines.running.run import run_on
from barnabas.pipelines.specification.spec import (
    Flow,
    Format,
    FunctionSink,
    Sink,
    Source,
    TopicSink,
    Trigger,
)
from barnabas.pipelines.values.arrow_values import values_of
from barnabas.pipelines.verification.row_comparison import (
    EXPECTED,
    FOUND,
    LastRecords,
    RowComparison,
    RowDifference,
    TopicRecord,
    rows_of,
)

__all__ = ["CheckedRange", "CheckedSink", "Verification", "verify_flow"]


@dataclass(frozen=True, slots=True)
class CheckedRange:
    """The offsets of a partition that were looked at, ``start`` to ``end`` - 1, and how many the
    flow had read before that are gone."""

    source: str
    topic: str
    partition: int
    start: int
    end: int
    gone: int


@dataclass(slots=True)
class CheckedSink:
    """How an output compares."""

    sink: str
    verified: bool = False
    reason: str = ""
    """Why it was not verified, or what could not be judged."""
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: list[RowDifference] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return bool(self.missing or self.extra or self.different)

    @property
    def is_judged(self) -> bool:
        """Whether all rows were compared, those that only the output has included."""
        return self.verified and not self.reason


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at, and how the outputs compare."""

    flow: str
    ranges: list[CheckedRange]
    sinks: list[CheckedSink]


def verify_flow(spark: SparkSession, flow: Flow, *, limit: int, say: Callable[[str], None]) -> Verification:
    """Compares; at most ``limit`` differences of each sink are kept.

    Raises `BarnabasError` if the flow cannot be verified."""
    checkpoint = Checkpoint(flow)
    _require_verifiable(flow, checkpoint)
    with checkpoint.held(), tempfile.TemporaryDirectory(prefix="barnabas-verify-") as folder:
        ends = checkpoint.position()
        ranges, starts = _ranges(flow, checkpoint, ends)
        checked = [_Checked(number, sink, flow, Path(folder)) for number, sink in enumerate(flow.sinks)]
        copies = [copy for each in checked if (copy := each.copy(checkpoint)) is not None]
        if not copies:
            raise PipelineError(
                "no output can be verified: " + "; ".join(f"{each.found.sink}: {each.found.reason}" for each in checked)
            )
        say("computing the results once more")
        state = Path(folder) / "state"
        state.mkdir()
        for source, start in zip(flow.sources, starts, strict=True):
            name = "start.json" if source is flow.source else f"start-{source.name}.json"
            (state / name).write_text(to_json(start), encoding="utf-8")
        again = replace(
            flow,
            checkpoint=str(state),
            sinks=tuple(copies),
            source=_only_read(flow.source),
            more_sources=tuple(map(_only_read, flow.more_sources)),
            charts=(),
            trigger=Trigger(available_now=True),
        )
        try:
            with without_spark_logging():
                run_on(spark, again, ends=ends)
        except PySparkException as error:
            raise reason_of(error) from error
        say("comparing")
        lacks = _what_is_gone(flow, ranges)
        for each in checked:
            each.compare(lacks, limit)
        return Verification(flow.name, ranges, [each.found for each in checked])


def _require_verifiable(flow: Flow, checkpoint: Checkpoint) -> None:
    if flow.model:
        raise PipelineError(
            "the flow has a model, whose versions change: scores of before cannot be computed once more"
        )
    if any(source.quarantines for source in flow.sources):
        raise PipelineError(
            'on_max_bad = "quarantine" puts whole micro-batches aside: which ones does not follow from the records'
        )
    if not checkpoint.batches():
        raise PipelineError(f"no micro-batch has reached the outputs yet: run {flow.name} first")
    if checkpoint.unfinished():
        raise PipelineError(
            f"a micro-batch was begun and may be in some outputs: let it end, `{flow.places.command('run')} --once`, and verify then"
        )
    wrong = [f"{each.field} {each.message}" for each in checkpoint.changes() if not each.fits]
    if wrong:
        raise PipelineError(f"the checkpoint does not fit the flow: {'; '.join(wrong)}")


def _only_read(source: Source) -> Source:
    """The source without what it writes and without what ends a run."""
    return replace(source, group=None, bad_rows_topic=None, max_bad=None, fail_on_data_loss=True)


def _ranges(flow: Flow, checkpoint: Checkpoint, ends: Sequence[Offsets]) -> tuple[list[CheckedRange], list[Offsets]]:
    """What the flow has read and can be read, and where that begins."""
    ids = TopicIds(checkpoint.folder)
    ranges: list[CheckedRange] = []
    starts: list[Offsets] = []
    for source, known, end in zip(flow.sources, checkpoint.known_starts(), ends, strict=True):
        cluster = source_cluster(source)
        if others := sorted({*ids.made_again(source, cluster), *ids.to_begin(source, "main")}):
            raise PipelineError(
                f"topic {', '.join(others)} was deleted and made again: the records of the results are gone"
            )
        partitions = set(cluster.partitions())
        if away := sorted(set(end) - partitions):
            raise PipelineError(
                f"{', '.join(map(str, away))} cannot be read any more, and the results have records of it"
            )
        begins = cluster.at_marks(dict.fromkeys(end, -2))
        first: Offsets = {}
        for name in end:
            began = [start[name] for start in known if name in start]
            first[name] = min(began, default=0)
        start = {name: min(max(first[name], begins[name]), end[name]) for name in end}
        starts.append({**cluster.at_marks(dict.fromkeys(partitions - set(end), -2)), **start})
        for name in sorted(end):
            gone = max(0, min(begins[name], end[name]) - first[name])
            ranges.append(CheckedRange(source.name, name.topic, name.partition, start[name], end[name], gone))
    return ranges, starts


def _what_is_gone(flow: Flow, ranges: Sequence[CheckedRange]) -> str:
    """Which records the results may have that cannot be read; "" if all can be."""
    gone = sum(each.gone for each in ranges)
    if gone:
        return f"{gone:,} records that the flow has read are gone"
    if compacted := sorted({topic for source in flow.sources for topic in compacted_topics(source)}):
        return f"topic {', '.join(compacted)} is compacted, so records that the flow has read may be gone"
    return ""


def _makes_rows_of_several(flow: Flow) -> bool:
    """Whether a row may be made of several records, so that one that is gone changes it."""
    return bool(
        flow.aggregate
        or len(flow.sources) > 1
        or any(step.sql or step.function or step.aggregate or step.deduplicate for step in flow.steps)
    )


class _Checked:
    """One output of the flow and its copy."""

    def __init__(self, number: int, sink: Sink, flow: Flow, folder: Path) -> None:
        self.found = CheckedSink(sink_name(sink))
        self._sink = sink
        self._flow = flow
        self._folder = folder / f"sink-{number}"
        self._copy: Sink | None = None
        self._rows: RowComparison | None = None
        self._columns: list[str] = []
        self._floats: frozenset[str] = frozenset()

    def copy(self, checkpoint: Checkpoint) -> Sink | None:
        """What takes the results in the place of the sink; None if it cannot be verified."""
        sink = self._sink
        kind = kind_of(sink)
        if kind.unreadable or (isinstance(kind, TableKind) and not kind.is_readable):
            self.found.reason = kind.unreadable or "its rows are not read back"
            return None
        if since := checkpoint.since(sink):
            self.found.reason = f"it has results from micro-batch {since} on only"
            return None
        self._folder.mkdir()
        self._rows = RowComparison(self._folder / "rows.db")
        path = str(self._folder / "copy")
        self._copy = kind.at(sink, path) if isinstance(kind, TableKind) else None
        if self._copy is None:
            take = self._take_records if isinstance(sink, TopicSink) else self._take_rows
            self._copy = FunctionSink(take, sink.key, sink.order_by)
        return self._copy

    def _take_rows(self, batch: DataFrame, _: int) -> None:
        """Rows as an output on a server is given them."""
        assert self._rows is not None
        rows: pa.Table = with_deletions(batch, getattr(self._sink, "delete_when", None)).toArrow()
        self._columns = [name for name in rows.column_names if name != DELETION_MARK]
        self._floats = frozenset(each.name for each in rows.schema if pa.types.is_float32(each.type))
        columns = {name: values_of(name, rows[name]) for name in rows.column_names}
        deleted = columns.pop(DELETION_MARK, [False] * rows.num_rows)
        texts = rows_of(
            self._columns, self._sink.key, self._columns, self._as_stored(zip(*columns.values(), strict=True))
        )
        self._rows.put(
            EXPECTED, [(key, None if gone else row) for (key, row), gone in zip(texts, deleted, strict=True)]
        )

    def _as_stored(self, rows: Iterator[Sequence[Any]]) -> Iterator[list[Any]]:
        """Values as the output keeps them."""
        stored = table_kind_of(self._sink).stored
        floats = [name in self._floats for name in self._columns]
        for row in rows:
            yield [stored(value, is_float=is_float) for value, is_float in zip(row, floats, strict=True)]

    def _take_records(self, batch: DataFrame, epoch: int) -> None:
        """Records as the topic is given them."""
        assert self._rows is not None
        rows = whole_texts(with_deletions(batch, getattr(self._sink, "delete_when", None)))
        assert isinstance(self._sink, TopicSink)
        encode = topic_values(self._sink, lambda: rows.drop(DELETION_MARK).schema, registers=False)
        records = as_messages(rows, self._sink.key, self._flow.name, epoch, encode).select("key", "value").toArrow()
        keys, values = (records[name].cast(pa.binary()).to_pylist() for name in ("key", "value"))
        self._rows.put(EXPECTED, zip(keys, values, strict=True))

    def compare(self, lacks: str, limit: int) -> None:
        """Read the output, and note how it differs."""
        if self._copy is None or self._rows is None:
            return
        if lacks and _makes_rows_of_several(self._flow):
            self.found.reason = f"{lacks}, and rows are made of several records"
            return
        try:
            self._load(self._rows)
        except (BarnabasError, OSError, ValueError) as error:  # pyarrow's are of the last kind
            self.found.reason = f"it cannot be read: {error}"
            self.found.missing = self._rows.count(EXPECTED)
            return
        self.found.verified = True
        self.found.rows = self._rows.count(FOUND)
        self.found.reason = f"{lacks}: rows that only the output has are not counted" if lacks else ""
        for each in self._rows.differences():
            if lacks and each.kind == "extra":
                continue
            setattr(self.found, each.kind, getattr(self.found, each.kind) + 1)
            if len(self.found.examples) < limit:
                self.found.examples.append(each)
        self._rows.close()

    def _load(self, rows: RowComparison) -> None:
        sink, key = self._sink, self._sink.key
        if isinstance(sink, TopicSink):
            last = LastRecords(self._folder / "records.db")
            for batch in _read_topic(sink):
                last.take(_records_of(self._flow.name, batch))
            rows.add(FOUND, last.rows())
            last.close()
            return
        if isinstance(self._copy, FunctionSink):
            names, found = _read(sink)
            if self._columns:  # else the flow gave no row
                rows.add(
                    FOUND,
                    rows_of(
                        self._columns, key, self._columns, self._as_stored(_chosen(list(names), self._columns, found))
                    ),
                )
            else:
                rows.add(FOUND, rows_of(names, key, names, found))
            return
        assert self._copy is not None
        names, expected = _read(self._copy)
        # The id identifies a row in its index only.
        columns = [name for name in names if name != ID_COLUMN]
        rows.add(EXPECTED, rows_of(names, key, columns, expected))
        others, found = _read(sink)
        rows.add(FOUND, rows_of(others, key, columns, found))


def _chosen(names: Sequence[str], wanted: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    places = [names.index(name) for name in wanted]
    return ([row[at] for at in places] for row in rows)


def _read(sink: Sink) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
    """The columns and rows of an output."""
    found: tuple[Sequence[str], Iterable[Sequence[Any]]] = table_kind_of(sink).rows(sink, time.sleep)
    return found


def _read_topic(sink: TopicSink) -> Iterator[pa.RecordBatch]:
    """All records of a topic, those of each partition in their order."""
    source = Source(sink.bootstrap_servers, Format("text", {}), (sink.topic,), kafka=sink.kafka)
    # A reader takes the connection's settings from the producer's.
    source = replace(
        source, kafka={name: text for name, text in source.producer_kafka.items() if name != "bootstrap.servers"}
    )
    cluster = source_cluster(source)
    partitions: list[TopicPartition] = cluster.partitions()
    begins, ends = (cluster.at_marks(dict.fromkeys(partitions, mark)) for mark in (-2, -1))
    options = SourceOptions.parse(source_options(source), streaming=True)
    for wanted in plan_ranges(begins, ends):
        yield from read_range(options, SCHEMA_WITH_HEADERS, wanted)


def _records_of(flow: str, batch: pa.RecordBatch) -> Iterator[TopicRecord]:
    """The records that a flow has written, whose headers name it."""
    time = batch["timestamp"].cast(pa.int64())  # Python's times end before Kafka's
    columns = (batch["key"], batch["partition"], time, batch["value"], batch["headers"])
    for *record, headers in zip(*(each.to_pylist() for each in columns), strict=True):
        if any(each["key"] == "barnabas.flow" and each["value"] == flow.encode() for each in headers or ()):
            yield TopicRecord(*record)
