"""Where a flow's micro-batches go. Each sink takes a batch again without harm.

A batch is a DataFrame with the flow's result columns and, when nothing is aggregated, the position columns. Databases
note the epoch with the rows (`barnabas.pipelines.outputs.table`). Topics get records whose key and value are the same in
every run of the batch, so a reader of the compacted topic, or one that keeps the last value of each key, sees each
result once; transactions will do this for other readers when brokers have them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.pipelines.arrow_values import require_texts
from barnabas.pipelines.checkpoints import Checkpoint, sink_name
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.keys import whole_texts, with_equal_keys
from barnabas.pipelines.outputs.declared import LakeSink
from barnabas.pipelines.outputs.kinds import TableSink, open_output
from barnabas.pipelines.outputs.table import DELETION_MARK, OutputTable
from barnabas.pipelines.spec import POSITION, Flow, FunctionSink, TopicSink
from barnabas.pipelines.transforms import as_messages, field_types, latest_per_key

__all__ = ["BatchSink", "lost_rows_error", "open_sinks", "require_batches"]


class BatchSink(Protocol):
    """Takes micro-batches, in the order of their epochs."""

    def last_epoch(self, query: str) -> int | None:
        """The last micro-batch of the query that the sink holds, -1 for none; None if it does not know."""
        ...

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:
        """Applies the batch; raises `BarnabasError` with the reason when it cannot."""
        ...

    def close(self) -> None:
        """Releases connections."""
        ...


class _TableWriter:
    def __init__(self, sink: TableSink, flow: Flow, results: DataFrame, is_stopped: Callable[[], bool]) -> None:
        self._flow = flow
        self._key = sink.key
        self._delete_when = sink.delete_when
        schema = _for_key(results, flow, sink.key).schema
        rows_change = flow.last_aggregate is not None or sink.key != POSITION
        self._replaces = not isinstance(sink, LakeSink)
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self._output: OutputTable = open_output(
            sink, field_types(schema), arrow_schema, rows_change=rows_change, is_stopped=is_stopped
        )

    def last_epoch(self, query: str) -> int | None:
        return self._output.last_epoch(self._flow.name, query)

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:
        rows = _for_key(_with_deletions(batch, self._delete_when), self._flow, self._key).toArrow()
        if self._replaces and self._key == POSITION:
            _require_positions(rows)
        require_texts(rows)
        self._output.apply(rows, self._flow.name, query, epoch)

    def close(self) -> None:
        self._output.close()


class _TopicWriter:
    def __init__(self, sink: TopicSink, flow: Flow) -> None:
        self._sink = sink
        self._flow = flow

    def last_epoch(self, query: str) -> int | None:  # noqa: ARG002  # the protocol's
        return None

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:  # noqa: ARG002  # the protocol's
        rows = _for_key(_with_deletions(batch, self._sink.delete_when), self._flow, self._sink.key)
        messages = as_messages(whole_texts(rows), self._sink.key, self._flow.name, epoch)
        writer = messages.write.format(self._flow.resources.connector).mode("append")
        writer = writer.option("kafka.bootstrap.servers", self._sink.bootstrap_servers).option(
            "topic", self._sink.topic
        )
        for name, text in self._sink.kafka.items():
            writer = writer.option(f"kafka.{name}", text)
        writer.save()

    def close(self) -> None:
        """Producers live in the workers, and no longer than a batch."""


class _FunctionWriter:
    def __init__(self, sink: FunctionSink, flow: Flow) -> None:
        self._sink = sink
        self._flow = flow

    def last_epoch(self, query: str) -> int | None:  # noqa: ARG002  # the protocol's
        return None

    def write(self, batch: DataFrame, query: str, epoch: int) -> None:  # noqa: ARG002  # the protocol's
        self._sink.function(_for_key(batch, self._flow, self._sink.key), epoch)

    def close(self) -> None:
        """The function keeps what it needs."""


def _require_positions(rows: pa.Table) -> None:
    """Raise `PipelineError` if rows that are keyed by where they came from are not one for each record."""
    records = rows.group_by(list(POSITION)).aggregate([]).num_rows
    if records == rows.num_rows and not rows[POSITION[-1]].null_count:
        return
    raise PipelineError(
        f"{rows.num_rows:,} rows come from {records:,} records, so their position ({', '.join(POSITION)}) does not tell them "
        "apart: one record became several rows, as by explode or a join with several matches. Give the sink a key that does, or "
        "add a column to these: key = [" + ", ".join(f'"{name}"' for name in POSITION) + ', "COLUMN"]'
    )


def _with_deletions(batch: DataFrame, condition: str | None) -> DataFrame:
    """The rows, marked where they delete; a condition that is null does not."""
    if condition is None:
        return batch
    return batch.withColumn(DELETION_MARK, F.coalesce(F.expr(condition), F.lit(False)))


def _for_key(batch: DataFrame, flow: Flow, key: tuple[str, ...]) -> DataFrame:
    """One row for each key. Aggregates have one already, and so have rows that are keyed by where they came from."""
    batch = with_equal_keys(batch, key)
    if flow.last_aggregate or key == POSITION:
        return batch
    return latest_per_key(batch, key)


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
                opened.append(_TopicWriter(sink, flow))
            else:
                opened.append(_TableWriter(sink, flow, _static(results), is_stopped))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def require_batches(flow: Flow, checkpoint: Checkpoint, opened: Sequence[BatchSink]) -> None:
    """Raise `PipelineError` if a sink lacks micro-batches that the checkpoint counts as done, and so would never get.

    Its table or file was deleted, say, or restored from a copy that is older than the checkpoint.
    """
    for sink, writer in zip(flow.sinks, opened, strict=True):
        if (expected := checkpoint.required_batches(sink)) is None:
            continue
        query, last = expected
        found = writer.last_epoch(query)
        if found is not None and found < last:
            raise lost_rows_error(flow, sink, found, last)


def lost_rows_error(flow: Flow, sink: object, found: int, last: int) -> PipelineError:
    """A sink holds micro-batches up to ``found`` (-1: none), but the checkpoint counts ``last`` as done."""
    file = flow.places.file or "FILE"
    has = "nothing that this flow wrote" if found < 0 else f"micro-batches up to {found} only"
    return PipelineError(
        f"{sink_name(sink)} holds {has}, but the checkpoint counts {last} as done: was it deleted, or restored "
        f"from an older copy? Restore it as it was; or let the flow fill it again from the topics: `barnabas "
        f"pipeline rewind {file} --to earliest --yes`; or give the sink another table, which gets results from now on"
    )


def _static(results: DataFrame) -> DataFrame:
    """An empty frame of the same columns, for functions that streams do not have (row_number)."""
    return results.sparkSession.createDataFrame([], results.schema)
