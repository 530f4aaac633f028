"""Texts of records and tables as typed values: one strict reader, for CSV, JSON, logfmt and tables beside a stream.

Spark's own parsers take more than a type has. ``12,34`` is 1234 as a decimal and ``1.005`` is 1.01 as one of two places,
``1e400`` is infinite, ``12:30`` is half past twelve of the day on which the flow runs, so that a replay gives another result
tomorrow, and ``2020`` is the first of January. Here a text has a value only if it is one of the type; all others have none,
and make their row a bad one.

JSON's values keep their own types until then (Spark's variants), for a number of digits is no text of digits: in a column of
times the one is seconds, the other nothing.
"""

from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from barnabas.pipelines.formats import Format

__all__ = ["column_types", "is_misfit", "parsed_types", "strict_value", "typed_value", "variant_text"]

_WHOLE = "^[+-]?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_NO_NUMBER = r"^(NaN|[+-]?Inf(inity)?|[+-]INF|INF)$"
_DAY = "[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
"""Years beyond 9999 are times, which outputs cannot hold; the reason of such a row says so."""
_CLOCK = r"[T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_ZONE = " ?(Z|[+-][0-9]{1,2}(:?[0-9]{2})?|[A-Za-z]{3}[A-Za-z0-9_+/:-]*)"
_BEFORE = r"[:\[,]\s*"
_INFINITY = r'"?[+-]?(Infinity|INF)"?\s*[,}\]]'
_HUGE = "[+-]?(?:[0-9.]++[eE][+]?[0-9]{2}|[0-9]{25})"
"""What stands in a JSON document before a value, for one that is infinite by name, and for all that are too large."""
_DOUBLE = rf"{_BEFORE}[+-]?(?=[0-9.]{{16}})(?:[0-9.]++[eE]|[0-9]{{39}}|[0-9.]{{40}})"
"""A number in a JSON document that a variant holds as a double, which has fewer digits."""
_INFINITE = float("inf")
_MOST_SECONDS = (1 << 63) // 1_000_000
"""More would overflow; this is far beyond the year 9999, which makes a bad row."""


def column_types(how: Format) -> StructType:
    """The types of a format's columns."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in how.columns.items())
    return cast(StructType, StructType.fromDDL(ddl))


def strict_value(text: Column, kind: DataType) -> Column:
    """The text as a value of the type; null where it is none."""
    value = text.try_cast(kind)
    if isinstance(kind, IntegralType):
        return F.when(text.rlike(_WHOLE), value)
    if isinstance(kind, DecimalType):
        return _decimal(text, kind)
    if isinstance(kind, DoubleType | FloatType):
        is_finite = F.abs(value) < _INFINITE
        return F.when(text.rlike(_NUMBER) & is_finite | text.rlike(_NO_NUMBER), value)
    if isinstance(kind, BooleanType):
        return F.when(F.lower(text).isin("true", "false"), value)
    if isinstance(kind, DateType):
        return F.when(text.rlike(f"^{_DAY}$"), value)
    if isinstance(kind, TimestampType):
        return F.when(text.rlike(f"^{_DAY}({_CLOCK}({_ZONE})?)?$"), value)
    if isinstance(kind, TimestampNTZType):
        return F.when(text.rlike(f"^{_DAY}({_CLOCK})?$"), value)
    return value


def _decimal(text: Column, kind: DecimalType) -> Column:
    """No digit is rounded away; zeros at the end are none."""
    places = kind.scale
    is_plain = text.rlike(rf"^[+-]?([0-9]+(\.[0-9]{{0,{places}}}0*)?|\.[0-9]{{1,{max(places, 1)}}}0*)$")
    return F.when(is_plain | text.rlike(_NUMBER) & _has_places(text, places), text.try_cast(kind))


def _has_places(number: Column, places: int) -> Column:
    """Whether a number, written in any way, has no digit but zeros beyond so many places; of its text, for no type is wide enough."""
    mantissa = F.regexp_extract(number, "^[+-]?([0-9.]+)", 1)
    exponent = F.coalesce(F.regexp_extract(number, "[eE]([+-]?[0-9]+)$", 1).try_cast("int"), F.lit(0))
    point = F.locate(".", mantissa)
    written = F.when(point > 0, F.length(mantissa) - point).otherwise(0)
    digits = F.replace(mantissa, F.lit("."), F.lit(""))
    kept = F.rtrim(digits, F.lit("0"))
    return (kept == "") | (written - (F.length(digits) - F.length(kept)) - exponent <= places)


def parsed_types(how: Format) -> StructType:
    """The types with which Spark parses a value of CSV or JSON: those that its parsers read strictly are of the columns."""
    leaf = VariantType() if how.type == "json" else StringType()
    return StructType([StructField(each.name, _parsed(each.dataType, how, leaf)) for each in column_types(how)])


def _parsed(kind: DataType, how: Format, leaf: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _parsed(each.dataType, how, leaf)) for each in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_parsed(kind.elementType, how, leaf))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _parsed(kind.valueType, how, leaf))
    return leaf if _is_lenient(kind, how) else kind


def _is_lenient(kind: DataType, how: Format) -> bool:
    """Whether Spark's parser takes for a value of the type what is none. Times of a declared form it reads strictly."""
    if isinstance(kind, DoubleType | FloatType):
        return how.type == "csv"
    return isinstance(kind, DecimalType | DateType | TimestampType | TimestampNTZType) and not how.pattern_of(
        kind.simpleString()
    )


