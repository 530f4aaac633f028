"""What a flow does to rows, as functions DataFrame -> DataFrame that do no I/O.

They take and give batch and streaming frames alike, so tests run them on a few rows. ``records``
are the columns key, value, topic, partition, offset of the source; ``parsed`` has the format's
columns, the three position columns, and ``_barnabas_bad``, which says why a row is bad, and is null
for a good one, with ``_barnabas_error``, its class: NO_VALUE, MALFORMED, WRONG_TYPE, REQUIRED_NULL,
NOT_EXPECTED, EXPRESSION, NO_TIME, KEY, NO_KEY or QUARANTINED.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import DataType, DateType, StructType, TimestampNTZType, TimestampType

from barnabas.pipelines.formats.declared import (
    CORRUPT,
    NAMES_AS_VALUES,
    NO_COLUMNS,
    OTHER_COUNT,
    OTHER_DELIMITER,
    WITH_QUOTES,
)
from barnabas.pipelines.formats.decoders import json_refusal, payload, typed_rows, untyped_struct
from barnabas.pipelines.formats.reasons import begins_with_mark, json_problem, shown, wrong_columns
from barnabas.pipelines.formats.strict_values import column_types
from barnabas.pipelines.frames.expectations import is_met
from barnabas.pipelines.frames.keys import ambiguous_text, text_of_binary, with_equal_keys
from barnabas.pipelines.outputs.table import DELETION_MARK
from barnabas.pipelines.specification.spec import (
    POSITION,
    WINDOW_TIMES,
    Aggregate,
    Expectation,
    Flow,
    Format,
    Source,
    Transform,
)
from barnabas.pipelines.values.json_documents import json_document
from barnabas.pipelines.values.nested import has_part
from barnabas.pipelines.values.texts import FIRST_TIME, LAST_TIME, RECORD_TIME_OUT_OF_RANGE, TIME_OUT_OF_RANGE

__all__ = [
    "MIXED",
    "RECORD_SCHEMA",
    "aggregate_rows",
    "as_messages",
    "bad_counts",
    "bad_messages",
    "bad_reasons",
    "bad_rows",
    "deduplicate_rows",
    "field_types",
    "good_rows",
    "latest_per_key",
    "mark_keyless",
    "mark_quarantined",
    "mark_rows",
    "mark_unexpected",
    "observe_timeless",
    "parse_records",
    "position_of",
    "quarantining",
    "record_position",
    "record_schema",
    "record_types",
    "replayed_messages",
    "shape_rows",
    "table_counts",
    "unmarked",
    "visible_columns",
    "with_deletions",
]

_RECORD_TYPES = {"key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint"}
_HEADERS_TYPE = "array<struct<key: string, value: binary>>"
RECORD_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _RECORD_TYPES.items())
"""The columns of records that every flow needs."""

_BAD = "_barnabas_bad"
_ERROR = "_barnabas_error"
_REASON = "_barnabas_reason"
_REFUSED = "_barnabas_refused"
_TEXTS = "_barnabas_texts"
_WRONG = "_barnabas_wrong_columns"
_HEADERS = "_barnabas_headers"
_ERRORS = ("NO_VALUE", "MALFORMED", "WRONG_TYPE", "REQUIRED_NULL", "NOT_EXPECTED", "EXPRESSION", "NO_TIME", "KEY")
_DELIMITERS = (",", ";", "\t", "|")
_WITH_EXAMPLE = ("NO_VALUE", "MALFORMED", "NOT_EXPECTED", "EXPRESSION", "NO_TIME", "KEY")
"""Classes that are about no column, which have examples of their own."""
_COUNTED_COLUMNS = 50
_ROW = "_barnabas_row"
_WINDOW_TIME = "_barnabas_window_time"
MIXED = "_barnabas_mixed"
_TIME_TYPE = "timestampType"
_RECORD = ("_barnabas_key", "_barnabas_value")
_OFFSET = "source_offset"


def record_types(source: Source, *, headers: bool = False) -> dict[str, str]:
    """The columns of records that a flow needs of a source; the others are not built.

    Dead letters also need headers."""
    types = dict(_RECORD_TYPES)
    if "timestamp" in source.record_columns:
        types |= {"timestamp": "timestamp", _TIME_TYPE: "int"}
    if headers or "headers" in source.record_columns:
        types["headers"] = _HEADERS_TYPE
    return types


def record_schema(source: Source) -> str:
    """The same as a schema of Spark's."""
    return ", ".join(f"{name} {kind}" for name, kind in record_types(source).items())


