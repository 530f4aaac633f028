"""Expectations: conditions that rows of a view should fulfil, counted in every micro-batch.

A condition that is null is not fulfilled. ``warn`` counts, ``drop`` leaves the row out, ``fail``
ends the flow before the micro-batch reaches a sink. ``quarantine`` makes a source's row a bad one
(`transforms.mark_unexpected`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.pipelines.frames.attempts import attempted_value, every_row
from barnabas.pipelines.specification.spec import Expectation, Flow

__all__ = ["expected_rows", "is_met"]

_STUCK = (
    "No row of its micro-batch is in a sink, and the next run ends here, too: correct the check, take another on_fail, or go past "
    "the record with `barnabas pipeline rewind FILE --to OFFSETS --yes`"
)


def is_met(expectation: Expectation, asked: Column) -> Column:
    """Whether a row fulfils the condition; never null.

    One for which it cannot be computed, or that is not asked, does not."""
    return F.coalesce(attempted_value(asked, F.expr(expectation.check).cast("boolean"))["v"], F.lit(False))


def expected_rows(rows: DataFrame, flow: Flow, view: str, *, observed: bool) -> DataFrame:
    """The rows of a view after its expectations.

    Counts of those not met are observed as ``barnabas.expect.VIEW``."""
    ours = [each for each in flow.expectations if each.of == view and each.on_fail != "quarantine"]
    if not ours:
        return rows
    asked = every_row(rows)
    if observed:
        counts = [F.count_if(~is_met(each, asked)).alias(each.name) for each in ours]
        rows = rows.observe(f"barnabas.expect.{view}", *counts)
    for each in ours:
        if each.on_fail == "drop":
            rows = rows.where(is_met(each, asked))
        elif each.on_fail == "fail":
            text = f"the expectation {each.name} is not met: {each.check}"
            row = F.to_json(F.struct(*rows.columns))
            broken = F.raise_error(F.concat(F.lit(f"{text}; the row is "), row, F.lit(f". {_STUCK}")))
            rows = rows.where(F.when(is_met(each, asked), True).otherwise(broken.cast("boolean")))
    return rows