def typed_value(value: Column, kind: DataType, parsed: DataType, record: Column) -> Column:
    """What Spark has parsed as `parsed_types`, as the column's type; ``record`` is the whole value as text."""
    if kind == parsed:
        return value
    if isinstance(kind, StructType) and isinstance(parsed, StructType):
        fields = [
            typed_value(value[each.name], each.dataType, other.dataType, record).alias(each.name)
            for each, other in zip(kind, parsed, strict=True)
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType) and isinstance(parsed, ArrayType):
        inner, other = kind.elementType, parsed.elementType
        return F.transform(value, lambda each: typed_value(each, inner, other, record))
    if isinstance(kind, MapType) and isinstance(parsed, MapType):
        of, was = kind.valueType, parsed.valueType
        return F.transform_values(value, lambda _, each: typed_value(each, of, was, record))
    if isinstance(parsed, VariantType):
        return _of_variant(value, kind, record)
    return strict_value(value, kind)


def variant_text(value: Column) -> Column:
    """A variant's value as text; null for JSON's null."""
    return F.try_variant_get(value, "$", "string")


def _of_variant(value: Column, kind: DataType, record: Column) -> Column:
    text = variant_text(value)
    typed = strict_value(text, kind)
    if isinstance(kind, DecimalType):  # a record that has a number with digits that are lost may have it here
        return F.when(~((F.schema_of_variant(value) == "DOUBLE") & record.rlike(_DOUBLE)), typed)
    if not isinstance(kind, TimestampType):
        return typed
    seconds = F.when(F.schema_of_variant(value) == "BIGINT", F.try_variant_get(value, "$", "bigint"))
    kept = F.least(F.greatest(seconds, F.lit(-_MOST_SECONDS)), F.lit(_MOST_SECONDS))
    return F.when(text.rlike(_WHOLE), F.when(seconds.isNotNull(), F.timestamp_seconds(kept))).otherwise(typed)


def is_misfit(
    value: Column, kind: DataType, parsed: DataType, record: Column, name: str | None = None
) -> Column | None:
    """Whether a parsed value is none of the type, or has a part that is none; None for types of which Spark sees it.

    ``record`` is the whole value as text, ``name`` the value's in it.
    """
    if isinstance(kind, StructType) and isinstance(parsed, StructType):
        pairs = zip(kind, parsed, strict=True)
        return _any([is_misfit(value[a.name], a.dataType, b.dataType, record, a.name) for a, b in pairs])
    if isinstance(kind, ArrayType) and isinstance(parsed, ArrayType):
        return _within(value, kind.elementType, parsed.elementType, record)
    if isinstance(kind, MapType) and isinstance(parsed, MapType):
        is_repeated = F.size(F.array_distinct(F.map_keys(value))) < F.size(value)
        return _any([is_repeated, _within(F.map_values(value), kind.valueType, parsed.valueType, record)])
    if isinstance(kind, DoubleType | FloatType) and kind == parsed:
        return (F.abs(value) == _INFINITE) & _is_too_large(record, name)
    if kind == parsed:
        return None
    text = variant_text(value) if isinstance(parsed, VariantType) else value
    return text.isNotNull() & typed_value(value, kind, parsed, record).isNull()


def _is_too_large(record: Column, name: str | None) -> Column:
    """Whether an infinite value of a JSON document is a number; without a name, whether any of the document's may be."""
    is_any = record.rlike(_BEFORE + _HUGE)
    if name is None:
        return is_any
    field = rf'"\Q{name}\E"\s*:\s*'
    return is_any & (record.rlike(field + _HUGE) | ~record.rlike(field + _INFINITY))


def _within(values: Column, kind: DataType, parsed: DataType, record: Column) -> Column | None:
    if is_misfit(values, kind, parsed, record) is None:
        return None
    return F.exists(values, lambda each: F.coalesce(cast(Column, is_misfit(each, kind, parsed, record)), F.lit(False)))


def _any(conditions: list[Column | None]) -> Column | None:
    known = [F.coalesce(each, F.lit(False)) for each in conditions if each is not None]
    return reduce(or_, known) if known else None
