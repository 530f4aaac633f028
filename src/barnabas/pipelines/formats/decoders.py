"""A record's value as a struct of columns, for each format: Spark's own functions where it has
them, else Arrow functions.

The struct has the format's columns and `CORRUPT`, which is not null where the value does not
fit. For JSON and CSV `transforms` finds the reason by parsing the value as texts; for the
others it is the reason.
"""

import datetime
import decimal
import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import StringType, StructField, StructType, TimestampType, VariantType

from barnabas.base.numbers import NUMBER
from barnabas.pipelines.formats.declared import CORRUPT, Format
from barnabas.pipelines.formats.reasons import excerpt, shown
from barnabas.pipelines.formats.strict_values import (
    column_types,
    is_misfit,
    leaf_texts,
    parsed_types,
    strict_value,
    typed_value,
    types_of,
)

__all__ = [
    "decoded_by_schema",
    "decoded_by_spark",
    "decoded_logfmt",
    "decoded_syslog",
    "decoded_text",
    "decoded_web_log",
    "json_refusal",
    "payload",
    "typed_rows",
    "untyped_struct",
]

_TEXTS, _TYPED = "_barnabas_leaf_texts", "_barnabas_typed"
_NO_NULL = "\x01no null\x01"
"""A text that no field has."""
# Loops of groups are possessive: others take a frame of the task's stack for each turn, and a long
# value has more than there are.
_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_WEB_LOG = rf"^(\S+) (\S+) (\S+) \[([^\]]+)\] {_QUOTED} (\d{{3}}) (\d+|-)(?: {_QUOTED} {_QUOTED})?\s*$"
_REQUEST = r"^(\S+) (\S+)(?: (\S+))?$"
_SYSLOG = (
    r'(?s)^<(\d{1,3})>1 (\S+) (\S+) (\S+) (\S+) (\S+) (-|(?:\[(?:[^\]\\"]|\\.|"(?:[^"\\]|\\.)*+")*+\])++)(?: (.*))?$'
)
_MAX_PRIORITY = 191
_OLD_SYSLOG = r"(?s)^(?:<(\d{1,3})>)?([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S+) ([^:\[\s]+)(?:\[(\d+)\])?:? ?(.*)$"
_PAIR = r'(?<![^\s="])([^\s="]++)=("(?:[^"\\]|\\.)*+"|\S*+)'


def decoded_text(how: Format, value: Column) -> Column:
    """The value as it is."""
    return F.struct(payload(how, value).cast("string").alias("value"))


def decoded_by_spark(how: Format, value: Column) -> Column:
    """A value of JSON or CSV by Spark's parsers.

    `typed_rows` makes its types those of the columns."""
    return _spark_parsed(how, payload(how, value).cast("string"), parsed_types(how))


def typed_rows(how: Format, rows: DataFrame, name: str, value: str) -> DataFrame:
    """What `FormatKind.decode` gave in the column ``name`` as the columns' types.

    What is no value of its type is in `CORRUPT`, too. ``value`` is the column of the whole value.
    Each step is a projection of its own: in one, Spark would compute the texts and the values as
    often as they are named.
    """
    if how.type not in ("json", "csv"):
        return rows
    kinds, parsed = column_types(how), parsed_types(how)
    pairs = list(zip(kinds, parsed, strict=True))
    row, record = F.col(name), F.col(value).cast("string")
    texts = leaf_texts(row, parsed)
    if texts is None:
        texts = row
    else:
        rows = rows.withColumn(_TEXTS, texts)
        texts = F.col(_TEXTS)
    columns = [typed_value(row[a.name], texts[a.name], a.dataType, b.dataType, record).alias(a.name) for a, b in pairs]
    if kinds != parsed:
        rows = rows.withColumn(_TYPED, F.struct(*columns))
    typed = row if kinds == parsed else F.col(_TYPED)
    misfits = [
        is_misfit(
            (row[a.name], texts[a.name], typed[a.name]),
            a.dataType,
            b.dataType,
            record,
            a.name,
            is_json=how.type == "json",
        )
        for a, b in pairs
    ]
    found = [F.coalesce(each, F.lit(False)) for each in misfits if each is not None]
    if not found:
        return rows
    corrupt = F.coalesce(row[CORRUPT], F.when(reduce(or_, found), record)).alias(CORRUPT)
    whole = F.struct(*[typed[each.name].alias(each.name) for each in kinds], corrupt)
    return rows.withColumn(name, F.when(row.isNotNull(), whole)).drop(_TEXTS, _TYPED)


