"""Equality of keys: one rule for all outputs, deletions, deduplication, groups and joins.

    null              a value, equal to null
    NaN               equal to NaN
    -0.0              equal to 0.0, and kept as 0.0
    texts             by their code points: no trimming, no folding of case, no normal form, no
                      cut; U+0000 is a character
    bytes             by their bytes
    decimals          by their numeric value
    times             by their instant

It is the equality of Spark's groups (``<=>`` in SQL), so aggregates have it. Outputs come to it in
two ways. Here, before rows reach them, and where a deduplication keeps the first of equal rows,
values that are equal become the same value (`with_equal_keys`): Spark compares by the rule, but
passes the bits of a number on as they came. And each output compares whole values, null included.

What an output cannot hold is never changed to something near it. A record whose key it cannot hold
is a bad row of its source (`key_problem`), and a key that comes out of a join, a query or a
function, and so of no single record, ends the flow with the reason. `KEY_RULE` is its number:
checkpoints keep it, so that a table or state of another rule is not mixed with this one in silence.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from barnabas.pipelines.formats.reasons import shown
from barnabas.pipelines.outputs.declared import Sink
from barnabas.pipelines.outputs.registry import is_table, table_kind_of
from barnabas.pipelines.values.nested import rewritten
from barnabas.pipelines.values.texts import NOT_UTF8

__all__ = [
    "ambiguous_text",
    "key_problem",
    "key_type_problem",
    "text_of_binary",
    "whole_texts",
    "with_equal_keys",
]

_NOT_TEXT = "\\x"
_BY_CODE_POINTS = "UTF8_BINARY"
_FOLDER_BYTES = 250
"""The length of a folder's name at most, its column included."""
_LOOKS_LIKE_BYTES = r"^\\x(?:[0-9a-f]{2})+$"


def text_of_binary(value: Column) -> Column:
    """Bytes as a text, different for different bytes: what is not UTF-8 becomes \\x
    and its hexadecimal digits.

    `ambiguous_text` finds the one text that reads like other bytes.
    `barnabas.pipelines.values.texts.text_of_bytes` does the same.
    """
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit(_NOT_TEXT), F.lower(F.hex(value))))


def ambiguous_text(value: Column) -> Column:
    """Whether bytes are a text that `text_of_binary` gives for other bytes. Never null."""
    text = value.cast("string")
    others = F.unhex(F.substring(text, len(_NOT_TEXT) + 1, 2**31 - 1)).cast("string")
    is_one = F.is_valid_utf8(text) & text.rlike(_LOOKS_LIKE_BYTES) & ~F.is_valid_utf8(others)
    return F.coalesce(is_one, F.lit(False))


def with_equal_keys(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows with the columns of a key in the one form of each value."""
    forms = {name: rewritten(F.col(name), rows.schema[name].dataType, _equal_form) for name in key}
    changed = {name: form for name, form in forms.items() if form is not None}
    return rows.withColumns(changed) if changed else rows


def _equal_form(value: Column, kind: DataType) -> Column | None:
    """A number such that equal ones are the same in each bit; None for other types, where
    they are already."""
    if not isinstance(kind, DoubleType | FloatType):
        return None
    zero, no_number = (F.lit(each).cast(kind) for each in (0.0, float("nan")))
    return F.when(F.isnan(value), no_number).when(value == zero, zero).otherwise(value)


def key_problem(key: Sequence[str], types: StructType, sinks: Sequence[Sink]) -> Column | None:
    """Why a row's key cannot be held by one of the outputs, null if it can.

    None if each key of these types can. ``key`` names columns of the rows, whose
    types are ``types``.
    """
    problems: list[Column] = []
    limits = next((each for sink in sinks if is_table(sink) and (each := table_kind_of(sink).key_limits)), None)
    sizes: list[Column] = []
    for name in key:
        column, kind = F.col(name), types[name].dataType
        if isinstance(kind, StringType):
            reason = F.concat(F.lit(f"column {name} is "), shown(F.make_valid_utf8(column)))
            problems.append(F.when(~F.is_valid_utf8(column), F.concat(reason, F.lit(NOT_UTF8))))
            if limits:
                has_nul = F.contains(column, F.lit("\0"))
                text = F.lit(f" with the character U+0000, which {limits.system} cannot hold")
                problems.append(F.when(has_nul, F.concat(reason, text)))
        if isinstance(kind, StringType | BinaryType):
            sizes.append(F.coalesce(F.octet_length(column), F.lit(0)))
    if limits and sizes:
        size = reduce(add, sizes)
        names = ", ".join(key)
        reason = F.concat(
            F.lit(f"the key ({names}) has "),
            size.cast("string"),
            F.lit(f" bytes, and {limits.system} takes {limits.most_bytes:,}"),
        )
        problems.append(F.when(size > limits.most_bytes, reason))
    folders = _folders(sinks)
    problems += [
        _folder_problem(name, folders[name])
        for name in key
        if isinstance(types[name].dataType, StringType) and name in folders
    ]
    return F.coalesce(*problems) if problems else None


def _folders(sinks: Sequence[Sink]) -> dict[str, str]:
    """The columns that make folders of tables which take an empty name for null,
    with the system that does."""
    tables = [(sink, table_kind_of(sink)) for sink in sinks if is_table(sink)]
    return {
        name: kind.empty_folder_is_null
        for sink, kind in tables
        if kind.empty_folder_is_null
        for name in kind.folders(sink)
    }


def _folder_problem(name: str, system: str) -> Column:
    """Why a text cannot be in a folder's name; null if it can.

    The system takes an empty one for null."""
    column = F.col(name)
    is_long = F.length(F.url_encode(column)) > _FOLDER_BYTES - len(name)
    return F.when(column == "", F.lit(f"column {name} is empty, which {system} takes for null in partition_by")).when(
        is_long, F.lit(f"column {name} is longer than a folder's name may be, which partition_by makes of it")
    )


def key_type_problem(kind: DataType) -> str:
    """Why values of a type cannot be a key; "" if they can."""
    if isinstance(kind, MapType | VariantType):
        return f"is of type {kind.simpleString()}, whose values have no equality"
    if isinstance(kind, StringType) and kind.collation != _BY_CODE_POINTS:
        return (
            f"is a text of the collation {kind.collation}, which outputs do not have: take `COLLATE {_BY_CODE_POINTS}`"
        )
    if isinstance(kind, ArrayType):
        return key_type_problem(kind.elementType)
    parts = [key_type_problem(field.dataType) for field in kind] if isinstance(kind, StructType) else []
    return next(filter(None, parts), "")


def whole_texts(rows: DataFrame) -> DataFrame:
    """The rows; a text in them that is not UTF-8, of which Spark's JSON would make another one,
    ends the flow with its column."""
    checked = {}
    for field in rows.schema:
        if isinstance(field.dataType, StringType):
            column = F.col(field.name)
            problem = F.concat(F.lit(f"column {field.name} is "), shown(F.make_valid_utf8(column)), F.lit(NOT_UTF8))
            checked[field.name] = F.when(~F.is_valid_utf8(column), F.raise_error(problem).cast("string")).otherwise(
                column
            )
    return rows.withColumns(checked) if checked else rows
