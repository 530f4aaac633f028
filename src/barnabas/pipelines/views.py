"""A flow as frames: its sources, tables and steps, one view after the other. Runs, checks, previews and tests use it.

A view is a DataFrame with a name. Steps in SQL see the views before them as tables; steps in Python take them as
parameters. The frames may be streams or tables: `build_views` gets what reads a source's records.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.pipelines import transforms
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.expectations import expected_rows
from barnabas.pipelines.spec import Flow, FlowStep, Source

__all__ = [
    "SOURCE_OPTION",
    "Views",
    "build_views",
    "has_watermark",
    "multiplies_rows",
    "output_mode",
    "read_sources",
    "run_sql",
    "stateful_operations",
    "step_rows",
    "temporary_views",
]

_KEEP_ROWS = ("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Join")
_WHOLE = 100_000
"""Characters of an operation's text: all of them."""
_NOT_OF_STATE = re.compile(r"#\d+L?|-T\d+ms| AS (`[^`]*`|\w+)(?=#)")
_ID = re.compile(r"#(\d+)")
_MADE_ID = re.compile(r" AS (?:`[^`]*`|\w+)#(\d+)")
_PARSED = "_barnabas_row"
"""The column from which a format's columns are taken."""
SOURCE_OPTION = "flowSource"
"""The option that carries a source's name into Spark's plan; Spark itself knows streams by their order alone."""


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
    """All frames of a flow; ``observed`` adds the counts of bad rows and expectations to Spark's progress reports."""
    views = Views()
    for source in flow.sources:
        parsed = transforms.parse_records(read(source), source.format, source.record_columns)
        views.parsed[source.name], rows = source_rows(flow, source, parsed, observed=observed)
        views.by_name[source.name] = rows
    if flow.lookups:
        from barnabas.pipelines.lookup import open_lookup  # which imports clients of brokers

        views.by_name |= {lookup.name: open_lookup(spark, lookup) for lookup in flow.lookups}
    previous = flow.source.name
    for step in flow.steps:
        rows = shape_step(step, step_rows(spark, step, views.by_name, previous))
        views.by_name[step.name] = expected_rows(rows, flow, step.name, observed=observed)
        previous = step.name
    rows = views.by_name[previous]
    if flow.aggregate:
        rows = transforms.aggregate_rows(rows, flow.aggregate)
    views.by_name["results"] = expected_rows(transforms.visible_columns(rows), flow, "results", observed=observed)
    return views


def source_rows(
    flow: Flow, source: Source, parsed: DataFrame, *, observed: bool = False
) -> tuple[DataFrame, DataFrame]:
    """A source's parsed rows with the marks of expectations, and its good rows, shaped."""
    marked = transforms.mark_unexpected(parsed, flow.expectations, source.name)
    if source is flow.source:
        marked = transforms.mark_uncomputable(marked, flow.transform)
    if observed and not source.quarantines:  # else the rows are counted where they are judged
        counts = transforms.bad_counts(source.format, transforms.quarantining(flow, source))
        marked = marked.observe(f"barnabas.{source.name}", *counts)
    rows = expected_rows(transforms.good_rows(marked), flow, source.name, observed=observed)
    if source is flow.source:
        rows = transforms.shape_rows(rows, flow.transform, without_uncomputable=True)
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
    """What a step does to its rows, in the order that `steps` describes."""
    rows = transforms.shape_rows(rows, step.transform)
    if step.watermark:
        rows = rows.withWatermark(step.watermark.time, step.watermark.delay)
    if step.deduplicate:
        rows = transforms.deduplicate_rows(rows, step.deduplicate)
    return transforms.aggregate_rows(rows, step.aggregate) if step.aggregate else rows