def parse_records(records: DataFrame, how: Format, record_columns: Sequence[str] = ()) -> DataFrame:
    """Columns from values.

    A value that does not fit the format, or lacks a required column, becomes a bad row.
    ``record_columns`` are those of the record that rows get, too: `Source.record_columns`.
    """
    if how.no_value == "skip":
        records = records.where(F.col("value").isNotNull())
    position = [
        F.col(name).alias(alias) for name, alias in zip(("topic", "partition", "offset"), POSITION, strict=True)
    ]
    originals = [F.col(name).alias(alias) for name, alias in zip(("key", "value"), _RECORD, strict=True)]
    if "headers" in records.columns:
        originals.append(F.col("headers").alias(_HEADERS))
    has_time = "timestamp" in record_columns and _TIME_TYPE in records.columns
    if has_time:
        originals.append(F.col(_TIME_TYPE))
    beside = [_of_record(name).alias(f"source_{name}") for name in record_columns]
    if (refused := json_refusal(how, F.col("value"))) is not None:
        beside.append(refused.alias(_REFUSED))
    parsed = records.select(how.rules.decode(how, F.col("value")).alias(_ROW), *position, *originals, *beside)
    parsed = typed_rows(how, parsed, _ROW, _RECORD[1])
    if not how.rules.gives_reasons:
        # Parsed again, as the columns stand there, in a column of its own: a reason
        # looks at each of them.
        parsed = parsed.withColumn(_TEXTS, F.when(_is_misfit(), untyped_struct(how, F.col(_RECORD[1]))))
        corrupt, record = F.col(f"{_TEXTS}.{CORRUPT}"), F.col(_RECORD[1]).cast("string")
        wrong = wrong_columns(how, F.col(_ROW), F.col(_TEXTS), corrupt, record)
        parsed = parsed.withColumn(_WRONG, F.when(_is_misfit(), wrong))
    columns = [F.col(f"{_ROW}.{name}").alias(name) for name in how.columns]
    columns += [F.col(f"source_{name}") for name in record_columns]
    kept = [name for name in (*_RECORD, _HEADERS) if name in parsed.columns]
    why, error = _marks(how, record_columns, has_time=has_time)
    return parsed.select(
        *columns, *POSITION, *kept, _computed_once(why).alias(_BAD), _computed_once(error).alias(_ERROR)
    )


def _marks(how: Format, record_columns: Sequence[str], *, has_time: bool) -> tuple[Column, Column]:
    """Why a row is bad, and the class of the error: the first problem counts."""
    is_row = how.no_value == "row"  # good, whatever is required
    problems = _ambiguous(record_columns)  # of rows without a value, too: they may delete others
    problems.append(
        (
            F.col(_RECORD[1]).isNull(),
            F.lit(None if is_row else "the record has no value"),
            F.lit(None if is_row else "NO_VALUE"),
        )
    )
    if how.type == "json" and how.registry:
        problems.append((F.col(_REFUSED).isNotNull(), F.col(_REFUSED), F.lit("MALFORMED")))
    if how.rules.refuses_mark and how.rules.is_text:
        reason = F.lit(f"the value is no {how.what}, but begins with a byte order mark")
        problems.append((begins_with_mark(F.col(_RECORD[1])), reason, F.lit("MALFORMED")))
    if how.rules.is_text:
        text = payload(how, F.col(_RECORD[1])).cast("string")
        reason = F.concat(F.lit("the value is not UTF-8: "), shown(F.make_valid_utf8(text)))
        problems.append((F.coalesce(~F.is_valid_utf8(text), F.lit(False)), reason, F.lit("MALFORMED")))
    if not how.rules.always_fits:
        reason, is_typed = _misfit(how)
        error = F.when(is_typed, F.lit("WRONG_TYPE")).otherwise(F.lit("MALFORMED"))
        problems.append((_is_misfit(), reason, error))
    if how.type == "json" and not how.registry:
        problems.append((*_foreign(how), F.lit("MALFORMED")))
    if has_time:  # our source has null for such a time and for none, Spark's connector has the time
        is_odd = cast(Column, _has_odd_time(F.col("source_timestamp"), TimestampType()))
        is_beyond = F.coalesce(is_odd, F.col(_TIME_TYPE) >= 0)
        problems.append((is_beyond, F.lit(f"the record's time is {RECORD_TIME_OUT_OF_RANGE}"), F.lit("MALFORMED")))
    for name, is_beyond in _beyond(how):
        value = F.col(f"{_ROW}.{name}").cast("string")
        reason = F.concat(F.lit(f"column {name} is "), value, F.lit(f", which is {TIME_OUT_OF_RANGE}"))
        problems.append((is_beyond, reason, F.lit("WRONG_TYPE")))
    for name in how.required:
        is_null = F.col(f"{_ROW}.{name}").isNull()
        problems.append((is_null, F.lit(f"the required column {name} is null"), F.lit("REQUIRED_NULL")))
    (is_bad, why, error), *others = problems
    why, error = F.when(is_bad, why), F.when(is_bad, error)
    for is_bad, reason, kind in others:
        why, error = why.when(is_bad, reason), error.when(is_bad, kind)
    return why, error


