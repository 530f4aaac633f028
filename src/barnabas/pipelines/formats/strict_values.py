"""Texts of records and tables as typed values: one strict reader, for CSV, JSON, logfmt
and tables beside a stream.

Spark's own parsers take more than a type has. ``12,34`` is 1234 as a decimal and ``1.005`` is
1.01 as one of two places, ``1e400`` is infinite, ``12:30`` is half past twelve of the day on
which the flow runs, so that a replay gives another result tomorrow, and ``2020`` is the first
of January. Here a text has a value only if it is one of the type; all others have none, and
make their row a bad one.

JSON's values keep their own types until then (Spark's variants), for a number of digits is no text
of digits: in a column of times the one is seconds, the other nothing.
"""

from collections.abc import Mapping, Sequence
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

from barnabas.base.numbers import NUMBER, WHOLE_NUMBER
from barnabas.pipelines.formats.declared import Format
from barnabas.pipelines.values.nested import has_part, rewritten

__all__ = [
    "column_types",
    "is_misfit",
    "is_respelled",
    "leaf_texts",
    "parsed_types",
    "strict_value",
    "typed_value",
    "types_of",
    "variant_text",
]

_WHOLE = rf"\A{WHOLE_NUMBER}\z"
_NUMBER = rf"\A{NUMBER}\z"
_NO_NUMBER = r"^(NaN|[+-]?Inf(inity)?|[+-]INF|INF)$"
_DAY = "[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
"""Years beyond 9999 are times, which outputs cannot hold; the reason of such a row says so."""
_CLOCK = r"[T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_ZONE = " ?(Z|[+-][0-9]{1,2}(:?[0-9]{2})?|[A-Za-z]{3}[A-Za-z0-9_+/:-]*)"
_BEFORE = r"[:\[,]\s*"
_INFINITY = r'"?[+-]?(Infinity|INF)"?\s*[,}\]]'
_HUGE = "[+-]?(?:[0-9.]++[eE][+]?[0-9]{2}|[0-9]{25})"
"""What stands in a JSON document before a value, for one that is infinite by name, and
for all that are too large."""
_DOUBLE = rf"{_BEFORE}[+-]?(?=[0-9.]{{16}})(?:[0-9.]++[eE]|[0-9]{{39}}|[0-9.]{{40}})"
"""A number in a JSON document that a variant holds as a double, which has fewer digits."""
_FRACTION = r"-?[0-9]+(?:\.[0-9]+(?:E-?[0-9]+)?|E-?[0-9]+)"
_MAYBE_RESPELLED = rf"\A(?:(?:{_FRACTION}|0)\z|[{{\[])"
"""A text that Spark may have written for a number of JSON, in its own way (1.10 as 1.1, -0 as 0),
or that begins as a list or an object."""
_ITS_NUMBERS = rf"(?:\A|[:\[,])({_FRACTION}|0(?=\z))(?=\z|[,\]}}])"
_INFINITE = float("inf")
_MOST_SECONDS = (1 << 63) // 1_000_000
"""More would overflow; this is far beyond the year 9999, which makes a bad row."""


def column_types(how: Format) -> StructType:
    """The types of a format's columns."""
    return types_of(how.columns)


