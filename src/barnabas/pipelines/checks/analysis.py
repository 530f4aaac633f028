"""``barnabas pipeline check``: what only Spark can judge of a flow, before it runs
and without a cluster.

Every type, expression, column and time format of the file goes through Spark's own parser and
analyser, one after the other, on a stream without rows. So all problems are found in one run, as a
compiler finds them, each with its field. A column whose expression is wrong is unknown from then on
but does not make those after it wrong.
"""

import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import StructType

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.pipelines.dashboard.queries import query_problem
from barnabas.pipelines.frames import transforms
from barnabas.pipelines.frames.keys import key_type_problem
from barnabas.pipelines.frames.ordering import order_type_problem
from barnabas.pipelines.frames.plans import (
    expressions_of,
    has_watermark,
    implicit_casts,
    may_raise,
    multiplies_rows,
    output_mode,
    stateful_operations,
)
from barnabas.pipelines.frames.views import run_sql, step_rows
from barnabas.pipelines.outputs.declared import Sink
from barnabas.pipelines.outputs.registry import is_table, kind_of, table_kind_of
from barnabas.pipelines.specification.model import MODEL_VERSION, Model
from barnabas.pipelines.specification.row_steps import aggregates_records, takes_records
from barnabas.pipelines.specification.spec import (
    POSITION,
    Aggregate,
    Flow,
    FlowStep,
    Format,
    Lookup,
    Source,
    Transform,
    Watermark,
)