def run_sql(spark: SparkSession, text: str, views: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query over views; commands (INSERT, DROP and the like) are refused by Spark's parser."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # of classic sessions only
    parser.parseQuery(text)
    with temporary_views(spark, views):
        return spark.sql(text)


@contextlib.contextmanager
def temporary_views(spark: SparkSession, views: Mapping[str, DataFrame]) -> Iterator[None]:
    """Names for the frames, for as long as the block runs: flows that share a session must not see each other's."""
    for name, frame in views.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


def multiplies_rows(results: DataFrame) -> bool:
    """Whether one row becomes several, as by explode."""
    waiting = [results._jdf.queryExecution().analyzed()]  # of classic sessions only
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "Generate":
            return True
        waiting += _children(node)
    return False


def read_sources(results: DataFrame) -> list[str]:
    """The names of the sources in the order in which Spark's checkpoint and reports have them.

    A source that no step reads is left out; one that is joined with itself is there twice. Empty if the plan does not say.
    """
    names: list[str | None] = []

    def visit(node: Any) -> None:
        if node.nodeName() == "StreamingRelationV2":
            names.append(node.extraOptions().get(SOURCE_OPTION))
        for child in _children(node):
            visit(child)

    visit(results._jdf.queryExecution().analyzed())  # of classic sessions only
    known = [each for each in names if each is not None]
    return known if len(known) == len(names) else []


def stateful_operations(results: DataFrame) -> list[str]:
    """What Spark keeps state for, in the order of its plan, as texts that are equal as long as the state means the same.

    Spark itself compares only the types of what it kept. The texts have the operation with its groups, figures or condition, and how
    the columns of groups and keys are made; they have no filters, delays, and names of results.
    """
    found: list[str] = []
    waiting = [results._jdf.queryExecution().analyzed()]  # of classic sessions only
    while waiting:
        node = waiting.pop()
        if not node.isStreaming():
            continue
        children = _children(node)
        kind = node.nodeName()
        if kind in _KEEP_ROWS and (kind != "Join" or all(each.isStreaming() for each in children)):
            text = node.simpleString(_WHOLE).lstrip("~")  # which marks streams
            keys = {"Aggregate": "groupingExpressions", "Join": "condition"}.get(kind, "keys")
            ids = set(_ID.findall(str(getattr(node, keys)()) if kind != "Distinct" else text))
            # Sorted without the numbers of expressions, for these differ from run to run: 1000 comes before 999.
            made = sorted(_NOT_OF_STATE.sub("", each) for each in _definitions(children, ids))
            if kind == "Aggregate":
                types = [field.split(":", 1)[1] for field in _fields(node.schema().catalogString())]
                made.append(f"of {', '.join(types)}")
            found.append(_NOT_OF_STATE.sub("", "".join([text, *(f", {each}" for each in made)])))
        elif "WithState" in kind:
            found.append(kind)
        waiting += reversed(children)
    return found


def has_watermark(aggregated: DataFrame) -> bool:
    """Whether the groups of an aggregate, just made, have a time with a watermark: state is forgotten by it."""
    node = aggregated._jdf.queryExecution().analyzed()  # of classic sessions only
    while node.nodeName() != "Aggregate":
        if node.children().size() != 1:
            return False
        node = node.children().apply(0)
    return "-T" in str(node.groupingExpressions())


def _children(node: Any) -> list[Any]:
    """Those of a node of one of Spark's plans."""
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


def _fields(struct: str) -> list[str]:
    """``a:int`` and so on, of ``struct<a:int,...>``."""
    fields, depth = [""], 0
    for each in struct.removeprefix("struct<").removesuffix(">"):
        depth += (each in "<(") - (each in ">)")
        if each == "," and not depth:
            fields.append("")
        else:
            fields[-1] += each
    return fields


def _definitions(nodes: list[Any], ids: set[str]) -> set[str]:
    """How columns with these ids are made of those that were parsed."""
    found: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        waiting += _children(node)
        if node.nodeName() != "Project" or not ids & set(_MADE_ID.findall(node.simpleString(_WHOLE))):
            continue
        columns = node.projectList()
        for column in [columns.apply(at) for at in range(columns.size())]:
            text = column.toString()
            made, number = _MADE_ID.search(text), _ID.findall(text)
            if made and number[-1] in ids and column.getClass().getSimpleName() == "Alias":
                found.add(text)
                if f"{_PARSED}#" not in text:
                    ids |= set(number)
    return found


def output_mode(results: DataFrame) -> str:
    """How Spark is to give results: updated figures where it can, else rows that are final.

    A single aggregate can be updated. Spark wants final rows where nothing is aggregated, for sessions, for aggregates
    of aggregates, and where two streams are joined.
    """
    aggregates = 0
    final_only = False
    waiting = [results._jdf.queryExecution().analyzed()]  # of classic sessions only
    while waiting:
        node = waiting.pop()
        if not node.isStreaming():
            continue
        children = _children(node)
        kind = node.nodeName()
        if kind in ("Aggregate", "Distinct"):
            aggregates += 1
            final_only = final_only or "session_window" in node.simpleString(10_000)
        elif kind == "Join":
            final_only = final_only or all(each.isStreaming() for each in children)
        waiting += children
    return "update" if aggregates == 1 and not final_only else "append"
