"""Expressions that may raise, tried: Spark's SQL is strict (ANSI), so a division by zero in
one row would end a query.

SQL has ``try_divide``, ``try_cast`` and the like for some expressions. Spark's own
``TryEval`` takes any.
"""

from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

__all__ = ["attempted", "attempted_value", "every_row"]

_LARGEST_HASH = 2**31 - 1
_HASHED = (BooleanType, DateType, StringType, TimestampNTZType, TimestampType)


def attempted(expression: Column) -> Column:
    """The expression's value; null where it raises."""
    context: Any = SparkContext._active_spark_context  # as `pyspark.sql.functions` has it
    sql, column = context._jvm.org.apache.spark.sql, cast(Any, expression)
    utilities = sql.classic.ExpressionUtils  # of classic sessions only
    tried = sql.catalyst.expressions.TryEval(utilities.expression(column._jc))
    return cast(Column, type(column)(utilities.column(tried)))


def attempted_value(condition: Column, expression: Column) -> Column:
    """A struct with the value as ``v``.

    Null where the expression raises, or the condition is not fulfilled. The condition has a
    part in it: Spark computes what two expressions have in common once, and before them, so
    outside `attempted`, but for what stands behind a condition. The same holds for what one
    expression has twice.
    """
    return F.when(condition, attempted(F.struct(expression.alias("v"))))


def every_row(rows: DataFrame) -> Column:
    """A condition for `attempted_value` that all rows fulfil.

    Spark must not know that they do: it removes constant ones."""
    numbers = [field.name for field in rows.schema.fields if isinstance(field.dataType, NumericType)]
    others = [field.name for field in rows.schema.fields if isinstance(field.dataType, _HASHED)]
    names = numbers or others
    return F.hash(F.col(f"`{names[0]}`")) <= _LARGEST_HASH if names else F.lit(True)