def untyped_struct(how: Format, value: Column) -> Column:
    """The columns as they stand in the value, whatever their types: texts in CSV,
    variants in JSON."""
    leaf = VariantType() if how.type == "json" else StringType()
    return _spark_parsed(
        replace(how, timestamp_format=None, date_format=None),
        payload(how, value).cast("string"),
        StructType([StructField(name, leaf) for name in how.columns]),
    )


def payload(how: Format, value: Column) -> Column:
    """What follows the id of a schema of a registry."""
    if how.type == "json" and how.registry:
        return F.when(F.substring(value, 1, 1) == F.lit(b"\0"), F.substring(value, 6, 2**31 - 1))
    return value


def json_refusal(how: Format, value: Column) -> Column | None:
    """Why a value of JSON is not read for its schema in the registry; null if it is read.

    None for a format without a registry. Only the ids go to the worker, not the values."""
    if how.type != "json" or not how.registry:
        return None
    from pyspark.sql.pandas.functions import arrow_udf

    registry = how.registry

    def refuse(starts: pa.Array) -> pa.Array:
        return refused_values(starts, registry)

    function: Any = arrow_udf
    return cast(Column, function(refuse, "string")(F.substring(value, 1, 5)))


_REFUSALS: dict[str, Any] = {}


def refused_values(starts: pa.Array, registry: str) -> pa.Array:
    """The reasons for values that begin so: see `open_json_refusals`. A worker opens it once."""
    from barnabas.pipelines.formats.schemas import open_json_refusals

    if registry not in _REFUSALS:
        _REFUSALS[registry] = open_json_refusals(registry)
    return pa.array(_REFUSALS[registry](starts.to_pylist()), pa.string())


