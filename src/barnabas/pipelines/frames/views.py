"""A flow as frames: its sources, tables and steps, one view after the other.

Runs, checks, previews and tests use it. A view is a DataFrame with a name. Steps in SQL see the
views before them as tables; steps in Python take them as parameters. The frames may be streams or
tables: `build_views` gets what reads a source's records.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.frames import transforms
from barnabas.pipelines.frames.expectations import expected_rows
from barnabas.pipelines.frames.uncomputable import mark_uncomputable
from barnabas.pipelines.specification.row_steps import aggregates_records, row_chains
from barnabas.pipelines.specification.spec import Aggregate, Flow, FlowStep, Source

__all__ = [
    "Views",
    "build_views",
    "run_sql",
    "step_rows",
    "temporary_views",
]


@dataclass
class Views:
    """The frames of a flow, in the order of the data."""

    by_name: dict[str, DataFrame] = field(default_factory=dict)
    parsed: dict[str, DataFrame] = field(default_factory=dict)
    """For each source its rows with the reasons of bad ones."""

    @property
    def results(self) -> DataFrame:
        """What the sinks take."""
        return self.by_name["results"]


def build_views(
    spark: SparkSession, flow: Flow, read: Callable[[Source], DataFrame], *, observed: bool = False
) -> Views:
    """All frames of a flow.

    ``observed`` adds the counts of bad rows and expectations to Spark's progress reports."""
    views = Views()
    for source in flow.sources:
        parsed = transforms.parse_records(read(source), source.format, source.record_columns)
        views.parsed[source.name], rows = source_rows(flow, source, parsed, observed=observed)
        views.by_name[source.name] = rows
    if flow.lookups:
        from barnabas.pipelines.frames.lookup import open_lookup  # which imports clients of brokers

        views.by_name |= {lookup.name: open_lookup(spark, lookup, observed=observed) for lookup in flow.lookups}
    previous = flow.source.name
    for step in flow.steps:
        rows = shape_step(step, step_rows(spark, step, views.by_name, previous))
        if step.aggregate:
            rows = _aggregated(flow, step.aggregate, rows, step.name, observed=observed)
        views.by_name[step.name] = expected_rows(rows, flow, step.name, observed=observed)
        previous = step.name
    rows = views.by_name[previous]
    if flow.aggregate:
        rows = _aggregated(flow, flow.aggregate, rows, "results", observed=observed)
    views.by_name["results"] = expected_rows(transforms.visible_columns(rows), flow, "results", observed=observed)
    return views


def source_rows(
    flow: Flow, source: Source, parsed: DataFrame, *, observed: bool = False
) -> tuple[DataFrame, DataFrame]:
    """A source's parsed rows, with the marks of bad ones, and its good rows after
    the source's transform."""
    marked = transforms.mark_unexpected(parsed, flow.expectations, source.name)
    drops = [each for each in flow.expectations if each.of == source.name and each.on_fail == "drop"]
    marked = mark_uncomputable(marked, row_chains(flow, source), drops, flow.sinks)
    if observed and not source.quarantines:  # else the rows are counted where they are judged
        counts = transforms.bad_counts(source.format, transforms.quarantining(flow, source))
        marked = marked.observe(f"barnabas.{source.name}", *counts)
    rows = expected_rows(transforms.good_rows(marked), flow, source.name, observed=observed)
    if source is flow.source:
        rows = transforms.shape_rows(rows, flow.transform)
    if source.watermark:
        rows = rows.withWatermark(source.watermark.time, source.watermark.delay)
    return marked, rows


def step_rows(spark: SparkSession, step: FlowStep, views: Mapping[str, DataFrame], previous: str) -> DataFrame:
    """The rows that a step begins with."""
    if step.sql:
        return run_sql(spark, step.sql, views)
    if step.function:
        result: Any = step.function(*[views[name] for name in step.inputs(previous)])
        if not isinstance(result, DataFrame):
            raise PipelineError(
                f"the function of step {step.name} must return a DataFrame, not {type(result).__name__}"
            )
        return result
    return views[step.of or previous]


def shape_step(step: FlowStep, rows: DataFrame) -> DataFrame:
    """What a step does to its rows before they are aggregated, in the order that
    `steps` describes."""
    rows = transforms.shape_rows(rows, step.transform)
    if step.watermark:
        rows = rows.withWatermark(step.watermark.time, step.watermark.delay)
    if step.deduplicate:
        rows = transforms.deduplicate_rows(rows, step.deduplicate)
    return rows


def _aggregated(flow: Flow, how: Aggregate, rows: DataFrame, view: str, *, observed: bool) -> DataFrame:
    """The rows after an aggregate.

    Records of a source without a time are bad rows already; other rows without a
    time are counted."""
    if observed and not aggregates_records(flow, how):
        rows = transforms.observe_timeless(rows, how, view)
    return transforms.aggregate_rows(rows, how)


def run_sql(spark: SparkSession, text: str, views: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query over views.

    Commands (INSERT, DROP and the like) are refused by Spark's parser."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # of classic sessions only
    parser.parseQuery(text)
    with temporary_views(spark, views):
        return spark.sql(text)


@contextlib.contextmanager
def temporary_views(spark: SparkSession, views: Mapping[str, DataFrame]) -> Iterator[None]:
    """Names for the frames, for as long as the block runs: flows that share a session
    must not see each other's."""
    for name, frame in views.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in views:
            spark.catalog.dropTempView(name)