def _ambiguous(record_columns: Sequence[str]) -> list[tuple[Column, Column, Column]]:
    """The problems of keys and headers that are texts which stand for other bytes."""

    def problem(column: str, is_one: Column, value: Column) -> tuple[Column, Column, Column]:
        text = f", as which bytes are shown that are not UTF-8{advice.get(column, '')}"
        reason = F.concat(F.lit(f"column {column} is the text "), shown(value.cast("string")), F.lit(text))
        return is_one, reason, F.lit("WRONG_TYPE")

    advice = {"source_key": '; take record_columns = ["key_bytes"]'}
    problems = []
    if "key" in record_columns:
        key = F.col(_RECORD[0])
        problems.append(problem("source_key", ambiguous_text(key), key))
    if "headers" in record_columns:
        found = F.filter(F.col(_HEADERS), lambda header: ambiguous_text(header["value"]))
        is_one = F.coalesce(F.size(found) > 0, F.lit(False))
        problems.append(problem("source_headers", is_one, F.get(found, F.lit(0))["value"]))
    return problems


def _is_misfit() -> Column:
    """Whether the value does not fit the format."""
    return F.col(_ROW).isNull() | F.col(f"{_ROW}.{CORRUPT}").isNotNull()


def _misfit(how: Format) -> tuple[Column, Column]:
    """Why a value does not fit, and whether that is for the type of a column."""
    if how.rules.gives_reasons:
        reason = F.col(f"{_ROW}.{CORRUPT}")
        return reason, reason.startswith("column ")
    found = F.col(_WRONG)
    is_typed = found != ""
    if how.type != "csv":
        return F.when(is_typed, found).otherwise(
            json_problem(how.what, F.col(_RECORD[1]).cast("string"), F.col(_ROW).isNotNull())
        ), is_typed
    reason = F.when(is_typed, found).otherwise(_line_problem(how))
    return F.when(_has_names(how), F.lit(NAMES_AS_VALUES)).otherwise(reason), is_typed & ~_has_names(how)


def _foreign(how: Format) -> tuple[Column, Column]:
    """Whether a JSON object has none of the columns, and the names that it has."""
    names = F.json_object_keys(F.col(_RECORD[1]).cast("string"))
    is_empty = reduce(and_, [F.col(f"{_ROW}.{name}").isNull() for name in how.columns])
    is_foreign = is_empty & ~F.arrays_overlap(names, F.array(*map(F.lit, how.columns)))
    shown = F.when(F.size(names) == 0, F.lit("no names at all")).otherwise(F.array_join(F.slice(names, 1, 20), ", "))
    return is_foreign, F.concat(F.lit(f"{NO_COLUMNS}, but "), shown)


def _computed_once(mark: Column) -> Column:
    """The same, computed where it stands.

    Spark moves a filter through projections and puts what a column is made of in the place of its
    name, each time that the filter has it. So the filter for good rows of a wide format would hold
    the parser a thousand times. Spark moves none through a projection that may have another value
    next time, as it believes of this one.
    """
    return F.when(F.spark_partition_id() >= 0, mark)


