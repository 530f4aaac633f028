"""Why a value of CSV or JSON does not fit: each wrong column with its type, the type that
was found, and an excerpt."""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from barnabas.pipelines.formats.declared import Format
from barnabas.pipelines.formats.strict_values import column_types, is_respelled, strict_value, variant_text

__all__ = ["begins_with_mark", "excerpt", "json_problem", "shown", "wrong_columns"]

_SHOWN = 100
"""Characters of a wrong value that a reason shows."""
_UNPRINTABLE = r"[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]"
_INFINITE = float("inf")
_DIGITS_LOST = (
    ": a number of more than 15 digits with an exponent, or of more than 38, is exact as a text in quotes only"
)
_RESPELLED = ", but a number that is written in another way: only a text in quotes keeps its digits as they are"
_FOUND = {"STRING": "a text", "BOOLEAN": "a boolean", "OBJECT": "an object", "ARRAY": "a list"}


def shown(text: Column) -> Column:
    """The begin of a text from outside, printable; two quotes where it is empty."""
    printable = F.regexp_replace(F.substring(text, 1, _SHOWN), _UNPRINTABLE, "\ufffd")
    return F.when(text == "", F.lit('""')).otherwise(printable)


def excerpt(text: str) -> str:
    """What `shown` gives, for a text in Python."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:_SHOWN]) or '""'


def begins_with_mark(value: Column) -> Column:
    """Whether bytes begin with a byte order mark, which no editor shows: of UTF-8 or UTF-16."""
    utf8 = F.substring(value, 1, 3) == F.lit(b"\xef\xbb\xbf")
    return utf8 | F.substring(value, 1, 2).isin(F.lit(b"\xff\xfe"), F.lit(b"\xfe\xff"))


def wrong_columns(how: Format, row: Column, again: Column, corrupt: Column, record: Column) -> Column:
    """The columns whose text is not of their type, with the text.

    Empty if the value as a whole does not fit. ``row`` has the columns, ``again`` the same as they
    stand in the value (`untyped_struct`), and ``corrupt`` is null if it could be parsed as that;
    ``record`` is the value as text.
    """
    problems: list[Column] = []
    for field in column_types(how):
        name, value, found = field.name, row[field.name], again[field.name]
        if how.type == "json":
            problems += _in_variant(name, value, found, field.dataType, how.kind(name), how, record)
        else:
            is_wrong = value.isNull() & found.isNotNull()
            problems.append(F.when(is_wrong, _reason(name, shown(found), how.kind(name), _hint(how, found))))
    repeated = [
        _repeated_key(field.name, row[field.name]) for field in column_types(how) if isinstance(field.dataType, MapType)
    ]
    return F.concat_ws("; ", *[F.when(corrupt.isNull(), each) for each in problems], *repeated)


def _reason(path: str, excerpt: Column, kind: str, suffix: Column) -> Column:
    return F.concat(F.lit(f"column {path} is "), excerpt, F.lit(f", which is no {kind}"), suffix)


def _hint(how: Format, found: Column) -> Column:
    """How an empty field is declared to be null."""
    if how.null is not None:
        return F.lit("")
    return F.when(found == "", F.lit(' (null = "" in the format makes empty fields null)')).otherwise("")


def _in_variant(
    path: str, value: Column, found: Column, kind: DataType, name: str, how: Format, record: Column
) -> list[Column]:
    """The problems of a value of JSON, or of each part of an object."""
    text, schema = variant_text(found), F.schema_of_variant(found)
    is_wrong = value.isNull() & text.isNotNull()
    if isinstance(kind, DoubleType | FloatType):
        is_wrong |= (F.abs(value) == _INFINITE) & (schema == "DOUBLE")
    suffix = _but(schema, kind)
    if isinstance(kind, DecimalType):
        is_lost = (schema == "DOUBLE") & strict_value(text, kind).isNotNull()
        suffix = F.when(is_lost, F.lit(_DIGITS_LOST)).otherwise(suffix)
    own = F.when(is_wrong, _reason(path, shown(text), name, suffix))
    if isinstance(kind, StringType):
        respelled = F.concat(F.lit(f"column {path} is "), shown(value), F.lit(_RESPELLED))
        own = F.when(is_respelled(value, record, path.rpartition(".")[2]), respelled).otherwise(own)
    if not isinstance(kind, StructType):
        return [own]
    parts = [
        problem
        for each in kind
        for problem in _in_variant(
            f"{path}.{each.name}",
            value[each.name],
            F.try_variant_get(found, f"$['{each.name}']", "variant"),
            each.dataType,
            how.with_pattern(each.dataType.simpleString()),
            how,
            record,
        )
        if "'" not in each.name
    ]
    is_object = schema.startswith("OBJECT")
    return [F.when(~is_object, own), *[F.when(is_object, each) for each in parts]]


def _but(schema: Column, kind: DataType) -> Column:
    """What was found, where it is of another kind than the column."""
    found = reduce(
        lambda rest, word: rest.when(schema.startswith(word[0]), F.lit(word[1])),
        list(_FOUND.items())[1:],
        F.when(schema.startswith("STRING"), F.lit("a text")),
    ).otherwise("a number")
    expected = ["a text"]
    if isinstance(kind, DecimalType):
        expected = ["a number", "a text"]
    elif isinstance(kind, IntegralType | DoubleType | FloatType):
        expected = ["a number"]
    elif isinstance(kind, BooleanType):
        expected = ["a boolean"]
    elif isinstance(kind, StructType | MapType):
        expected = ["an object"]
    elif isinstance(kind, ArrayType):
        expected = ["a list"]
    return F.when(found.isin(*expected), "").otherwise(F.concat(F.lit(" but "), found))


def _repeated_key(name: str, value: Column) -> Column:
    keys = F.map_keys(value)
    repeated = F.filter(keys, lambda key: F.size(F.filter(keys, lambda other: other == key)) > 1)
    return F.when(
        F.size(repeated) > 0,
        F.concat(
            F.lit(f"column {name} is a map with the key "),
            shown(F.get(repeated, F.lit(0)).cast("string")),
            F.lit(" twice"),
        ),
    )


def json_problem(what: str, text: Column, is_object: Column) -> Column:
    """Why a value of JSON fits no column, as far as that can be said.

    ``is_object`` if it begins and ends as one does."""
    odd_part = "the value is a JSON object with a part of another type than its column, or with a name twice"
    return F.when(is_object & F.json_object_keys(text).isNotNull(), F.lit(odd_part)).otherwise(
        F.lit(f"the value is no {what}")
    )