def types_of(columns: Mapping[str, str]) -> StructType:
    """Columns with the names of their types as Spark's type."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
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
    """Whether a number, in any notation, has only zeros behind the given number of places.

    It is decided on the text, because no type is wide enough."""
    mantissa = F.regexp_extract(number, "^[+-]?([0-9.]+)", 1)
    exponent = F.coalesce(F.regexp_extract(number, "[eE]([+-]?[0-9]+)$", 1).try_cast("int"), F.lit(0))
    point = F.locate(".", mantissa)
    written = F.when(point > 0, F.length(mantissa) - point).otherwise(0)
    digits = F.replace(mantissa, F.lit("."), F.lit(""))
    kept = F.rtrim(digits, F.lit("0"))
    return (kept == "") | (written - (F.length(digits) - F.length(kept)) - exponent <= places)


def parsed_types(how: Format) -> StructType:
    """The types with which Spark parses a value of CSV or JSON: those that its parsers read
    strictly are of the columns."""
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
    """Whether Spark's parser accepts values that the type does not have.

    Times of a declared form it reads strictly. In CSV it takes the digits of every
    script for numbers.
    """
    if isinstance(kind, DoubleType | FloatType | IntegralType):
        return how.type == "csv"
    return isinstance(kind, DecimalType | DateType | TimestampType | TimestampNTZType) and not how.pattern_of(
        kind.simpleString()
    )


def leaf_texts(value: Column, parsed: DataType) -> Column | None:
    """The same with texts in the place of variants, and null for JSON's null: values that are read
    strictly are written out once.

    None for a type without variants."""
    return rewritten(value, parsed, lambda leaf, kind: variant_text(leaf) if isinstance(kind, VariantType) else None)


def typed_value(value: Column, text: Column, kind: DataType, parsed: DataType, record: Column) -> Column:
    """What Spark has parsed as `parsed_types`, as the column's type.

    ``text`` is what `leaf_texts` gives for the value, ``record`` the whole value as text.
    """
    if kind == parsed:
        return value
    if isinstance(kind, StructType) and isinstance(parsed, StructType):
        fields = [
            typed_value(value[each.name], text[each.name], each.dataType, other.dataType, record).alias(each.name)
            for each, other in zip(kind, parsed, strict=True)
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType) and isinstance(parsed, ArrayType):
        inner, other = kind.elementType, parsed.elementType
        return F.zip_with(value, text, lambda each, its: typed_value(each, its, inner, other, record))
    if isinstance(kind, MapType) and isinstance(parsed, MapType):
        of, was = kind.valueType, parsed.valueType
        texts = F.map_values(text)
        typed = F.zip_with(F.map_values(value), texts, lambda each, its: typed_value(each, its, of, was, record))
        return F.when(~_has_repeated_keys(value), F.map_from_arrays(F.map_keys(value), typed))
    if isinstance(parsed, VariantType):
        return _of_variant(value, text, kind, record)
    return strict_value(text, kind)


def variant_text(value: Column) -> Column:
    """A variant's value as text; null for JSON's null."""
    return F.try_variant_get(value, "$", "string")


def _of_variant(value: Column, text: Column, kind: DataType, record: Column) -> Column:
    typed = strict_value(text, kind)
    if isinstance(kind, DecimalType):  # a record with a number that loses digits may have it here
        return F.when(~((F.schema_of_variant(value) == "DOUBLE") & record.rlike(_DOUBLE)), typed)
    if not isinstance(kind, TimestampType):
        return typed
    seconds = F.when(F.schema_of_variant(value) == "BIGINT", F.try_variant_get(value, "$", "bigint"))
    kept = F.least(F.greatest(seconds, F.lit(-_MOST_SECONDS)), F.lit(_MOST_SECONDS))
    return F.when(text.rlike(_WHOLE), F.when(seconds.isNotNull(), F.timestamp_seconds(kept))).otherwise(typed)


def is_misfit(
    forms: tuple[Column, Column, Column],
    kind: DataType,
    parsed: DataType,
    record: Column,
    name: str,
    *,
    is_json: bool,
) -> Column | None:
    """Whether a parsed value is none of the type, or has a part that is none.

    None for types of which Spark sees it. ``forms`` are the value, and what `leaf_texts` and
    `typed_value` gave for it; ``record`` is the whole value as text, ``name`` the value's in it.
    """

    def is_wrong(leaf: Sequence[Column], types: Sequence[DataType], field: str | None) -> Column | None:
        (value, text, typed), (wanted, found) = leaf, types
        if isinstance(wanted, DoubleType | FloatType) and wanted == found:
            return (F.abs(value) == _INFINITE) & _is_too_large(record, field)
        if isinstance(wanted, StringType) and is_json:
            return is_respelled(value, record, field)
        return None if wanted == found else text.isNotNull() & typed.isNull()

    return has_part(forms, (kind, parsed), is_wrong, name, of_map=_has_repeated_keys)


def _has_repeated_keys(value: Column) -> Column:
    return F.size(F.array_distinct(F.map_keys(value))) < F.size(value)


def is_respelled(text: Column, record: Column, name: str | None) -> Column:
    """Whether a text of a JSON document has a number, or is one, that is written in
    another way in the document.

    Such a number is looked for by the value's name, where it has one; others must stand in
    the document as they are.
    """
    numbers = F.regexp_extract_all(text, F.lit(_ITS_NUMBERS), F.lit(1))
    quoted = F.lit(rf'"\Q{name}\E"\s*:\s*"?\Q' if name else r"(?<![0-9.eE+-])\Q")
    is_alone = ~text.rlike(r"^[{\[]")

    def is_missing(number: Column) -> Column:
        anywhere = F.concat(F.lit(r"(?<![0-9.eE+-])\Q"), number, F.lit(r"\E(?![0-9.eE+-])"))
        by_name = F.concat(quoted, number, F.lit(r"\E(?![0-9.eE+-])"))
        return ~F.rlike(record, F.when(is_alone, by_name).otherwise(anywhere))

    return F.when(text.rlike(_MAYBE_RESPELLED), F.exists(numbers, is_missing)).otherwise(False)


def _is_too_large(record: Column, name: str | None) -> Column:
    """Whether an infinite value of a JSON document is a number.

    Without a name, whether any of the document's may be."""
    is_any = record.rlike(_BEFORE + _HUGE)
    if name is None:
        return is_any
    field = rf'"\Q{name}\E"\s*:\s*'
    return is_any & (record.rlike(field + _HUGE) | ~record.rlike(field + _INFINITY))