def _of_record(name: str) -> Column:
    """A column of the record for rows: bytes as a text of their own, headers as a map in which
    the last of a name counts."""
    if name == "timestamp":
        return F.col(name)
    if name == "key_bytes":
        return F.col("key")
    if name == "key":
        return text_of_binary(F.col(name))
    headers = F.coalesce(F.col(name), F.array().cast(_HEADERS_TYPE))

    def is_last(header: Column, at: Column) -> Column:
        behind = F.slice(headers, at + 2, F.size(headers))
        return ~F.exists(behind, lambda other: other["key"] == header["key"])

    pairs = F.transform(
        F.filter(headers, is_last),
        lambda header: F.struct(header["key"], text_of_binary(header["value"])),
    )
    return F.map_from_entries(pairs)


def _beyond(how: Format) -> list[tuple[str, Column]]:
    """Columns of times, and of values with times in them, each with the condition that one is
    outside of what outputs hold."""
    types = column_types(how)
    found = [(field.name, _has_odd_time(F.col(f"{_ROW}.{field.name}"), field.dataType)) for field in types]
    return [(name, condition) for name, condition in found if condition is not None]


def _has_odd_time(value: Column, kind: DataType) -> Column | None:
    """Whether a time in the value is beyond the years 1 to 9999; None for a type without times."""
    return has_part([value], [kind], lambda columns, kinds, _: _is_odd_time(columns[0], kinds[0]))


def _is_odd_time(value: Column, kind: DataType) -> Column | None:
    if not isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return None
    first, last = FIRST_TIME, LAST_TIME
    if isinstance(kind, DateType):
        first, last = first[:10], last[:10]
    zone = "Z" if isinstance(kind, TimestampType) else ""  # the session's may be another one
    word = kind.simpleString()
    return ~value.between(F.expr(f"{word} '{first}{zone}'"), F.expr(f"{word} '{last}{zone}'"))


def _has_names(how: Format) -> Column:
    """Whether a line of CSV has the names of the columns in their places."""
    return F.lower(_line()) == how.delimiter.join(how.columns).lower()


def _line_problem(how: Format) -> Column:
    """Why a value is no line of CSV, as far as that can be said without its quotes."""
    count, base = len(how.columns), f"the value is no {how.what}"
    parts = {each: F.split(_line(), F.lit(rf"\Q{each}\E")) for each in dict.fromkeys((how.delimiter, *_DELIMITERS))}
    reason = F.when(_line() == "", F.lit(f"{base}, it is empty"))
    for each in _DELIMITERS:
        if each != how.delimiter and count > 1:
            shown = {"\t": "tabs"}.get(each, f"{each!r}")
            reason = reason.when(F.size(parts[each]) == count, F.lit(f"{base}{OTHER_DELIMITER} {shown}"))
    number = F.concat(F.lit(f"{base}{OTHER_COUNT} "), F.size(parts[how.delimiter]).cast("string"))
    return reason.when(~F.contains(_line(), F.lit('"')), number).otherwise(F.lit(f"{base}{WITH_QUOTES}"))


def _line() -> Column:
    return F.rtrim(F.col(_RECORD[1]).cast("string"), F.lit("\r\n"))


def mark_unexpected(parsed: DataFrame, expectations: Sequence[Expectation], source: str) -> DataFrame:
    """Rows of a source that do not meet an expectation with ``quarantine`` become bad rows."""
    ours = [each for each in expectations if each.of == source and each.on_fail == "quarantine"]
    if not ours:
        return parsed
    reasons = [
        F.when(
            ~is_met(each, F.col(_BAD).isNull()),
            F.lit(f"{_unmet(each.name)}: {each.check}"),
        )
        for each in ours
    ]
    reason = F.concat_ws("; ", *reasons)
    is_unmet = F.col(_BAD).isNull() & (reason != "")
    return parsed.withColumns(
        {
            _ERROR: F.when(is_unmet, F.lit("NOT_EXPECTED")).otherwise(F.col(_ERROR)),
            _BAD: F.when(is_unmet, reason).otherwise(F.col(_BAD)),
        }
    )


def unmarked() -> Column:
    """Whether a row is good so far."""
    return F.col(_BAD).isNull()