__all__ = ["Analysis", "Problem", "analyse_flow", "find_problems", "without_spark_logging"]

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_DISTINCT = re.compile(r"\(\s*distinct\b", re.IGNORECASE)
_TAIL = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_BACKTICKED = re.compile(r"`([^`]*)`")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """A field of the file, such as ``transform.derive.late``, and what is wrong with it."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """What Spark makes of a flow."""

    problems: list[Problem]
    """All that is wrong with it, in the order of the data; an empty list for a flow
    that Spark will take."""
    warnings: list[Problem]
    """A declaration that is correct and may not be what is meant, or that will end the
    flow when such rows come."""
    operations: list[str]
    """The `stateful_operations` of a flow with which nothing is wrong."""


def find_problems(spark: SparkSession, flow: Flow) -> list[Problem]:
    """The problems of `analyse_flow`."""
    return analyse_flow(spark, flow).problems


def analyse_flow(spark: SparkSession, flow: Flow) -> Analysis:
    """All that can be said about a flow without its data."""
    with tempfile.TemporaryDirectory(prefix="barnabas-check-") as folder, without_spark_logging():
        check = _Check(spark, flow, folder)
        return Analysis(check.run(), list(dict.fromkeys(check.warnings)), check.operations)


@contextlib.contextmanager
def without_spark_logging() -> Iterator[None]:
    """PySpark logs each analysis error with the JVM's stack trace on standard error.

    The error itself is enough."""
    # Their class is PySpark's own, with which PySpark calls them; a logger keeps the
    # class that it was made with.
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [each.disabled for each in loggers]
    for each in loggers:
        each.disabled = True
    try:
        yield
    finally:
        for each, disabled in zip(loggers, before, strict=True):
            each.disabled = disabled


class _Check:
    """One pass over a flow."""

    def __init__(self, spark: SparkSession, flow: Flow, folder: str) -> None:
        self._spark = spark
        self._flow = flow
        self._folder = folder
        self._problems: list[Problem] = []
        self._views: dict[str, DataFrame] = {}
        self._broken: set[str] = set()
        self.warnings: list[Problem] = []
        self.operations: list[str] = []

    def run(self) -> list[Problem]:
        flow = self._flow
        for source in flow.sources:
            self._views[source.name] = self._source(source)
        for lookup in flow.lookups:
            self._lookup(lookup)
        previous = flow.source.name
        for number, step in enumerate(flow.steps):
            rows = self._step(f"steps[{number}]", step, previous)
            if rows is None:
                self._broken.add(step.name)
            else:
                self._views[step.name] = self._expected(rows, step.name)
            previous = step.name
        results = self._views.get(previous)
        if results is not None and flow.aggregate:
            results = self._aggregate(
                "aggregate", results, flow.aggregate, ends=not aggregates_records(flow, flow.aggregate)
            )
        if results is not None:
            results = self._expected(transforms.visible_columns(results), "results")
            self._sinks(results)
            if not self._problems:
                self._start(results)
                self.operations = stateful_operations(results)
        return self._problems

    def _source(self, source: Source) -> DataFrame:
        field = source.field
        how = self._format(f"{field}.format", source.format)
        # A stream of files from an empty folder: it has no rows, and needs no cluster.
        schema = transforms.record_schema(source)
        records = self._spark.readStream.schema(schema).format("parquet").load(self._folder)
        parsed = transforms.parse_records(records, how, source.record_columns)
        rows = self._expected(transforms.good_rows(parsed), source.name)
        if source is self._flow.source:
            rows = self._transform("transform", rows, self._flow.transform, ends=False)
        return self._watermark(field, rows, source.watermark)

    def _format(self, field: str, how: Format) -> Format:
        """The format with the columns that are right; the others count as strings."""
        wrong = self._wrong_types(f"{field}.columns", how.columns)
        for name, pattern in (("timestamp_format", how.timestamp_format), ("date_format", how.date_format)):
            if pattern:
                query = "SELECT try_to_timestamp('2026-01-31', :pattern) FROM VALUES (1)"
                self._try(f"{field}.{name}", partial(self._collect, query, {"pattern": pattern}))
        return replace(how, columns={**how.columns, **dict.fromkeys(wrong, "string")})

    def _collect(self, query: str, values: dict[str, Any]) -> object:
        return self._spark.sql(query, values).collect()

    def _wrong_types(self, field: str, columns: Mapping[str, str]) -> list[str]:
        """The names of columns whose types are none."""
        ddl = [f"`{name}` {type_name}" for name, type_name in columns.items()]
        if _whole(partial(StructType.fromDDL, ", ".join(ddl))) is not None:
            return []
        parts = zip(columns, ddl, strict=True)
        return [name for name, each in parts if self._try(f"{field}.{name}", partial(StructType.fromDDL, each)) is None]

    def _lookup(self, lookup: Lookup) -> None:
        from barnabas.pipelines.frames.lookup import open_lookup  # which imports clients of brokers

        field = f"tables.{lookup.name}"
        rows = None
        if not self._wrong_types(f"{field}.columns", lookup.columns):
            rows = self._try(field, lambda: open_lookup(self._spark, lookup))
        if rows is None:
            self._broken.add(lookup.name)
        else:
            self._views[lookup.name] = rows

    def _step(self, field: str, step: FlowStep, previous: str) -> DataFrame | None:
        rows = self._rows_of_step(field, step, previous)
        if rows is None:
            return None
        ends = not takes_records(self._flow, field)
        rows = self._watermark(field, self._transform(field, rows, step.transform, ends=ends), step.watermark)
        known = rows
        right = [
            name
            for name in step.deduplicate
            if self._try(f"{field}.deduplicate", partial(_select, known, f"`{name}`"), known) is not None
        ]
        if right and len(right) == len(step.deduplicate):
            unique = self._try(f"{field}.deduplicate", lambda: transforms.deduplicate_rows(known, right), known)
            rows = rows if unique is None else unique
        if step.aggregate is None:
            return rows
        return self._aggregate(f"{field}.aggregate", rows, step.aggregate, ends=ends or bool(step.deduplicate))

    def _rows_of_step(self, field: str, step: FlowStep, previous: str) -> DataFrame | None:
        if step.sql:
            text = step.sql
            found: DataFrame | None = self._try(f"{field}.sql", lambda: run_sql(self._spark, text, self._views))
            self._look_at(f"{field}.sql", found, whole=True, ends=True)
            return found
        inputs = step.inputs(previous) if step.function else (step.of or previous,)
        if any(name in self._broken for name in inputs):
            return None
        if step.function is None:
            return self._views[inputs[0]]
        try:
            return step_rows(self._spark, step, self._views, previous)
        except PySparkException as error:
            self._refused(f"{field}.function", error, [])
        except Exception as error:  # the user's function may raise anything
            self._problems.append(Problem(f"{field}.function", f"{type(error).__name__}: {error}"))
        return None

    def _watermark(self, field: str, rows: DataFrame, watermark: Watermark | None) -> DataFrame:
        if watermark is None:
            return rows

        def mark() -> DataFrame:
            rows.select(F.col(watermark.time))
            marked = rows.withWatermark(watermark.time, watermark.delay)
            _ = marked.schema
            return marked

        marked: DataFrame | None = self._try(f"{field}.watermark", mark, rows)
        return rows if marked is None else marked

    def _expected(self, rows: DataFrame, view: str) -> DataFrame:
        for number, each in enumerate(self._flow.expectations):
            if each.of == view:
                field = f"expectations[{number}].check"
                self._look_at(field, self._try(field, partial(_filter, rows, each.check), rows))
        return rows

    def _look_at(self, field: str, made: DataFrame | None, *, whole: bool = False, ends: bool = False) -> None:
        """Note what may surprise in the last operation of a frame, or in all since
        the views that it reads.

        ``ends`` says that a row for which an expression raises ends the flow; behind an
        explode it does so everywhere.
        """
        if made is None:
            return
        expressions = expressions_of(made, whole=whole)
        for each in implicit_casts(expressions):
            if each.fits is False:
                text = f"takes the text {each.text} for a value of the type {each.kind}, which it is not: it cannot be computed"
                self.warnings.append(Problem(field, text))
            elif each.fits is None:
                text = (
                    f"takes texts, {each.text}, for values of the type {each.kind}, and cannot be computed for others"
                )
                self.warnings.append(Problem(field, f"{text}: write a cast or try_cast if that is meant"))
        for part in may_raise(expressions) if ends or multiplies_rows(made) else []:
            text = f"ends the flow with the first row for which {part} cannot be computed"
            advice = "a row is no single record here that could be put aside; take try_divide, try_cast and the like"
            self.warnings.append(Problem(field, f"{text}: {advice}"))

    def _transform(self, field: str, rows: DataFrame, transform: Transform, *, ends: bool) -> DataFrame:
        for name, expression in transform.derive.items():
            derived = self._try(f"{field}.derive.{name}", partial(_derive, rows, name, expression), rows)
            self._look_at(f"{field}.derive.{name}", derived, ends=ends)
            rows = rows.withColumn(name, F.lit(None)) if derived is None else derived
        if transform.where:
            kept = self._try(f"{field}.where", partial(_filter, rows, transform.where), rows)
            self._look_at(f"{field}.where", kept, ends=ends)
            rows = rows if kept is None else kept
        if transform.select:
            right = [
                text
                for text in transform.select
                if self._try(f"{field}.select", partial(_select, rows, text), rows) is not None
            ]
            rows = rows.select(*map(F.expr, right), *transforms.position_of(rows))
            self._look_at(f"{field}.select", rows, ends=ends)
        return rows

    def _aggregate(self, field: str, rows: DataFrame, how: Aggregate, *, ends: bool) -> DataFrame | None:
        result = _whole(partial(transforms.aggregate_rows, rows, how))
        for name, expression in (how.compute if result is not None else {}).items():
            self._look_at(f"{field}.compute.{name}", rows.groupBy().agg(F.expr(expression)), ends=ends)
        if result is None:
            self._aggregate_parts(field, rows, how)
        elif (how.window or how.session) and not has_watermark(result):
            text = (
                f"is missing: {how.time} has none in these rows, only in others; without it state would grow for ever"
            )
            self._problems.append(Problem(f"{field}.watermark", text))
        return result

    def _aggregate_parts(self, field: str, rows: DataFrame, how: Aggregate) -> None:
        """Find the part of an aggregate that is wrong."""
        known = [
            name for name in how.group_by if self._try(f"{field}.group_by", partial(_select, rows, f"`{name}`"), rows)
        ]
        right = replace(how, group_by=tuple(known), compute={})
        if (how.window or how.session) and how.time and not self._window(field, rows, how.time, how):
            right = replace(right, window=None, slide=None, session=None, time=None, watermark=None)
        if not right.group_by and not right.window and not right.session:
            # A column to group by lets the figures be checked anyway.
            right = replace(right, group_by=tuple(rows.columns[:1]))
        for name, expression in how.compute.items():
            one = replace(right, compute={name: expression})
            if self._try(f"{field}.compute.{name}", partial(transforms.aggregate_rows, rows, one), rows):
                right.compute[name] = expression
        if right == how:  # the parts are right, and their combination is not
            self._try(field, partial(transforms.aggregate_rows, rows, how), rows)

    def _window(self, field: str, rows: DataFrame, time: str, how: Aggregate) -> bool:
        """Whether windows can be cut from the column of event time."""
        steps: list[tuple[str, Callable[[], object]]] = [("time", lambda: rows.select(F.col(time)))]
        if how.watermark:
            steps.append(("time", lambda: rows.withWatermark(time, how.watermark or "").schema))
        if how.session:
            steps.append(("session", lambda: rows.select(F.session_window(time, how.session or ""))))
        else:
            steps.append(("window", lambda: rows.select(F.window(time, how.window or ""))))
            steps.append(("slide", lambda: rows.select(F.window(time, how.window or "", how.slide))))
        return all(self._try(f"{field}.{name}", act, rows) is not None for name, act in steps)

    def _sinks(self, results: DataFrame) -> None:
        types = transforms.field_types(results.schema)
        for name, count in Counter(results.columns).items():
            if count > 1:
                self._problems.append(
                    Problem("sinks", f"the results have {count} columns {name}; rename or leave out one")
                )
        if self._flow.model:
            types |= self._model(results, self._flow.model)
        # A column whose expression is wrong has no type; that is reported already.
        if not self._problems and any(map(is_table, self._flow.sinks)):
            self._check_storable(types)
        for number, sink in enumerate(self._flow.sinks):
            for name in getattr(sink, "text", ()):
                self._must_be_column(f"sinks[{number}].text", name, types)
            self._folders(f"sinks[{number}].partition_by", sink, types)
            field = f"sinks[{number}].key"
            if sink.key == POSITION and not set(POSITION) <= set(types):
                text = f"is missing: the results have no position in a topic; take columns from {', '.join(types)}"
                self._problems.append(Problem(field, text))
                continue
            if sink.key == POSITION and kind_of(sink).tells_positions_apart and multiplies_rows(results):
                text = "is missing: explode makes several rows of one record, so its position does not tell them apart"
                self._problems.append(Problem(field, text))
            self._key(field, sink.key, results, types)
            self._order(f"sinks[{number}].order_by", sink.order_by, types)
            if condition := getattr(sink, "delete_when", None):
                self._try(f"sinks[{number}].delete_when", partial(results.where, condition), results)

        self._charts(types)

    def _folders(self, field: str, sink: Sink, types: dict[str, str]) -> None:
        for name in kind_of(sink).folders(sink):
            self._must_be_column(field, name, types)
            if problem := table_kind_of(sink).folder_problem(types.get(name, "string")):
                self._problems.append(Problem(field, f"names {name}, which {problem}"))

    def _key(self, field: str, key: Sequence[str], results: DataFrame, types: dict[str, str]) -> None:
        for name in key:
            if name not in types:
                self._add(field, f"names {name}, which is no column of the results", name, types)
            elif name in results.columns and (problem := key_type_problem(results.schema[name].dataType)):
                self._problems.append(Problem(field, f"names {name}, which {problem}"))

    def _order(self, field: str, order_by: str | None, types: dict[str, str]) -> None:
        if order_by is None:
            return
        self._must_be_column(field, order_by, types)
        if problem := order_type_problem(types.get(order_by, "int")):
            self._problems.append(Problem(field, problem))

    def _charts(self, types: dict[str, str]) -> None:
        for number, chart in enumerate(self._flow.charts):
            if chart.query is None and chart.type != "table":
                for part, column in chart.columns:
                    self._must_be_column(f"charts[{number}].{part}", column, types)
            elif chart.query and (problem := query_problem(chart, list(types))):
                self._problems.append(Problem(f"charts[{number}].{problem[0]}", problem[1]))

    def _check_storable(self, types: dict[str, str]) -> None:
        """Tables have no columns of some types that expressions easily have."""
        for name, kind in types.items():
            if kind.startswith("interval"):
                text = (
                    f"cannot hold {name}, which is an {kind}; take a number, such as timestampdiff(SECOND, begin, end)"
                )
                self._problems.append(Problem("sinks", text))
            elif kind == "void":
                self._problems.append(
                    Problem("sinks", f"cannot hold {name}, which has no type; cast it: cast(null as string)")
                )

    def _model(self, results: DataFrame, how: Model) -> dict[str, str]:
        """Check what the model learns from; the columns that scoring adds."""
        types = transforms.field_types(results.schema)
        for field, names in (("numbers", how.numbers), ("categories", how.categories)):
            for name in names:
                self._must_be_column(f"model.{field}", name, types)
        self._try("model.label", partial(_select, results, how.label), results)
        if how.test:
            self._try("model.test", partial(_filter, results, how.test), results)
        if how.score in types:
            self._problems.append(Problem("model.score", f"is {how.score}, which is a column of the results already"))
        return {how.score: "double", MODEL_VERSION: "int"}

    def _must_be_column(self, field: str, name: str, types: dict[str, str]) -> None:
        if name not in types:
            self._add(field, f"names {name}, which is no column of the results", name, types)

    def _start(self, results: DataFrame) -> None:
        """Start the query on its empty stream: some operations exist for tables, but
        not for streams."""

        def act() -> object:
            writer = results.writeStream.outputMode(output_mode(results))
            writer = writer.foreachBatch(lambda *_: None).trigger(availableNow=True)
            with tempfile.TemporaryDirectory(prefix="barnabas-check-") as checkpoint:
                query = writer.option("checkpointLocation", checkpoint).start()
                query.awaitTermination()
            return query

        last = f"steps[{len(self._flow.steps) - 1}]" if self._flow.steps else "transform"
        before = len(self._problems)
        self._try("aggregate" if self._flow.aggregate else last, act)
        if any(each.message.startswith("distinct aggregations") for each in self._problems[before:]):
            self._problems[before:] = self._distinct_figures() or self._problems[before:]

    def _distinct_figures(self) -> list[Problem]:
        """The figures that streams do not have, for Spark names none."""
        aggregates = {f"steps[{number}].aggregate": step.aggregate for number, step in enumerate(self._flow.steps)}
        aggregates["aggregate"] = self._flow.aggregate
        text = (
            "counts distinct values, which streams cannot: take approx_count_distinct(...), or size(collect_set(...)), which is "
            "exact and keeps all values in the state"
        )
        return [
            Problem(f"{field}.compute.{name}", text)
            for field, how in aggregates.items()
            for name, expression in (how.compute if how else {}).items()
            if _DISTINCT.search(expression)
        ]

    # Problems

    def _try(self, field: str, act: Callable[[], Any], rows: DataFrame | None = None) -> Any:
        """What ``act`` gives; None, and the problem noted, if Spark refuses.

        ``rows`` are what an expression may use."""
        try:
            return act()
        except PySparkException as error:
            self._refused(field, error, rows.columns if rows is not None else [])
        except BarnabasError as error:
            self._problems.append(Problem(field, str(error)))
        return None

    def _refused(self, field: str, error: PySparkException, columns: Sequence[str]) -> None:
        condition = error.getCondition() or ""
        parameters = error.getMessageParameters() or {}
        if condition.startswith("UNRESOLVED_COLUMN"):
            name = ".".join(_BACKTICKED.findall(parameters.get("objectName", "")))
            columns = columns or _BACKTICKED.findall(parameters.get("proposal", ""))
            self._add(field, f"there is no column {name}", name, [each for each in columns if each not in POSITION])
        elif condition == "UNRESOLVED_ROUTINE":
            name = ".".join(_BACKTICKED.findall(parameters.get("routineName", "")))
            functions = [row[0] for row in self._spark.sql("SHOW FUNCTIONS").collect()]
            self._add(field, f"there is no function {name}", name, functions)
        elif condition == "TABLE_OR_VIEW_NOT_FOUND":
            name = ".".join(_BACKTICKED.findall(parameters.get("relationName", "")))
            if name not in self._broken:  # what is wrong with that one is reported already
                self._add(field, f"there is no view {name} before this step", name, list(self._views))
        else:
            self._problems.append(Problem(field, _plain(str(error)) + _cast_advice(condition, parameters)))

    def _add(self, field: str, message: str, name: str, known: Sequence[str] | dict[str, str]) -> None:
        hint = did_you_mean(name.lower(), known)
        if not hint and len(known) <= 30:
            hint = f"; there are {', '.join(known)}"
        self._problems.append(Problem(field, message + hint))


def _whole(act: Callable[[], T]) -> T | None:
    """What Spark makes of something as a whole; None if it refuses.

    Parts of a correct expression need no questions of their own."""
    try:
        return act()
    except (PySparkException, BarnabasError):
        return None


def _derive(rows: DataFrame, name: str, expression: str) -> DataFrame:
    return rows.withColumn(name, F.expr(expression))


def _filter(rows: DataFrame, expression: str) -> DataFrame:
    return rows.where(F.expr(expression))


def _select(rows: DataFrame, expression: str) -> DataFrame:
    return rows.select(F.expr(expression))


def _cast_advice(condition: str, parameters: Mapping[str, str]) -> str:
    """What to take in place of a cast of a text to an array, a struct or a map."""
    source, target = (parameters.get(name, "").strip('"') for name in ("srcType", "targetType"))
    if not condition.startswith("DATATYPE_MISMATCH.CAST") or source != "STRING":
        return ""
    if not target.startswith(("ARRAY", "STRUCT", "MAP")):
        return ""
    split = "; split makes an array of the parts of a text" if target.startswith("ARRAY") else ""
    return f" To read JSON from a text take from_json(text, '{target}'){split}"


def _plain(text: str) -> str:
    """Spark's message without its code, its SQLSTATE and the plan that follows."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    plain = _TAIL.sub("", _CONDITION.sub("", first)).rstrip("; ")
    return plain[:1].lower() + plain[1:] if plain[1:2].islower() else plain
