"""Rows for which an expression of the flow raises, as a division by zero does, become
bad rows of their source.

So do those whose key one of the outputs cannot hold (`barnabas.pipelines.frames.keys`), as far as
rows are of single records.

Every expression of the steps that take records one by one
(`barnabas.pipelines.specification.row_steps`) is tried on the parsed rows, in their order: derived
columns, filters, choices of columns, and what figures are made of. A row goes as far as the filters
let it. Expressions that have a value for every row are not tried. Those with several values
(explode), and all behind them, cannot be tried.

A row without a time that gets as far as windows or sessions becomes a bad row, too: Spark
leaves it out without a word.
"""

import re
from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.pipelines.frames.attempts import attempted_value
from barnabas.pipelines.frames.expectations import is_met
from barnabas.pipelines.frames.keys import key_problem
from barnabas.pipelines.frames.plans import KEPT, aggregated_inputs, expressions_of, is_harmless
from barnabas.pipelines.frames.transforms import mark_rows, unmarked
from barnabas.pipelines.specification.row_steps import RowStep
from barnabas.pipelines.specification.spec import Aggregate, Expectation, Sink, Transform

__all__ = ["mark_uncomputable"]

_REACHED = "_barnabas_reached_"
_ATTEMPT = "_barnabas_attempt_"
_STAR = re.compile(r"((?:.*\.)?\s*)\*\s*(?:except\s*\(.*\)\s*)?", re.IGNORECASE | re.DOTALL)
"""All columns, of all there are or of a struct: ``*``, ``details.*``, ``* except (a, b)``."""


def mark_uncomputable(
    parsed: DataFrame,
    chains: Sequence[Sequence[RowStep]],
    drops: Sequence[Expectation] = (),
    sinks: Sequence[Sink] = (),
) -> DataFrame:
    """The rows with those marked for which an expression raises, or whose key a sink cannot hold.

    The other columns stay as they are. ``drops`` are expectations on the source's rows that leave
    rows out before all steps.
    """
    attempts = _Attempts(parsed, drops, sinks)
    for chain in chains:
        attempts.follow(chain)
    return attempts.marked()


class _Attempts:
    """The parsed rows with columns of attempts beside them."""

    def __init__(self, parsed: DataFrame, drops: Sequence[Expectation], sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._key_problems: list[Column] = []
        self._parsed = parsed
        self._rows = parsed
        self._drops = drops
        self._reasons: list[Column] = []
        self._timeless: list[Column] = []
        self._kept: dict[str, str] = {}
        """Columns of the parsed rows that have other values now, and under which
        name theirs are kept."""
        self._count = 0
        self._reached = ""

    def follow(self, chain: Sequence[RowStep]) -> None:
        """Try the expressions of a chain, as far as they can be tried."""
        self._rows = self._rows.withColumns({name: F.col(kept) for name, kept in self._kept.items()})
        self._reached = ""
        self._narrow(self._drops)
        try:
            for step in chain:
                self._transform(step.place, step.transform)
                self._narrow(step.drops)
                if step.aggregate:
                    self._aggregate(f"{step.place}.aggregate".lstrip("."), step.aggregate)
            self._keys(chain[-1].key)
        except PySparkException:
            # It has several values, or Spark refuses it and says so when the flow is made.
            return

    def marked(self) -> DataFrame:
        """The parsed rows with their marks."""
        if not self._reasons and not self._timeless and not self._key_problems:
            return self._parsed
        names = self._parsed.columns
        back = {name: F.col(kept).alias(name) for name, kept in self._kept.items()}
        rows = self._rows
        marks = ((self._reasons, "EXPRESSION"), (self._timeless, "NO_TIME"), (self._key_problems, "KEY"))
        for reasons, error in marks:
            if reasons:
                rows = mark_rows(rows, F.coalesce(*reasons), error)
        return rows.select(*[back.get(name, F.col(name)) for name in names])

    def _asked(self) -> Column:
        return F.col(self._reached) if self._reached else unmarked()

    def _transform(self, field: str, how: Transform) -> None:
        is_first = field == "transform"
        for name, text in how.derive.items():
            what = f"the column {name}" if is_first else f"{field}.derive.{name}"
            self._assign({name: self._tried(what, text, F.expr(text))})
        if how.where:
            kept = self._tried("where" if is_first else f"{field}.where", how.where, F.expr(how.where))
            self._reach(F.coalesce(kept.cast("boolean"), F.lit(False)))
        if how.select:
            found: dict[str, Column] = {}
            for text in how.select:
                found |= self._selected(f"{field}.select", text)
            self._assign(found)

    def _selected(self, what: str, text: str) -> dict[str, Column]:
        """The columns that an expression of ``select`` gives."""
        names = self._rows.select(F.expr(text)).columns
        if star := _STAR.fullmatch(text):
            inner = star[1].lstrip()
            return {name: F.expr(f"{inner}`{name}`") for name in names} if inner else {}
        return {names[0]: self._tried(what, text, F.expr(text))}

    def _aggregate(self, field: str, how: Aggregate) -> None:
        inputs = aggregated_inputs([self._rows.groupBy().agg(F.expr(text)) for text in how.compute.values()])
        for (name, text), columns in zip(how.compute.items(), inputs, strict=True):
            for column in columns:
                self._tried(f"{field}.compute.{name}", text, column)
        if how.time:
            name = self._new(_REACHED)
            self._rows = self._rows.withColumn(name, self._asked() & F.col(how.time).isNull())
            reason = F.lit(f"{how.time}, the time of {field}, is null: a row without a time is in no window")
            self._timeless.append(F.when(F.col(name), reason))

    def _keys(self, key: Sequence[str]) -> None:
        """Mark rows whose keys, columns of the rows as they are now, a sink cannot hold."""
        known = [name for name in key if name in self._rows.columns]  # `check` reports the others
        problem = key_problem(known, self._rows.schema, self._sinks)
        if problem is not None:
            name = self._new(_ATTEMPT)
            self._rows = self._rows.withColumn(name, F.when(self._asked(), problem))
            self._key_problems.append(F.col(name))

    def _narrow(self, drops: Sequence[Expectation]) -> None:
        for each in drops:
            self._reach(is_met(each, self._asked()))

    def _reach(self, condition: Column) -> None:
        """From here on only rows that fulfil the condition, and reached this point,
        are looked at."""
        name = self._new(_REACHED)
        self._rows = self._rows.withColumn(name, self._asked() & condition)
        self._reached = name

    def _tried(self, what: str, text: str, expression: Column) -> Column:
        """The expression's value; a row for which it raises gets its reason.

        Raises `PySparkException` if it cannot be tried."""
        name = self._new(_ATTEMPT)
        tried = self._rows.withColumn(name, attempted_value(self._asked(), expression))
        if all(map(is_harmless, expressions_of(self._rows.select(expression)))):
            return expression
        self._rows = tried
        reason = F.lit(f"{what} cannot be computed: {text}")
        self._reasons.append(F.when(self._asked() & F.col(name).isNull(), reason))
        return F.col(f"{name}.v")

    def _assign(self, columns: Mapping[str, Column]) -> None:
        """Give columns other values; those of the parsed rows are kept."""
        new = {name.lower() for name in columns}
        kept = {
            name: f"{KEPT}{at}" for at, name in enumerate(self._parsed.columns) if name.lower() in new - self._lower()
        }
        self._rows = self._rows.withColumns({alias: F.col(name) for name, alias in kept.items()})
        self._kept |= kept
        self._rows = self._rows.withColumns(dict(columns))

    def _lower(self) -> set[str]:
        return {name.lower() for name in self._kept}

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"