def mark_rows(parsed: DataFrame, reason: Column, error: str) -> DataFrame:
    """Good rows that have a reason become bad rows with it, of this class of error."""
    parsed = parsed.withColumn(_REASON, F.when(unmarked(), reason))
    found = F.col(_REASON).isNotNull()
    marked = parsed.withColumns(
        {
            _ERROR: F.when(found, F.lit(error)).otherwise(F.col(_ERROR)),
            _BAD: _computed_once(F.coalesce(F.col(_BAD), F.col(_REASON))),
        }
    )
    return marked.drop(_REASON)


def mark_keyless(parsed: DataFrame) -> DataFrame:
    """Rows of a table whose records have no key become bad rows: they replace none,
    and none replaces them."""
    reason = F.when(F.col(_RECORD[0]).isNull(), F.lit("the record has no key, by which tables know rows"))
    return parsed.withColumns(
        {
            _ERROR: F.when(reason.isNotNull(), F.lit("NO_KEY")).otherwise(F.col(_ERROR)),
            _BAD: F.coalesce(reason, F.col(_BAD)),
        }
    )


def table_counts() -> list[Column]:
    """Figures over a table's parsed rows for `DataFrame.observe`: all, the bad ones,
    and an example of these."""
    example = F.min(F.concat(F.col(_BAD), F.lit(" ("), record_position(), F.lit(")")))
    return [F.count(F.lit(1)).alias("rows"), F.count(F.col(_BAD)).alias("bad_rows"), example.alias("example")]


def mark_quarantined(parsed: DataFrame, reason: str) -> DataFrame:
    """The good rows of a micro-batch become bad rows, too, for this reason."""
    is_good = F.col(_BAD).isNull()
    return parsed.withColumns(
        {
            _ERROR: F.when(is_good, F.lit("QUARANTINED")).otherwise(F.col(_ERROR)),
            _BAD: F.when(is_good, F.lit(reason)).otherwise(F.col(_BAD)),
        }
    )


def quarantining(flow: Flow, source: Source) -> list[str]:
    """The names of expectations that make a row of the source a bad one."""
    return [each.name for each in flow.expectations if each.of == source.name and each.on_fail == "quarantine"]


def _unmet(expectation: str) -> str:
    return f"the expectation {expectation} is not met"


def good_rows(parsed: DataFrame) -> DataFrame:
    """The rows that fit their format, with the format's columns and the position."""
    return parsed.where(F.col(_BAD).isNull()).drop(_BAD, _ERROR, _HEADERS, *_RECORD)


def bad_counts(how: Format, expectations: Sequence[str] = ()) -> list[Column]:
    """Figures over parsed rows for `DataFrame.observe`: all, the bad ones, these by class,
    column, expectation; examples."""
    example = F.concat(F.col(_BAD), F.lit(" ("), record_position(), F.lit(")"))
    counts = [F.count(F.lit(1)).alias("rows"), F.count(F.col(_BAD)).alias("bad_rows")]
    counts += [F.count_if(F.col(_ERROR) == each).alias(f"error:{each}") for each in _ERRORS]
    counts += [F.min(F.when(F.col(_ERROR) == each, example)).alias(f"example:{each}") for each in _WITH_EXAMPLE]
    for name, start in how.misfits.items():
        is_one = (F.col(_ERROR) == "MALFORMED") & F.col(_BAD).startswith(start)
        counts.append(F.count_if(is_one).alias(f"error:MALFORMED, {name}"))
        counts.append(F.min(F.when(is_one, example)).alias(f"example:MALFORMED, {name}"))
    for name in list(how.columns)[:_COUNTED_COLUMNS]:
        is_wrong = (F.col(_ERROR) == "WRONG_TYPE") & (
            F.col(_BAD).contains(f"column {name} is ") | F.col(_BAD).contains(f"column {name}.")
        )
        counts.append(F.count_if(is_wrong).alias(f"column:{name}"))
        counts.append(F.min(F.when(is_wrong, example)).alias(f"example:column {name}"))
    for name in expectations:
        counts.append(F.count_if(F.col(_BAD).contains(_unmet(name))).alias(f"expectation:{name}"))
    return [*counts, F.min(example).alias("example")]


