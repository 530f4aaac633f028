"""Rows as JSON documents for topics: the values' forms are those of
`barnabas.pipelines.values.texts`, whatever the session's time zone is.

Spark's ``to_json`` writes the key of a map as it is in memory: a time as microseconds, a date as
days, bytes as an address. Such keys become texts first.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, NumericType, StringType, StructType

from barnabas.pipelines.values.texts import JSON_OPTIONS

__all__ = ["json_document"]

_WRITTEN_AS_THEY_ARE = (StringType, NumericType, BooleanType)


def json_document(names: Sequence[str], schema: StructType) -> Column:
    """The columns of these names as one JSON object, in their order."""
    columns = [F.col(f"`{name}`") for name in names]
    fields = [
        _with_text_keys(column, schema[name].dataType).alias(name) for name, column in zip(names, columns, strict=True)
    ]
    return F.to_json(F.struct(*fields), JSON_OPTIONS)


def _with_text_keys(value: Column, kind: DataType) -> Column:
    """The value with texts in the place of its maps' keys."""
    if not _has_other_keys(kind):
        return value
    if isinstance(kind, StructType):
        parts = [_with_text_keys(value[each.name], each.dataType).alias(each.name) for each in kind]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        return F.transform(value, lambda each: _with_text_keys(each, inner))
    assert isinstance(kind, MapType)
    of = kind.valueType
    if _has_other_keys(of):
        value = F.transform_values(value, lambda _, each: _with_text_keys(each, of))
    return (
        value if isinstance(kind.keyType, _WRITTEN_AS_THEY_ARE) else F.transform_keys(value, lambda key, _: _text(key))
    )


def _text(key: Column) -> Column:
    """A key as its value would stand in a document, without quotes."""
    return F.get_json_object(F.to_json(F.struct(key.alias("k")), JSON_OPTIONS), "$.k")


def _has_other_keys(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_other_keys(each.dataType) for each in kind)
    if isinstance(kind, ArrayType):
        return _has_other_keys(kind.elementType)
    if isinstance(kind, MapType):
        return not isinstance(kind.keyType, _WRITTEN_AS_THEY_ARE) or _has_other_keys(kind.valueType)
    return False
