"""Rows as JSON documents for topics: the values' forms are those of
`barnabas.pipelines.values.texts`, whatever the session's time zone is.

Spark's ``to_json`` writes the key of a map as it is in memory: a time as microseconds, a date as
days, bytes as an address. Such keys become texts first.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import BooleanType, DataType, NumericType, StringType, StructType

from barnabas.pipelines.values.nested import rewritten
from barnabas.pipelines.values.texts import JSON_OPTIONS

__all__ = ["json_document"]

_WRITTEN_AS_THEY_ARE = (StringType, NumericType, BooleanType)


def json_document(names: Sequence[str], schema: StructType, instead: Mapping[str, Column] | None = None) -> Column:
    """The columns of these names as one JSON object, in their order.

    ``instead`` has other forms of some, in which the keys of maps are as they were."""
    columns = [(instead or {}).get(name, F.col(f"`{name}`")) for name in names]
    fields = [
        _with_text_keys(column, schema[name].dataType).alias(name) for name, column in zip(names, columns, strict=True)
    ]
    return F.to_json(F.struct(*fields), JSON_OPTIONS)


def _with_text_keys(value: Column, kind: DataType) -> Column:
    """The value with texts in the place of its maps' keys."""
    found = rewritten(value, kind, lambda *_: None, _text_key)
    return value if found is None else found


def _text_key(key: Column, kind: DataType) -> Column | None:
    """A key as its value would stand in a document, without quotes."""
    if isinstance(kind, _WRITTEN_AS_THEY_ARE):
        return None
    return F.get_json_object(F.to_json(F.struct(key.alias("k")), JSON_OPTIONS), "$.k")
