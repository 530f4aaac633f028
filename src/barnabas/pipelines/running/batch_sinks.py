"""Where a flow's micro-batches go. Each sink takes a batch again without harm.

A batch is a DataFrame with the flow's result columns and, when nothing is aggregated, the position
columns. Databases note the epoch with the rows (`barnabas.pipelines.outputs.table`). Topics get
records whose key and value are the same in every run of the batch, so a reader of the compacted
topic, or one that keeps the last value of each key, sees each result once; transactions will do
this for other readers when brokers have them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint, lost_rows_error
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.formats.encoders import WantedSchema, open_encoder
from barnabas.pipelines.frames.keys import whole_texts, with_equal_keys
from barnabas.pipelines.frames.ordering import RowVersions, newer_rows, versions_file
from barnabas.pipelines.frames.transforms import MIXED, as_messages, field_types, latest_per_key, with_deletions
from barnabas.pipelines.outputs.declared import FunctionSink, Sink, TableSink, TopicSink
from barnabas.pipelines.outputs.registry import kind_of, open_output, sink_name
from barnabas.pipelines.outputs.table import OutputTable
from barnabas.pipelines.specification.spec import POSITION, Flow
from barnabas.pipelines.values.arrow_values import require_texts
from barnabas.pipelines.values.json_documents import json_document

__all__ = ["BatchSink", "open_sinks", "require_batches", "topic_values"]


class BatchSink(Protocol):
    """Takes micro-batches, in the order of their epochs."""

    def last_epoch(self, query: str) -> int | None:
        """The last micro-batch of the query that the sink holds, -1 for none.

        None if it does not know."""
        ...

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:
        """Applies the batch; raises `BarnabasError` with the reason when it cannot."""
        ...

    @property
    def mixed_keys(self) -> int:
        """How many times a micro-batch had rows of a key from several partitions, and
        no column to order them."""
        ...

    def close(self) -> None:
        """Releases connections."""
        ...


class _LastRows:
    """The rows of a micro-batch that a sink takes: the last row of each key, unless the
    sink has had a later one."""

    def __init__(self, sink: Sink, flow: Flow) -> None:
        self._sink = sink
        self._name = f"{sink_name(sink)}, {sink.order_by}"
        self._is_chosen = not flow.last_aggregate and sink.key != POSITION
        self._versions: RowVersions | None = None
        self._path = versions_file(Path(flow.checkpoint))
        self.mixed_keys = 0

    def of(self, batch: DataFrame) -> DataFrame:
        """The rows as a frame, equal keys in one form, with `MIXED` where a choice is made."""
        batch = with_equal_keys(batch, self._sink.key)
        # Aggregates have a row for each key already, and so have rows keyed by where
        # they came from.
        if not self._is_chosen:
            return batch
        return latest_per_key(batch, self._sink.key, self._sink.order_by, marked=True)

    def collected(self, batch: DataFrame) -> pa.Table:
        """The rows, on the driver."""
        rows: pa.Table = self.of(batch).toArrow()
        if not self._is_chosen:
            return rows
        self.mixed_keys += pc.sum(rows[MIXED]).as_py() or 0
        rows = rows.drop_columns([MIXED])
        order_by = self._sink.order_by
        if order_by is None:
            return rows
        if self._versions is None:
            self._versions = RowVersions(self._path)
        return newer_rows(rows, self._sink.key, order_by, partial(self._versions.advance, self._name))

    def frame(self, batch: DataFrame) -> DataFrame:
        """The rows as a frame.

        They are collected only if they must be compared with earlier ones."""
        if self._sink.order_by:
            return batch.sparkSession.createDataFrame(self.collected(batch), _without_mark(self.of(batch)).schema)
        return _without_mark(self.of(batch))

    def close(self) -> None:
        if self._versions is not None:
            self._versions.close()


def _without_mark(rows: DataFrame) -> DataFrame:
    return rows.drop(MIXED)


class _TableWriter:
    def __init__(self, sink: TableSink, flow: Flow, results: DataFrame, is_stopped: Callable[[], bool]) -> None:
        self._flow = flow
        self._last = _LastRows(sink, flow)
        self._key = sink.key
        self._delete_when = sink.delete_when
        schema = _without_mark(self._last.of(results)).schema
        rows_change = flow.last_aggregate is not None or sink.key != POSITION
        self._tells_apart = kind_of(sink).tells_positions_apart
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self._output: OutputTable = open_output(
            sink, field_types(schema), arrow_schema, rows_change=rows_change, is_stopped=is_stopped
        )

    def last_epoch(self, query: str) -> int | None:
        return self._output.last_epoch(self._flow.name, query)

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:
        rows = self._last.collected(with_deletions(batch, self._delete_when))
        if self._tells_apart and self._key == POSITION:
            _require_positions(rows)
        require_texts(rows)
        self._output.apply(rows, self._flow.name, query, epoch)

    @property
    def mixed_keys(self) -> int:
        return self._last.mixed_keys

    def close(self) -> None:
        self._last.close()
        self._output.close()


class _TopicWriter:
    def __init__(self, sink: TopicSink, flow: Flow, results: DataFrame) -> None:
        self._sink = sink
        self._flow = flow
        self._last = _LastRows(sink, flow)
        # The registry is asked before the first row: it may refuse the schema.
        self._encode = topic_values(sink, lambda: _without_mark(self._last.of(results)).schema)

    def last_epoch(self, query: str) -> int | None:  # noqa: ARG002  # the protocol's
        return None

    @property
    def mixed_keys(self) -> int:
        return self._last.mixed_keys

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:  # noqa: ARG002  # the protocol's
        rows = self._last.frame(with_deletions(batch, self._sink.delete_when))
        messages = as_messages(whole_texts(rows), self._sink.key, self._flow.name, epoch, self._encode)
        writer = messages.write.format(self._flow.resources.connector).mode("append")
        writer = writer.option("kafka.bootstrap.servers", self._sink.bootstrap_servers).option(
            "topic", self._sink.topic
        )
        for name, text in self._sink.kafka.items():
            writer = writer.option(f"kafka.{name}", text)
        writer.save()

    def close(self) -> None:
        """Producers live in the workers, and no longer than a batch."""
        self._last.close()


def topic_values(
    sink: TopicSink, schema: Callable[[], StructType], *, registers: bool = True
) -> Callable[[Sequence[str], StructType], Column]:
    """What makes the values of a topic's records, for rows of a schema.

    Without ``registers`` a schema must be registered already. Raises `PipelineError`."""
    if sink.format is None:
        return json_document
    return open_encoder(WantedSchema.of(sink.topic, sink.format), schema(), registers=registers).column


class _FunctionWriter:
    def __init__(self, sink: FunctionSink, flow: Flow) -> None:
        self._sink = sink
        self._flow = flow
        self._last = _LastRows(sink, flow)

    def last_epoch(self, query: str) -> int | None:  # noqa: ARG002  # the protocol's
        return None

    @property
    def mixed_keys(self) -> int:
        return self._last.mixed_keys

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:  # noqa: ARG002  # the protocol's
        self._sink.function(self._last.frame(batch), epoch)

    def close(self) -> None:
        """The function keeps what it needs."""
        self._last.close()


def _require_positions(rows: pa.Table) -> None:
    """Raise `PipelineError` if rows that are keyed by where they came from are not
    one for each record."""
    records = rows.group_by(list(POSITION)).aggregate([]).num_rows
    if records == rows.num_rows and not rows[POSITION[-1]].null_count:
        return
    raise PipelineError(
        f"{rows.num_rows:,} rows come from {records:,} records, so their position ({', '.join(POSITION)}) does not tell them "
        "apart: one record became several rows, as by explode or a join with several matches. Give the sink a key that does, or "
        "add a column to these: key = [" + ", ".join(f'"{name}"' for name in POSITION) + ', "COLUMN"]'
    )


def open_sinks(flow: Flow, results: DataFrame, *, is_stopped: Callable[[], bool] = lambda: False) -> list[BatchSink]:
    """The flow's sinks, connected; ``results`` is the streaming frame, for its columns.

    ``is_stopped`` is asked while a server that went away is waited for.
    """
    opened: list[BatchSink] = []
    try:
        for sink in flow.sinks:
            if isinstance(sink, FunctionSink):
                opened.append(_FunctionWriter(sink, flow))
            elif isinstance(sink, TopicSink):
                opened.append(_TopicWriter(sink, flow, _static(results)))
            else:
                table: Any = sink
                opened.append(_TableWriter(table, flow, _static(results), is_stopped))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def require_batches(flow: Flow, checkpoint: Checkpoint, opened: Sequence[BatchSink]) -> None:
    """Raise `PipelineError` if a sink lacks micro-batches that the checkpoint counts as
    done, and so would never get.

    For example its table or file was deleted, or restored from a copy that is older
    than the checkpoint.
    """
    for sink, writer in zip(flow.sinks, opened, strict=True):
        if (expected := checkpoint.required_batches(sink)) is None:
            continue
        query, last = expected
        found = writer.last_epoch(query)
        if found is not None and found < last:
            raise lost_rows_error(flow, sink, found, last)


def _static(results: DataFrame) -> DataFrame:
    """An empty frame of the same columns, for functions that streams do not have (row_number)."""
    return results.sparkSession.createDataFrame([], results.schema)