def _spark_parsed(how: Format, text: Column, types: StructType) -> Column:
    """A value of JSON or CSV as a struct of these types, by Spark's parsers."""
    schema = StructType([*types, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    if how.timestamp_format:
        options |= {"timestampFormat": how.timestamp_format, "timestampNTZFormat": how.timestamp_format}
    if how.date_format:
        options["dateFormat"] = how.date_format
    if how.type == "json":
        return F.when(_is_one_object(text), F.from_json(text, schema, options))
    # RFC 4180: a quote in quotes is doubled. What ends a line of a file is no part
    # of its last field.
    separator = how.delimiter.replace("\\", r"\\")  # Spark reads \t and the like in it
    options |= {"sep": separator, "nullValue": _NO_NULL if how.null is None else how.null, "escape": '"'}
    line = F.rtrim(text, F.lit("\r\n"))
    whole = line if how.null == "" else _with_empty_fields(line, how.delimiter)
    row = F.when(whole.isNotNull(), F.from_csv(whole, F.lit(schema.toDDL()), options))
    return F.when(line != "", row) if len(how.columns) > 1 else row


def _with_empty_fields(line: Column, delimiter: str) -> Column:
    """The line with quotes in the place of nothing: Spark takes an empty field for null, whatever
    is declared, but for quoted ones.

    A quote within a field that does not begin with one is a character, as it is for Spark. Null for
    a line with an empty field and quotes that are not closed, or followed by more than the
    delimiter: where its fields end is a guess.
    """
    mark = rf"\Q{delimiter}\E"
    field = rf'(?:"[^"]*+(?:""[^"]*+)*+"(?={mark})|[^"{mark}][^{mark}]*+)'
    has_empty = line.contains(delimiter * 2) | line.startswith(delimiter) | line.endswith(delimiter) | (line == "")
    ended = F.concat(line, F.lit(delimiter))  # each field, the last, too, has a delimiter behind it
    quoted = F.regexp_replace(ended, rf"\G((?:{field}{mark})*+)({mark})", '$1""$2')
    filled = F.substring(quoted, F.lit(1), F.length(quoted) - 1)
    is_regular = ended.rlike(rf"^(?:{field}?+{mark})*+\z")
    return F.when(~has_empty, line).when(is_regular, filled)


def _is_one_object(text: Column) -> Column:
    """Whether a value is one JSON object.

    Spark reads the first of a list, or of several, and leaves out the rest in silence. Lengths
    are those of bytes, and nothing is trimmed where nothing is to trim: characters take as
    long as the parser does.
    """
    begins_and_ends = text.startswith("{") & text.endswith("}")
    whole = F.when(begins_and_ends, text).otherwise(F.trim(text, F.lit(" \t\r\n")))
    is_flat = F.octet_length(F.substring_index(text, "}", 1)) == F.octet_length(text) - 1
    is_alone = (begins_and_ends & is_flat) | (F.json_array_length(F.concat(F.lit("["), whole, F.lit("]"))) == 1)
    return whole.startswith("{") & whole.endswith("}") & is_alone


def _group(text: Column, pattern: str, number: int) -> Column:
    """A group of the pattern; null where it is empty or a dash."""
    found = F.regexp_extract(text, pattern, number)
    return F.when((found != "") & (found != "-"), found)


def _corrupt(how: Format, fits: Column, *problems: Column) -> Column:
    """Why the value is none of the format, or one of its columns not of its type."""
    wrong = F.concat_ws("; ", *problems)
    return F.when(~fits, F.lit(f"the value is no {how.what}")).when(wrong != "", wrong).alias(CORRUPT)


def _problem(how: Format, name: str, text: Column, typed: Column) -> Column:
    """The reason if the column has a text, but no value."""
    reason = F.concat(F.lit(f"column {name} is "), shown(text), F.lit(f", which is no {how.kind(name)}"))
    return F.when(text.isNotNull() & typed.isNull(), reason)


def decoded_web_log(how: Format, value: Column) -> Column:
    """A line of a web server's log: the common and the combined form."""
    text = value.cast("string")
    request = F.regexp_extract(text, _WEB_LOG, 5)
    names = {"host": 1, "identity": 2, "user": 3}
    time_text, size_text = _group(text, _WEB_LOG, 4), _group(text, _WEB_LOG, 7)
    time, size = F.try_to_timestamp(time_text, F.lit("dd/MMM/yyyy:HH:mm:ss Z")), size_text.try_cast("bigint")
    problems = [_problem(how, "time", time_text, time), _problem(how, "size", size_text, size)]
    return F.struct(
        *[_group(text, _WEB_LOG, number).alias(name) for name, number in names.items()],
        time.alias("time"),
        *[_group(request, _REQUEST, at + 1).alias(name) for at, name in enumerate(("method", "path", "protocol"))],
        _group(text, _WEB_LOG, 6).try_cast("int").alias("status"),
        size.alias("size"),
        _group(text, _WEB_LOG, 8).alias("referer"),
        _group(text, _WEB_LOG, 9).alias("agent"),
        _corrupt(how, text.rlike(_WEB_LOG), *problems),
    )


def decoded_syslog(how: Format, value: Column) -> Column:
    """RFC 5424, and the lines of before (RFC 3164), whose times have no year: it is this
    year, or the one before."""
    text = value.cast("string")
    is_new = text.rlike(_SYSLOG)

    def pick(new: int | None, old: int | None) -> Column:
        none = F.lit(None).cast("string")
        return F.when(is_new, _group(text, _SYSLOG, new) if new else none).otherwise(
            _group(text, _OLD_SYSLOG, old) if old else none
        )

    priority = pick(1, 1).try_cast("int")
    day = F.regexp_replace(_group(text, _OLD_SYSLOG, 2), " +", " ")
    year = F.year(F.current_timestamp())
    this_year, last_year = (
        F.try_to_timestamp(F.concat_ws(" ", each.cast("string"), day), F.lit("yyyy MMM d HH:mm:ss"))
        for each in (year, year - 1)
    )
    is_past = this_year <= F.current_timestamp() + F.expr("interval 1 day")
    old_time = F.when(is_past, this_year).otherwise(last_year)
    time_text = pick(2, 2)
    time = F.when(is_new, strict_value(time_text, TimestampType())).otherwise(old_time)
    fits = (is_new | text.rlike(_OLD_SYSLOG)) & (F.coalesce(priority, F.lit(0)) <= _MAX_PRIORITY)
    message = F.when(is_new, F.regexp_extract(text, _SYSLOG, 8)).otherwise(F.regexp_extract(text, _OLD_SYSLOG, 6))
    return F.struct(
        F.floor(priority / 8).cast("int").alias("facility"),
        (priority % 8).cast("int").alias("severity"),
        time.alias("time"),
        pick(3, 3).alias("host"),
        pick(4, 4).alias("app"),
        pick(5, 5).alias("process_id"),
        pick(6, None).alias("message_id"),
        pick(7, None).alias("data"),
        F.regexp_replace(message, "^\ufeff", "").alias("message"),
        _corrupt(how, fits, _problem(how, "time", time_text, time)),
    )


def decoded_logfmt(how: Format, value: Column) -> Column:
    """A line of pairs, each with the name of a column."""
    text = value.cast("string")
    names, values = (F.regexp_extract_all(text, F.lit(_PAIR), F.lit(group)) for group in (1, 2))
    pairs = F.arrays_zip(names.alias("n"), values.alias("v"))
    columns: list[Column] = []
    problems: list[Column] = []
    kinds = column_types(how)
    for name, type_name in how.columns.items():
        found = F.get(F.filter(pairs, _is_named(name)), F.lit(0))["v"]
        is_quoted = found.startswith('"') & found.endswith('"') & (F.length(found) > 1)
        unquoted = F.regexp_replace(F.regexp_extract(found, _QUOTED, 1), r"\\(.)", "$1")
        plain = F.when(is_quoted, unquoted).when(found != "", found)
        pattern = how.pattern(name) if type_name.lower() != "timestamp_ntz" else None
        typed = (
            F.try_to_timestamp(plain, F.lit(pattern)).try_cast(type_name)
            if pattern
            else strict_value(plain, kinds[name].dataType)
        )
        columns.append(typed.alias(name))
        problems.append(_problem(how, name, plain, typed))
    return F.struct(*columns, _corrupt(how, text.rlike(_PAIR), *problems))


def _is_named(name: str) -> Callable[[Column], Column]:
    return lambda pair: pair["n"] == name


def decoded_by_schema(how: Format, value: Column) -> Column:
    """Through a decoder in Python, whole Arrow arrays at a time.

    Each worker opens its decoder once."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_schema

    row_type = types_of({**how.columns, CORRUPT: "string"})
    kind = pa.struct(list(to_arrow_schema(row_type, timezone="UTC")))
    declared = (how.type, how.schema_file, how.registry, how.message)

    def decode(values: pa.Array) -> pa.Array:
        return decode_values(values, declared, kind)

    function: Any = arrow_udf  # its overloads leave out structs
    return cast(Column, function(decode, row_type)(value))


_DECODERS: dict[Any, Any] = {}


def decode_values(values: pa.Array, declared: tuple[Any, ...], kind: pa.StructType) -> pa.Array:
    """Structs of the values.

    What cannot be decoded, or not be a value of its column, has the reason in `CORRUPT`."""
    from barnabas.pipelines.formats.schemas import DecodingError, open_decoder

    if declared not in _DECODERS:
        _DECODERS[declared] = open_decoder(*declared)
    decode = _DECODERS[declared]
    names = [field.name for field in kind if field.name != CORRUPT]
    rows: list[dict[str, Any]] = []
    batch = values.to_pylist()
    decode.expect(batch)
    for value in batch:
        if value is None:
            rows.append({CORRUPT: "the record has no value"})
            continue
        try:
            record = decode(value)
            rows.append({name: record.get(name) for name in names})
        except DecodingError as error:
            rows.append({CORRUPT: str(error)})
    decode.expect(())
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_fitting(row, kind) for row in rows], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _of_texts(value: Any, kind: pa.DataType) -> Any:
    """The value with dates, times without a zone and decimals in the place of texts that are their
    only form, as in Protobuf; the same object where nothing is to do."""
    if isinstance(value, str):
        try:
            if pa.types.is_date32(kind):
                return datetime.date.fromisoformat(value)
            if pa.types.is_timestamp(kind) and not kind.tz:
                found = datetime.datetime.fromisoformat(value)
                return found if found.tzinfo is None else value
            if pa.types.is_decimal128(kind) and re.fullmatch(NUMBER, value):
                return decimal.Decimal(value)
        except ValueError:
            return value
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_of_texts(each, kind.value_type) for each in value]
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {key: _of_texts(each, kind.item_type) for key, each in value.items()}
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {name: _of_texts(value.get(name), kind.field(name).type) for name in (each.name for each in kind)}
    return value


def _fitting(row: dict[str, Any], kind: pa.StructType) -> dict[str, Any]:
    """The row, with the reason where a value is not of its column's type."""
    from pyspark.sql.pandas.types import from_arrow_type

    problems: list[str] = []
    result = dict(row)
    for field in kind:
        try:
            pa.array([row.get(field.name)], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            value = row.get(field.name)
            if (found := _of_texts(value, field.type)) is not value and _fits(found, field.type):
                result[field.name] = found
                continue
            if pa.types.is_string(field.type) and not isinstance(value, list | dict | bytes):
                result[field.name] = str(value)
                continue
            declared = from_arrow_type(field.type).simpleString()
            problems.append(f"column {field.name} is {excerpt(str(value))}, which is no {declared}")
            result[field.name] = None
    return {**result, CORRUPT: "; ".join(problems)} if problems else result