def bad_rows(parsed: DataFrame) -> DataFrame:
    """The rows that do not fit, as `bad_messages` takes them."""
    kept = (*_RECORD, _HEADERS, *POSITION, _BAD, _ERROR)
    return parsed.where(F.col(_BAD).isNotNull()).select(*[name for name in kept if name in parsed.columns])


def bad_messages(parsed: DataFrame, flow_name: str) -> DataFrame:
    """Bad rows as records for a dead-letter topic: as they came, with headers that
    say why and where from."""
    ours = _headers(
        [
            ("barnabas.flow", F.lit(flow_name)),
            ("barnabas.reason", F.col(_BAD)),
            ("barnabas.source", record_position()),
            ("barnabas.error", F.col(_ERROR)),
        ]
    )
    if _HEADERS in parsed.columns:
        ours = F.concat(F.coalesce(F.col(_HEADERS), F.array().cast(parsed.schema[_HEADERS].dataType)), ours)
    return parsed.where(F.col(_BAD).isNotNull()).select(
        F.col(_RECORD[0]).alias("key"), F.col(_RECORD[1]).alias("value"), ours.alias("headers")
    )


def replayed_messages(parsed: DataFrame) -> DataFrame:
    """Good rows of dead letters as records for the topics that they came from, with
    a header that says so."""
    ours = _headers([("barnabas.replayed", record_position())])
    return parsed.where(F.col(_BAD).isNull()).select(
        F.col(_RECORD[0]).alias("key"),
        F.col(_RECORD[1]).alias("value"),
        F.col(POSITION[0]).alias("topic"),
        F.concat(F.col(_HEADERS), ours).alias("headers"),
    )


def bad_reasons(parsed: DataFrame) -> DataFrame:
    """How many rows are bad for which reason."""
    return parsed.where(F.col(_BAD).isNotNull()).groupBy(F.col(_BAD).alias("reason")).count()


def shape_rows(rows: DataFrame, transform: Transform) -> DataFrame:
    """Derived columns in their order, then the filter, then the choice of columns
    (the position stays).

    The filter may raise, and must not for rows that `good_rows` leaves out. Spark joins both
    conditions, that one first, but without generated code for whole stages, as for wide
    formats, it computes what comes twice in them before both. So the filter stands behind a
    condition that all rows fulfil, which Spark does not know, and has an alternative, or Spark
    would join it with "and".
    """
    for name, expression in transform.derive.items():
        rows = rows.withColumn(name, F.expr(expression))
    if transform.where:
        kept = F.expr(transform.where)
        if rows.columns.count(_OFFSET) == 1:
            is_read = F.col(_OFFSET) >= 0
            kept = F.when(is_read, kept).otherwise(is_read)
            # Spark refuses what is no condition, while here a text would be made into one.
            rows.where(F.expr(transform.where))
        rows = rows.where(kept)
    if transform.select:
        rows = rows.select(*[F.expr(each) for each in transform.select], *position_of(rows))
    return rows


def position_of(rows: DataFrame) -> list[str]:
    """The position columns, if the rows still have them."""
    return [name for name in POSITION if name in rows.columns]


