"""``barnabas pipeline check``: what only Spark can judge of a flow, before it runs and without a cluster.

Every type, expression, column and time format of the file goes through Spark's own parser and analyser, one after the
other, on a stream without rows. So all problems are found in one run, as a compiler finds them, each with its field.
A column whose expression is wrong is unknown from then on but does not make those after it wrong.
"""

import contextlib
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.base.hints import did_you_mean
from barnabas.pipelines import transforms
from barnabas.pipelines.spec import POSITION, Aggregate, Flow, Format

__all__ = ["Problem", "find_problems", "without_spark_logging"]

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_TAIL = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_BACKTICKED = re.compile(r"`([^`]*)`")


@dataclass(frozen=True, slots=True)
class Problem:
    """A field of the file, such as ``transform.derive.late``, and what is wrong with it."""

    field: str
    message: str


def find_problems(spark: SparkSession, flow: Flow) -> list[Problem]:
    """All that is wrong with the flow, in the order of the data; an empty list for a flow that Spark will take."""
    with tempfile.TemporaryDirectory(prefix="barnabas-check-") as folder, without_spark_logging():
        return _Check(spark, flow, folder).run()


@contextlib.contextmanager
def without_spark_logging() -> Iterator[None]:
    """PySpark logs each analysis error with the JVM's stack trace on standard error; the error itself is enough."""
    loggers = [logging.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
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

    def run(self) -> list[Problem]:
        how = self._format(self._flow.source.format)
        # A stream of files from an empty folder: it has no rows, and needs no cluster.
        records = self._spark.readStream.schema(transforms.RECORD_SCHEMA).format("parquet").load(self._folder)
        rows = transforms.good_rows(transforms.parse_records(records, how))
        rows = self._transform(rows)
        results = self._aggregate(rows, self._flow.aggregate) if self._flow.aggregate else rows
        if results is not None:
            self._sinks(results)
            if not self._problems:
                self._start(results)
        return self._problems

    def _format(self, how: Format) -> Format:
        """The format with the columns that are right; the others count as strings."""
        columns = dict(how.columns)
        for name, type_name in how.columns.items():
            ddl = f"`{name}` {type_name}"
            field = f"source.format.columns.{name}"
            if self._try(field, partial(self._spark.createDataFrame, [], ddl)) is None:
                columns[name] = "string"
        if how.timestamp_format:
            pattern = F.lit(how.timestamp_format)
            parsed = F.try_to_timestamp(F.lit("2026-01-31"), pattern)
            self._try("source.format.timestamp_format", lambda: self._spark.range(1).select(parsed).collect())
        return replace(how, columns=columns)

    def _transform(self, rows: DataFrame) -> DataFrame:
        transform = self._flow.transform
        for name, expression in transform.derive.items():
            derived = self._try(f"transform.derive.{name}", partial(_derive, rows, name, expression), rows)
            rows = rows.withColumn(name, F.lit(None)) if derived is None else derived
        if transform.where:
            rows = self._try("transform.where", partial(_filter, rows, transform.where), rows) or rows
        if transform.select:
            right = [
                text
                for text in transform.select
                if self._try("transform.select", partial(_select, rows, text), rows) is not None
            ]
            rows = rows.select(*map(F.expr, right), *POSITION)
        return rows

    def _aggregate(self, rows: DataFrame, how: Aggregate) -> DataFrame | None:
        known = [
            name for name in how.group_by if self._try("aggregate.group_by", partial(_select, rows, f"`{name}`"), rows)
        ]
        right = replace(how, group_by=tuple(known), compute={})
        if how.window and how.time and how.watermark and not self._window(rows, how.time, how):
            right = replace(right, window=None, slide=None)
        if not right.group_by and not right.window:
            right = replace(right, group_by=POSITION[:1])  # so that the figures can still be checked
        for name, expression in how.compute.items():
            one = replace(right, compute={name: expression})
            if self._try(f"aggregate.compute.{name}", partial(transforms.aggregate_rows, rows, one), rows):
                right.compute[name] = expression
        return transforms.aggregate_rows(rows, how) if right == how else None

    def _window(self, rows: DataFrame, time: str, how: Aggregate) -> bool:
        """Whether windows can be cut from the column of event time."""
        steps: list[tuple[str, Callable[[], object]]] = [
            ("time", lambda: rows.select(F.col(time))),
            ("time", lambda: rows.withWatermark(time, how.watermark or "").schema),
            ("window", lambda: rows.select(F.window(time, how.window or ""))),
            ("slide", lambda: rows.select(F.window(time, how.window or "", how.slide))),
        ]
        return all(self._try(f"aggregate.{field}", act, rows) is not None for field, act in steps)

    def _sinks(self, results: DataFrame) -> None:
        types = transforms.field_types(results.schema)
        for number, sink in enumerate(self._flow.sinks):
            for name in sink.key:
                if name not in types:
                    self._add(f"sinks[{number}].key", f"names {name}, which is no column of the results", name, types)

    def _start(self, results: DataFrame) -> None:
        """Start the query on its empty stream: some operations exist for tables, but not for streams."""

        def act() -> object:
            writer = results.writeStream.outputMode("update" if self._flow.aggregate else "append")
            writer = writer.foreachBatch(lambda *_: None).trigger(availableNow=True)
            with tempfile.TemporaryDirectory(prefix="barnabas-check-") as checkpoint:
                query = writer.option("checkpointLocation", checkpoint).start()
                query.awaitTermination()
            return query

        self._try("aggregate" if self._flow.aggregate else "transform", act)

    # Problems

    def _try(self, field: str, act: Callable[[], Any], rows: DataFrame | None = None) -> Any:
        """What ``act`` gives; None, and the problem noted, if Spark refuses. ``rows`` are what an expression may use."""
        try:
            return act()
        except PySparkException as error:
            self._refused(field, error, rows.columns if rows is not None else [])
            return None

    def _refused(self, field: str, error: PySparkException, columns: Sequence[str]) -> None:
        condition = error.getCondition() or ""
        parameters = error.getMessageParameters() or {}
        if condition.startswith("UNRESOLVED_COLUMN"):
            name = ".".join(_BACKTICKED.findall(parameters.get("objectName", "")))
            self._add(field, f"there is no column {name}", name, [each for each in columns if each not in POSITION])
        elif condition == "UNRESOLVED_ROUTINE":
            name = ".".join(_BACKTICKED.findall(parameters.get("routineName", "")))
            functions = [row[0] for row in self._spark.sql("SHOW FUNCTIONS").collect()]
            self._add(field, f"there is no function {name}", name, functions)
        else:
            self._problems.append(Problem(field, _plain(str(error))))

    def _add(self, field: str, message: str, name: str, known: Sequence[str] | dict[str, str]) -> None:
        hint = did_you_mean(name.lower(), known)
        if not hint and len(known) <= 30:
            hint = f"; there are {', '.join(known)}"
        self._problems.append(Problem(field, message + hint))


def _derive(rows: DataFrame, name: str, expression: str) -> DataFrame:
    return rows.withColumn(name, F.expr(expression))


def _filter(rows: DataFrame, expression: str) -> DataFrame:
    return rows.where(F.expr(expression))


def _select(rows: DataFrame, expression: str) -> DataFrame:
    return rows.select(F.expr(expression))


def _plain(text: str) -> str:
    """Spark's message without its code, its SQLSTATE and the plan that follows."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    plain = _TAIL.sub("", _CONDITION.sub("", first)).rstrip("; ")
    return plain[:1].lower() + plain[1:] if plain[1:2].islower() else plain