def deduplicate_rows(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The first row for each value of the columns.

    A repetition is known for as long as the watermark's delay."""
    rows = with_equal_keys(rows, columns)
    if rows.isStreaming:
        return rows.dropDuplicatesWithinWatermark(list(columns))
    return rows.dropDuplicates(list(columns))


def aggregate_rows(rows: DataFrame, how: Aggregate) -> DataFrame:
    """One row for each group, and window where there is one: the keys first, then the figures.

    Rows later than the watermark are dropped by Spark, which counts them in its progress. Windows
    have a column more, by which Spark cuts windows of windows with the same watermark;
    `visible_columns` drops it from results.
    """
    groups: list[Column] = [F.col(name) for name in how.group_by]
    time = how.time
    if time and how.watermark:
        rows = rows.withWatermark(time, how.watermark)
    elif time in WINDOW_TIMES and _WINDOW_TIME in rows.columns:
        time = _WINDOW_TIME
    span = "session_window" if how.session else "window"
    if time and how.session:
        groups.insert(0, F.session_window(time, how.session))
    elif time and how.window:
        groups.insert(0, F.window(time, how.window, how.slide))
    figures = [F.expr(expression).alias(name) for name, expression in how.compute.items()]
    result = rows.groupBy(*groups).agg(*figures)
    window = [F.col(f"{span}.start").alias("window_start"), F.col(f"{span}.end").alias("window_end")]
    return result.select(
        *(window if how.window or how.session else []),
        *how.group_by,
        *how.compute,
        *([F.window_time(span).alias(_WINDOW_TIME)] if how.window else []),
    )


def observe_timeless(rows: DataFrame, how: Aggregate, view: str) -> DataFrame:
    """The rows, with those without a time counted in Spark's progress reports, as
    ``barnabas.timeless.VIEW``: no window has them."""
    if how.time is None or how.time in WINDOW_TIMES or not rows.isStreaming:
        return rows
    return rows.observe(f"barnabas.timeless.{view}", F.count_if(F.col(how.time).isNull()).alias("rows"))


def visible_columns(results: DataFrame) -> DataFrame:
    """The results without what only later windows need."""
    return results.drop(_WINDOW_TIME)


def latest_per_key(
    batch: DataFrame, key: Sequence[str], order_by: str | None = None, *, marked: bool = False
) -> DataFrame:
    """The last of the rows with an equal key, as `barnabas.pipelines.frames.ordering` says, for an
    upsert takes a key once; drops the position.

    Rows without a position, which a join or a query made, have no order but ``order_by``: without
    it any of them stays. ``marked`` adds the column `MIXED`: whether rows of the key came from
    several partitions, and no column orders them.
    """
    place = [
        F.col(name).desc()
        for name in ("source_offset", "source_partition", "source_topic")
        if name in position_of(batch)
    ]
    has_position = len(place) == len(POSITION)
    if order_by is None and not has_position:
        rows = batch.dropDuplicates(list(key))
        return rows.withColumn(MIXED, F.lit(False)) if marked else rows
    order = [F.col(order_by).desc_nulls_last()] if order_by else []
    rows = batch.withColumn(
        _ROW, F.row_number().over(Window.partitionBy(*key).orderBy(*order, *(place if has_position else ())))
    )
    if marked:
        partitions = F.struct("source_topic", "source_partition") if has_position else F.lit(0)
        of_key = Window.partitionBy(*key)
        is_mixed = F.min(partitions).over(of_key) != F.max(partitions).over(of_key)
        rows = rows.withColumn(MIXED, F.lit(False) if order_by else is_mixed)
    return rows.where(F.col(_ROW) == 1).drop(_ROW, *[name for name in POSITION if name not in key])


def as_messages(
    batch: DataFrame,
    key: Sequence[str],
    flow_name: str,
    epoch: int,
    encode: Callable[[Sequence[str], StructType], Column] = json_document,
) -> DataFrame:
    """Result rows as records: key and value are JSON, the same for a row however
    often its batch is run.

    The headers name the flow and the micro-batch: of two records with an equal key and epoch, one
    is a repetition. A row that is marked as `DELETION_MARK` is a record without a value. ``encode``
    makes the value of the columns with these names.
    """
    headers = [("barnabas.flow", F.lit(flow_name)), ("barnabas.epoch", F.lit(str(epoch)))]
    value = encode([name for name in batch.columns if name != DELETION_MARK], batch.schema)
    if DELETION_MARK in batch.columns:
        value = F.when(~F.col(DELETION_MARK), value)
    return batch.select(json_document(key, batch.schema).alias("key"), value.alias("value"), _headers(headers))


def field_types(schema: StructType) -> dict[str, str]:
    """Column names with Spark's names of their types."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def record_position() -> Column:
    """Where a row's record is, as text: topic, partition and offset, with dashes."""
    return F.concat_ws("-", *[F.col(name).cast("string") for name in POSITION])


def _headers(pairs: Sequence[tuple[str, Column]]) -> Column:
    structs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in pairs]
    return F.array(*structs).alias("headers")


def with_deletions(batch: DataFrame, condition: str | None) -> DataFrame:
    """The rows, marked where they delete; a condition that is null does not."""
    if condition is None:
        return batch
    return batch.withColumn(DELETION_MARK, F.coalesce(F.expr(condition), F.lit(False)))
